"""What the report command says of run folders that are not right."""

from __future__ import annotations

import pytest
from test_report_support import FILES, report, synthetic


@pytest.mark.parametrize(
    ("name", "text", "rule"),
    [
        ("summary.json", "{", "JSON"),
        ("summary.json", '{"format": 7}', "`format` must be 1; got 7"),
        ("metrics.jsonl", '{"step": 1}\nnot json\n', "line 2"),
        (
            "head_values.jsonl",
            '{"step": 1, "head_values": {"alpha": [["low"]]}}\n',
            "`head_values.alpha[0][0]`",
        ),
        ("analysis.json", '{"kl": {"before": 3, "after": "x"}}', "`kl.after`"),
        (
            "maps.json",
            '{"layers": 1, "heads": 1, "sentences": [{"text": "t", "tokens": ["t"], "size": 1, "teacher": "AA==", "model": "AAAA"}]}',
            "`sentences[0].model`",
        ),
        ("bench.json", "[]", "must be an object"),
    ],
)
def test_wrong_files_are_refused_by_name(tmp_path, name, text, rule):
    synthetic.write_run(tmp_path, layers=1, heads=1, steps=3)
    (tmp_path / "report.html").write_text("old page")
    (tmp_path / name).write_text(text)
    done = report(tmp_path)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert name in done.stderr and rule in done.stderr
    assert (tmp_path / "report.html").read_text() == "old page"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        {*FILES, "head_values.jsonl", "report.html"}
    )


def test_no_run_folder(tmp_path):
    for folder, rule in ((tmp_path / "nowhere", "must be a folder"), (tmp_path, "none of them")):
        done = report(folder)
        assert done.returncode == 2 and rule in done.stderr, done.stderr
