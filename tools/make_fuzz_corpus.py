#!/usr/bin/env python3
"""Write the inputs that the fuzzers start from.

    python tools/make_fuzz_corpus.py FOLDER

FOLDER/<fuzzer>/ gets a few small files each: good ones, and one of every kind of fault.
"""

from __future__ import annotations

import json
import pathlib
import struct
import sys


def raw(header: str | bytes, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with nothing checked."""
    header = header.encode() if isinstance(header, str) else header
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors_inputs() -> list[bytes]:
    two = {"a": entry("F32", [2, 3], 0, 24), "b": entry("I64", [4], 24, 56)}
    good = raw(json.dumps({"__metadata__": {"format": "pt"}, **two}), bytes(56))
    return [
        good,
        good[:-5],
        good + b"\0",
        raw("{}"),
        raw('{"__metadata__":{"epoch":3}}'),
        raw(
            json.dumps({"s": entry("BF16", [], 0, 2), "z": entry("U8", [0, 3], 2, 2)}) + "  ", b"ab"
        ),
        raw(json.dumps({"a": entry("F4", [2, 2], 0, 2), "b": entry("C64", [1], 2, 10)}), bytes(10)),
        raw(json.dumps({"a": entry("F32", [2], 0, 8), "b": entry("F32", [2], 4, 12)}), bytes(12)),
        raw(json.dumps({"a": entry("F32", [2**33, 2**33], 0, 4)}), bytes(4)),
        raw('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}}', b"x"),
        raw("{}", length=1000),
        b"\xff" * 8 + b"{}",
        b"version https://git-lfs.github.com/spec/v1\n",
        b"PK\x03\x04" + bytes(20),
        b"\x80\x02}q\0." + bytes(8),
        raw('{"\\u0061":[[[[[[[[[[]]]]]]]]]]}'),
    ]


def tokenizer_inputs() -> list[bytes]:
    special = ["[UNK]", "[CLS]", "[SEP]"]
    words = ["hello", "un", "##aff", "##able", "a", "b", "##b", ",", ".", "\u4e2d"]
    bert = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0},
        "padding": {"strategy": {"Fixed": 8}, "direction": "Left", "pad_to_multiple_of": 4, "pad_id": 0, "pad_type_id": 0, "pad_token": "[UNK]"},
        "added_tokens": [
            {"id": i, "content": t, "special": True, "normalized": False, "single_word": False, "lstrip": False, "rstrip": False}
            for i, t in enumerate(special)
        ],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "[CLS]", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {t: i for i, t in enumerate(special + words)},
        },
    }  # fmt: skip
    flags = [
        {"id": 20, "content": "<m>", "lstrip": True, "rstrip": True, "normalized": False},
        {"id": 21, "content": "AB", "single_word": True, "normalized": True},
        {"id": 22, "content": "\u0301", "normalized": True},
    ]
    parts = {
        **bert,
        "added_tokens": flags,
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, {"type": "Punctuation", "behavior": "Isolated"}, {"type": "Whitespace"}]},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 2], "cls": ["[CLS]", 1]},
    }  # fmt: skip
    least = {"model": {"type": "WordPiece", "vocab": {"a": 0}}}
    unknown = {**least, "normalizer": {"type": "Martian"}}
    texts = [json.dumps(t).encode() for t in (bert, parts, least, unknown)]
    texts.append(json.dumps(parts).encode() + b"\0" + "AB <m> \u00e9\u0323\u0301 \u1e69".encode())
    texts.append(b'{"model":{"vocab":{}},"added_tokens":[{"id":3,"content":"a b"}]}\0a b')
    return texts


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, inputs in (
        ("formats_safetensors_fuzz", safetensors_inputs()),
        ("tokenizers_tokenizer_json_fuzz", tokenizer_inputs()),
    ):
        folder = pathlib.Path(sys.argv[1]) / name
        folder.mkdir(parents=True, exist_ok=True)
        for i, data in enumerate(inputs):
            (folder / f"made-{i:02d}").write_bytes(data)
    return 0


if __name__ == "__main__":
    sys.exit(main())
