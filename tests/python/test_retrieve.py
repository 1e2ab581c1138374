"""`hedgerow retrieve`: ranks against embeddings, several models, bad input."""

import json

import numpy as np
import pytest
from program import refused, run_ok
from test_convert import arguments, tiny  # noqa: F401  (tiny is a fixture)


@pytest.fixture(scope="module")
def pairs(tiny):  # noqa: F811
    lines = (tiny / "text.txt").read_text().splitlines()[:60]
    rows = [
        f"{i}\t{line}\t{' '.join(line.split()[1:] + line.split()[:1])}"
        for i, line in enumerate(lines)
    ]
    path = tiny / "pairs.tsv"
    path.write_text("\n".join(rows) + "\n")
    return path


def embeddings(model, texts, tmp_path):
    (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
    run_ok("embed", model, "--input", tmp_path / "in.txt", "--output", tmp_path / "e.npy")
    rows = np.load(tmp_path / "e.npy").astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_ranks_are_those_of_the_cosines(tiny, pairs, tmp_path):  # noqa: F811
    out = tiny / "retrieve_model"
    run_ok(*arguments(tiny, out))
    models = [tiny / "model", out]
    got = json.loads(run_ok("retrieve", *models, "--pairs", pairs, "--columns", "2,3", "--json"))
    assert got["texts"] == 60
    columns = [line.split("\t")[1:] for line in pairs.read_text().splitlines()]
    first = None
    for row, model in zip(got["models"], models, strict=True):
        a, b = (embeddings(model, [c[i] for c in columns], tmp_path) for i in (0, 1))
        cosines = a @ b.T
        ranks = (cosines > np.diag(cosines)[:, None] + 1e-9).sum(1)
        assert row["accuracy"] == pytest.approx((ranks == 0).mean(), abs=0.02)
        assert row["mean_reciprocal_rank"] == pytest.approx((1 / (ranks + 1)).mean(), abs=0.02)
        first = first or row["accuracy"]
        assert row["kept"] == pytest.approx(row["accuracy"] / first)


def test_table(tiny, pairs):  # noqa: F811
    text = run_ok(
        "retrieve", tiny / "model", "--pairs", pairs, "--columns", "2,3", "--texts", "20", "--quiet"
    )
    assert "among 20" in text and "accuracy" in text


def test_bad_input(tiny, pairs, tmp_path):  # noqa: F811
    base = ["retrieve", tiny / "model", "--pairs"]
    assert "column" in refused(*base, pairs, "--columns", "2,4")
    assert "--texts" in refused(*base, pairs, "--columns", "2,3", "--texts", "1")
    (tmp_path / "one.tsv").write_text("a\tb\n")
    assert "at least 2" in refused(*base, tmp_path / "one.tsv")
    assert "missing.tsv" in refused(*base, tmp_path / "missing.tsv")


def test_blank_rows_are_no_texts(tiny, tmp_path):  # noqa: F811
    path = tmp_path / "pairs.tsv"
    path.write_text("wa1 wb2\twb2 wa1\n\t\nwc3 wd4\twd4 wc3\n")
    found = json.loads(run_ok("retrieve", tiny / "model", "--pairs", path, "--json"))
    assert found["texts"] == 2
    path.write_text("wa1 wb2\twb2 wa1\nwc3\t \n")
    line = refused("retrieve", tiny / "model", "--pairs", path)
    assert "line 2" in line and "column 2" in line
    assert "--columns" in refused("retrieve", tiny / "model", "--pairs", path, "--columns", "0,2")
