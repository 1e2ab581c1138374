"""`hedgerow embed` against Transformers, by the steps that the folder names."""

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from program import refused, run, run_ok
from test_models import minilm_folder

TEXTS = [
    "In the beginning God created the heavens and the earth.",
    "Jesus wept.",
    "",
    "Die Würde des Menschen ist unantastbar. 日本語も。",
    "word " * 400,
    "  spaces   around  ",
    "Jesus wept.",
]


def reference(folder, texts, max_length=256):
    """Mean of unpadded hidden states, normalised, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in texts:
        batch = tokenizer([text], truncation=True, max_length=max_length, return_tensors="pt")
        with torch.no_grad():
            pooled = model(**batch).last_hidden_state[0].mean(0)
        rows.append(pooled / pooled.norm())
    return torch.stack(rows).numpy()


@pytest.fixture
def folder():
    return minilm_folder()


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("batch", [1, 3, 32])
def test_npy(folder, texts, tmp_path, batch):
    out = tmp_path / "out.npy"
    run_ok("embed", folder, "--input", texts, "--output", out, "--batch", batch)
    ours = np.load(out)
    assert ours.dtype == np.float32 and ours.shape == (len(TEXTS), 384)
    assert np.abs(ours - reference(folder, TEXTS)).max() < 1e-5
    assert np.abs(np.linalg.norm(ours, axis=1) - 1).max() < 1e-6


def test_jsonl_in_and_out(folder, tmp_path):
    texts = [*TEXTS, "two\nlines"]
    source, out = tmp_path / "texts.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(t) for t in texts), encoding="utf-8")
    run_ok("embed", folder, "--input", source, "--output", out, "--jsonl")
    ours = np.array([json.loads(line) for line in out.read_text().splitlines()])
    assert np.abs(ours - reference(folder, texts)).max() < 1e-5


def test_max_length(folder, texts, tmp_path):
    out = tmp_path / "out.npy"
    run_ok("embed", folder, "--input", texts, "--output", out, "--max-length", 16)
    assert np.abs(np.load(out) - reference(folder, TEXTS, 16)).max() < 1e-5
    message = refused("embed", folder, "--input", texts, "--output", out, "--max-length", 513)
    assert "512" in message


def test_float64(folder, texts, tmp_path):
    out = tmp_path / "out.npy"
    run_ok("embed", folder, "--input", texts, "--output", out, "--dtype", "float64")
    ours = np.load(out)
    assert ours.dtype == np.float64
    assert np.abs(ours - reference(folder, TEXTS)).max() < 1e-5


def test_without_pooling_files_mean_and_no_norm(folder, texts, tmp_path):
    plain = tmp_path / "plain"
    plain.mkdir()
    for name in ["config.json", "model.safetensors", "tokenizer.json"]:
        shutil.copy(folder / name, plain / name)
    run_ok("embed", plain, "--input", texts, "--output", tmp_path / "out.npy")
    ours = np.load(tmp_path / "out.npy")
    norms = np.linalg.norm(ours, axis=1, keepdims=True)
    assert (np.abs(norms - 1) > 1e-3).all()
    assert np.abs(ours / norms - reference(folder, TEXTS, 512)).max() < 1e-5


def test_long_line(folder, tmp_path):
    source, out = tmp_path / "texts.txt", tmp_path / "out.npy"
    line = "word " * 200_000  # 1 MB
    source.write_text(line + "\n")
    run_ok("embed", folder, "--input", source, "--output", out)
    assert np.abs(np.load(out) - reference(folder, ["word " * 400])).max() < 1e-5


@pytest.mark.parametrize(
    "content,word", [(b"", "texts.txt"), (b"good\n\xff\xfe\n", "UTF-8"), (b"\n\n", "texts.txt")]
)
def test_bad_texts(folder, tmp_path, content, word):
    source, out = tmp_path / "texts.txt", tmp_path / "out.npy"
    source.write_bytes(content)
    if content == b"\n\n":  # blank lines are texts here: one embedding a line
        run_ok("embed", folder, "--input", source, "--output", out)
        assert np.load(out).shape == (2, 384)
        return
    assert word in refused("embed", folder, "--input", source, "--output", out)
    assert not out.exists()


def test_refusals(folder, texts, tmp_path):
    out = tmp_path / "out.npy"
    assert ".jsonl" in refused("embed", folder, "--input", texts, "--output", tmp_path / "out.txt")
    gone = tmp_path / "gone" / "out.npy"
    assert "gone" in refused("embed", folder, "--input", texts, "--output", gone)
    assert "--batch" in refused("embed", folder, "--input", texts, "--output", out, "--batch", 0)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('"fine"\nnot json\n')
    assert "line 2" in refused("embed", folder, "--input", bad, "--output", out, "--jsonl")
    assert not out.exists()


def test_unknown_module_is_refused_by_name(folder, texts, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    modules = json.loads((copy / "modules.json").read_text())
    modules.append({"idx": 3, "name": "3", "path": "3_Dense", "type": "x.models.Dense"})
    (copy / "modules.json").write_text(json.dumps(modules))
    message = refused("embed", copy, "--input", texts, "--output", tmp_path / "out.npy")
    assert "x.models.Dense" in message


def test_json_report_and_progress(folder, texts, tmp_path):
    out = tmp_path / "out.npy"
    done = run("embed", folder, "--input", texts, "--output", out, "--json")
    report = json.loads(done.stdout)
    assert (report["texts"], report["dimensions"], report["max_length"]) == (len(TEXTS), 384, 256)
    assert report["cut_to_max_length"] == 1
    quiet = run("embed", folder, "--input", texts, "--output", out, "--quiet")
    assert quiet.stdout == "" and quiet.stderr == ""
