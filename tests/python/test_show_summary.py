"""tools/show_summary.py: the right stage is held against the right figure."""

import json
import pathlib
import subprocess
import sys

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "tools" / "show_summary.py"


def stage(cosine, neighbour, overlap, kl):
    return {
        "embedding_cosine": cosine,
        "nn_agreement": neighbour,
        "top10_overlap": overlap,
        "kl": kl,
    }


def show(tmp_path, summary, *options):
    path = tmp_path / "summary.json"
    path.write_text(json.dumps(summary))
    done = subprocess.run(
        [sys.executable, SCRIPT, path, *options], capture_output=True, text=True, check=True
    )
    return {line[:26].strip(): line for line in done.stdout.splitlines()}


def test_lines_and_verdicts(tmp_path):
    summary = {
        "before": stage(0.5, 0.1, 0.2, {"128": 1.4, "512": 2.0}),
        "after_distil": stage(0.96, 0.6, 0.7, {"128": 0.21, "512": 0.49}),
        "after": stage(0.981, 0.71, 0.80, {"128": 0.9, "512": 0.1}),
        "seconds": 600,
        "seed": 0,
    }
    lines = show(tmp_path, summary)
    assert lines["embedding cosine"].endswith(">= 0.980  yes")
    assert lines["same nearest neighbour"].endswith(">= 0.720  NO")
    assert lines["top-10 overlap"].endswith(">= 0.780  yes")
    assert lines["KL at 128 tokens"].endswith("<= 0.220  yes")  # after distillation
    assert lines["KL at 512 tokens"].endswith("<= 0.480  NO")
    assert "0.5000" in lines["embedding cosine"] and "0.9810" in lines["embedding cosine"]
    assert "seed 0, 10.0 minutes" in lines
    thorough = show(tmp_path, summary, "--preset", "thorough")
    assert thorough["embedding cosine"].endswith(">= 0.990  NO")
    assert thorough["KL at 128 tokens"].endswith("<= 0.170  NO")
    assert show(tmp_path, {**summary, "preset": "thorough"}) == thorough


def test_missing_stages_are_dashes(tmp_path):
    lines = show(tmp_path, {"before": {"kl": None}, "after": stage(0.99, 0.9, 0.9, {"64": 0.1})})
    assert lines["embedding cosine"].split()[2:4] == ["-", "-"]
    assert "<=" not in lines["KL at 64 tokens"]


def test_seconds_by_stage(tmp_path):
    summary = {"seconds": {"distil": 200.0, "recover": 100.0}, "seed": 3}
    assert "seed 3, 5.0 minutes" in show(tmp_path, summary)


def test_a_missing_file_is_one_line(tmp_path):
    done = subprocess.run(
        [sys.executable, SCRIPT, tmp_path / "none.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1
