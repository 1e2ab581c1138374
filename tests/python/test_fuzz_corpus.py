"""tools/make_fuzz_corpus.py: the good inputs are good, by the packages that define the formats."""

import pathlib
import sys

import pytest
import safetensors

import tokenizers

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import make_fuzz_corpus as corpus  # noqa: E402

FAULTY = {"nothing", "short", "overlap", "hole", "huge_shape", "negative", "truncated", "twice"}
FAULTY |= {"long_header", "lfs_pointer", "pickle"}


@pytest.mark.parametrize("name", corpus.safetensors_inputs())
def test_safetensors_inputs(name):
    data = corpus.safetensors_inputs()[name]
    if name in FAULTY:
        with pytest.raises(safetensors.SafetensorError):
            safetensors.deserialize(data)
    else:
        safetensors.deserialize(data)


@pytest.mark.parametrize("name", corpus.tokenizer_inputs())
def test_tokenizer_inputs(name):
    text = corpus.tokenizer_inputs()[name].partition(b"\0")[0].decode()
    if name in {"unknown_kinds", "truncated", "deep"}:
        with pytest.raises(Exception, match=r"."):
            tokenizers.Tokenizer.from_str(text)
    else:
        assert tokenizers.Tokenizer.from_str(text).encode("Hello, un").ids


def test_every_fuzzer_has_inputs():
    sources = [path for path in (ROOT / "src").rglob("*_fuzz.cc")]
    names = {
        f"{path.parent.relative_to(ROOT / 'src').as_posix().replace('/', '_')}_{path.stem}"
        for path in sources
    }
    assert names == set(corpus.CORPORA)
