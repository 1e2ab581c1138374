"""tools/check_layers.py and tools/check_sizes.py fail when they should."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402
import check_sizes  # noqa: E402

CLEAN = {
    "include/hedgerow/error.h": "#include <string>\n",
    "include/hedgerow/ops.h": "#include <ATen/core/Tensor.h>\n",
    "include/hedgerow/kernels/softmax.h": "#include <cstdint>\n",
    "src/base/parallel.h": "#include <functional>\n",
    "src/base/log.cc": '#include "spdlog/spdlog.h"\n#include "hedgerow/error.h"\n',
    "src/kernels/softmax/softmax.cc": (
        '#include "hedgerow/kernels/softmax.h"\n#include "base/parallel.h"\n#include "hwy/highway.h"\n'
    ),
    "src/kernels/softmax/softmax_test.cc": '#include "testing/tolerance.h"\n',
    "src/formats/json.h": '#include "base/parallel.h"\n',
    "src/tokenizers/tokenizer.h": '#include "formats/json.h"\n#include "base/parallel.h"\n',
    "src/metrics/rank.cc": '#include "base/parallel.h"\n',
    "src/report/report.cc": '#include "formats/json.h"\n',
    "src/ops/softmax/softmax.cc": (
        '#include "hedgerow/ops.h"\n#include "kernels/softmax/softmax.cc"\n#include "torch/library.h"\n'
    ),
    "src/nn/attention.h": '#include "hedgerow/ops.h"\n#include <torch/nn/module.h>\n',
    "src/models/bert.h": '#include "nn/attention.h"\n',
    "src/data/text.h": '#include "tokenizers/tokenizer.h"\n',
    "src/train/loop.h": '#include "models/bert.h"\n#include "data/text.h"\n#include "metrics/rank.cc"\n',
    "src/convert/convert.cc": '#include "train/loop.h"\n#include "models/bert.h"\n',
    "src/cli/main.cc": '#include "report/report.cc"\n#include "convert/convert.cc"\n',
    "testing/tolerance.h": "#include <cmath>\n",
}


def tree(root, changes=()):
    for name, text in {**CLEAN, **dict(changes)}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_clean_tree(tmp_path):
    assert check_layers.check(tree(tmp_path)) == []


@pytest.mark.parametrize(
    ("path", "text", "words"),
    [
        ("src/base/a.h", "#include <torch/torch.h>\n", "src/base is torch-free"),
        ("src/kernels/softmax/a.cc", "#include <ATen/ATen.h>\n", "src/kernels is torch-free"),
        ("src/formats/a.cc", '#include "c10/util/Half.h"\n', "src/formats is torch-free"),
        ("src/tokenizers/a.cc", "  #  include <torch/library.h>\n", "src/tokenizers is torch-free"),
        ("src/metrics/a.cc", "#include <torch/library.h>\n", "src/metrics is torch-free"),
        ("src/report/a.cc", "#include <torch/library.h>\n", "src/report is torch-free"),
        ("include/hedgerow/kernels/a.h", "#include <ATen/ATen.h>\n", "kernels is torch-free"),
        ("include/hedgerow/error.h", "#include <ATen/ATen.h>\n", "torch-free"),
        ("src/kernels/softmax/a.cc", '#include "hedgerow/ops.h"\n', "header of operators"),
        (
            "src/base/a.h",
            '#include "kernels/softmax/softmax.cc"\n',
            "src/base may not include src/kernels",
        ),
        ("src/base/a.h", '#include "../formats/json.h"\n', "src/base may not include src/formats"),
        ("src/kernels/softmax/a.cc", '#include "formats/json.h"\n', "may not include src/formats"),
        ("src/ops/softmax/a.cc", '#include "nn/attention.h"\n', "src/ops may not include src/nn"),
        ("src/models/a.h", '#include "train/loop.h"\n', "src/models may not include src/train"),
        ("src/train/a.h", '#include "convert/convert.cc"\n', "may not include src/convert"),
        ("src/report/a.h", '#include "models/bert.h"\n', "src/report may not include src/models"),
        ("src/ops/softmax/a.cc", '#include "formats/json.h"\n', "may not include src/formats"),
        ("src/base/a.h", "#include <fmt/core.h>\n", "fmt and spdlog"),
        ("src/base/a.h", '#include "spdlog/spdlog.h"\n', "fmt and spdlog"),
        ("src/models/a.cc", "#include <fmt/core.h>\n", "fmt and spdlog"),
        ("src/nn/a.h", '#include "testing/tolerance.h"\n', "only tests"),
        ("src/nn/a.h", '#include "base/vanished.h"\n', "no such file"),
        ("src/misc/a.h", "#include <string>\n", "belongs to no layer"),
    ],
)
def test_a_fault_is_named_with_its_line(tmp_path, path, text, words):
    faults = check_layers.check(tree(tmp_path, {path: "// first line\n" + text}.items()))
    assert len(faults) == 1, faults
    assert words in faults[0]
    assert faults[0].startswith(path + (":2:" if "layer of the table" not in faults[0] else ":1:"))


def test_cycles_are_found(tmp_path):
    changes = {"src/nn/a.h": '#include "nn/b.h"\n', "src/nn/b.h": '#include "nn/a.h"\n'}
    faults = check_layers.check(tree(tmp_path, changes.items()))
    assert faults == ["cycle of includes: src/nn/a.h -> src/nn/b.h -> src/nn/a.h"]


def test_an_empty_tree_is_no_success(tmp_path):
    assert check_layers.check(tmp_path)


def test_reachability_is_transitive():
    assert "src/base" in check_layers.reachable("src/cli")
    assert "torch" not in check_layers.reachable("src/report")
    assert "src/convert" not in check_layers.reachable("src/train")


@pytest.mark.parametrize(
    ("name", "lines", "num_warnings", "num_faults"),
    [
        ("src/a.cc", 400, 0, 0),
        ("src/a.cc", 401, 1, 0),
        ("src/a.cc", 800, 1, 0),
        ("src/a.cc", 801, 0, 1),
        ("tools/a.py", 801, 0, 1),
        ("cmake/a.cmake", 801, 0, 1),
        ("README.md", 150, 0, 0),
        ("README.md", 151, 0, 1),
        ("docs/a.md", 5000, 0, 0),
    ],
)
def test_sizes(tmp_path, name, lines, num_warnings, num_faults):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x\n" * lines)
    warnings, faults = check_sizes.check(tmp_path)
    assert (len(warnings), len(faults)) == (num_warnings, num_faults)


def test_generated_files_are_not_counted(tmp_path):
    (tmp_path / "tables.h").write_text("// Generated by tools/make_tables.py.\n" + "x\n" * 2000)
    assert check_sizes.check(tmp_path) == ([], [])


@pytest.mark.parametrize("tool", ["check_layers.py", "check_sizes.py"])
def test_exit_status(tmp_path, tool):
    def status():
        return subprocess.run(
            [sys.executable, ROOT / "tools" / tool, tmp_path], capture_output=True, check=False
        ).returncode

    tree(tmp_path)
    assert status() == 0
    (tmp_path / "src/base/a.h").write_text("#include <torch/torch.h>\n" * 801)
    assert status() == 1


def test_this_project_is_clean():
    assert check_layers.check(ROOT) == []
    assert check_sizes.check(ROOT)[1] == []
