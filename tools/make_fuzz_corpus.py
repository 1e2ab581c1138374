#!/usr/bin/env python3
"""Small inputs that the fuzzers start from: good files of every kind, and typical faults.

    make_fuzz_corpus.py OUT

writes OUT/<fuzzer>/<input>. Without them a fuzzer spends its minute on finding the first brace.
"""

from __future__ import annotations

import json
import pathlib
import struct
import sys

DTYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "BOOL": 1}


def safetensors(header: object, data: bytes = b"", pad: int = 0) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * pad
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_inputs() -> dict[str, bytes]:
    inputs = {"empty": safetensors({}), "nothing": b"", "short": b"\x08\0\0"}
    begin, header = 0, {"__metadata__": {"format": "pt"}}
    for dtype, width in DTYPES.items():
        header[dtype.lower()] = tensor(dtype, [2, 3], begin, begin + 6 * width)
        begin += 6 * width
    inputs["all_dtypes"] = safetensors(header, bytes(begin), pad=-len(json.dumps(header)) % 8)
    inputs["scalar_and_empty"] = safetensors(
        {"a": tensor("F32", [], 0, 4), "b": tensor("F32", [0, 7], 4, 4)}, bytes(4)
    )
    inputs["overlap"] = safetensors(
        {"a": tensor("F32", [2], 0, 8), "b": tensor("F32", [2], 4, 12)}, bytes(12)
    )
    inputs["hole"] = safetensors(
        {"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 8, 12)}, bytes(12)
    )
    inputs["huge_shape"] = safetensors({"a": tensor("F32", [2**62, 2**62], 0, 4)}, bytes(4))
    inputs["negative"] = safetensors({"a": tensor("F32", [-1], 0, 4)}, bytes(4))
    inputs["truncated"] = safetensors({"a": tensor("F32", [4], 0, 16)}, bytes(9))
    inputs["twice"] = safetensors(
        b'{"a":' + b'{"dtype":"I8","shape":[],"data_offsets":[0,1]},' * 2 + b'"a":0}'
    )
    inputs["long_header"] = struct.pack("<Q", 2**63) + b"{}"
    inputs["lfs_pointer"] = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    inputs["pickle"] = b"PK\x03\x04\0\0\0\0archive/data.pkl"
    return inputs


VOCAB = {
    word: i
    for i, word in enumerate(
        [
            "[PAD]",
            "[UNK]",
            "[CLS]",
            "[SEP]",
            "[MASK]",
            "a",
            "b",
            "hello",
            "un",
            "##aff",
            "##able",
            ".",
            ",",
        ]
    )
}


def special(i: int, content: str, **flags: bool) -> dict:
    token = {"id": i, "content": content, "special": True, "normalized": False}
    return {**token, "single_word": False, "lstrip": False, "rstrip": False, **flags}


def bert(**changes: object) -> dict:
    ids = {
        name: {"id": name, "ids": [VOCAB[name]], "tokens": [name]} for name in ("[CLS]", "[SEP]")
    }

    def piece(name: str, type_id: int) -> dict:
        return {"SpecialToken": {"id": name, "type_id": type_id}}

    def sequence(name: str, type_id: int) -> dict:
        return {"Sequence": {"id": name, "type_id": type_id}}

    single = [piece("[CLS]", 0), sequence("A", 0), piece("[SEP]", 0)]
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            special(VOCAB[n], n) for n in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, sequence("B", 1), piece("[SEP]", 1)],
            "special_tokens": ids,
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": VOCAB,
        },
    }
    return {**tokenizer, **changes}


def tokenizer_inputs() -> dict[str, bytes]:
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 1}
    padding = {
        "strategy": {"Fixed": 9},
        "direction": "Left",
        "pad_to_multiple_of": 4,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    normalizers = [{"type": kind} for kind in ("NFD", "StripAccents", "Lowercase", "NFKC")]
    added = [
        special(20, "<m>", lstrip=True, rstrip=True),
        special(21, "ab", single_word=True, normalized=True),
    ]
    documents = {
        "bert": bert(),
        "truncation_and_padding": bert(truncation=truncation, padding=padding),
        "sequence_of_normalizers": bert(
            normalizer={"type": "Sequence", "normalizers": normalizers}
        ),
        "bert_processing": bert(
            post_processor={"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
        ),
        "added_tokens": bert(added_tokens=added),
        "bare": bert(
            normalizer=None, pre_tokenizer={"type": "Whitespace"}, post_processor=None, decoder=None
        ),
        "unknown_kinds": bert(
            normalizer={"type": "Nonsense"}, model={"type": "BPE", "vocab": {}, "merges": []}
        ),
    }
    inputs = {name: json.dumps(document).encode() for name, document in documents.items()}
    inputs["bert_with_text"] = (
        inputs["bert"] + "\0Hello, un\u0301aff [MASK] \u4e2d \U0001f600.".encode()
    )
    inputs["truncated"] = inputs["bert"][:200]
    inputs["deep"] = b"[" * 2000
    return inputs


CORPORA = {
    "formats_safetensors_fuzz": safetensors_inputs,
    "tokenizers_tokenizer_json_fuzz": tokenizer_inputs,
}


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__.strip(), file=sys.stderr)
        return 2
    for fuzzer, make in CORPORA.items():
        folder = pathlib.Path(sys.argv[1]) / fuzzer
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in make().items():
            (folder / name).write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
