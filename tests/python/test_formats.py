"""`hedgerow info` against files made by hand: the given cases, and the package safetensors."""

import json
import pathlib
import random
import struct
import subprocess
import sys

import pytest
import safetensors
import safetensors.numpy
from program import refused, run, run_ok

SOURCE = pathlib.Path(__file__).resolve().parents[2]
FIXTURES = SOURCE.parent / "shared" / "cases" / "handed" / "make_fixtures.py"


@pytest.fixture(scope="module")
def fixtures(tmp_path_factory):
    """The folder that the cases' own script writes."""
    if not FIXTURES.exists():
        pytest.skip("no cases beside the checkout")
    folder = tmp_path_factory.mktemp("fixtures")
    subprocess.run([sys.executable, FIXTURES, folder], check=True, capture_output=True)
    return folder


def info(path) -> dict:
    return json.loads(run_ok("info", path, "--json"))


def test_every_file_and_shard_gets_its_verdict(fixtures):
    manifest = json.loads((fixtures / "manifest.json").read_text())
    items = [item for item in manifest if not item["path"].startswith("checkpoints/")]
    assert len(items) > 30
    for item in items:
        path = fixtures / item["path"]
        if item["expect"] == "ok":
            assert info(path)["tensors"] == item["tensors"], item
        else:
            line = refused("info", path, "--json")
            for word in item["words"]:
                assert word.lower() in line.lower(), (item, line)


def test_good_checkpoints_are_listed(fixtures):
    manifest = json.loads((fixtures / "manifest.json").read_text())
    names = [
        i["path"] for i in manifest if i["path"].startswith("checkpoints/") and i["expect"] == "ok"
    ]
    assert names
    for name in names:
        found = info(fixtures / name)
        expected = safetensors.numpy.load_file(fixtures / name / "model.safetensors")
        assert {n: shape for n, (_, shape) in found["tensors"].items()} == {
            n: list(t.shape) for n, t in expected.items()
        }
        assert found["metadata"] == {"format": "pt"}
        assert [layer["mixer"] for layer in found["layers"]] == ["softmax", "softmax"]


def write(path: pathlib.Path, header: dict | str, data: bytes = b"") -> pathlib.Path:
    text = header if isinstance(header, str) else json.dumps(header)
    path.write_bytes(struct.pack("<Q", len(text.encode())) + text.encode() + data)
    return path


def test_metadata_and_kinds(tmp_path):
    header = {
        "__metadata__": {"format": "pt", "Zürich": "\n"},
        "tensor é": {"dtype": "BF16", "shape": [2, 1], "data_offsets": [0, 4]},
        "s": {"dtype": "F64", "shape": [], "data_offsets": [4, 12]},
    }
    found = info(write(tmp_path / "x.safetensors", header, bytes(12)))
    assert found["tensors"] == {"tensor é": ["BF16", [2, 1]], "s": ["F64", []]}
    assert found["metadata"] == {"format": "pt", "Zürich": "\n"}
    assert found["layers"] == []


def mutations(count: int, seed: int):
    """Headers near a good one: numbers, names and punctuation changed at random."""
    rng = random.Random(seed)
    good = {
        "__metadata__": {"k": "v"},
        "a": {"dtype": "F32", "shape": [2, 1], "data_offsets": [0, 8]},
        "b": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]},
        "c": {"dtype": "F16", "shape": [], "data_offsets": [11, 13]},
    }
    text = json.dumps(good)
    swaps = ["0", "1", "2", "8", "11", "13", "-1", "1.0", "null", '"', "{", "}", "[", "]", ",", ":", " ", "F32", "F16", "I64", "BOOL", "a", "b", "\\u0061"]  # fmt: skip
    for _ in range(count):
        mutated, size = text, 13
        for _ in range(rng.randrange(1, 3)):
            kind, at = rng.randrange(4), rng.randrange(1, len(mutated))
            if kind == 0:
                mutated = mutated[:at] + rng.choice(swaps) + mutated[at:]
            elif kind == 1:
                mutated = mutated[:at] + mutated[at + 1 :]
            elif kind == 2:
                mutated = mutated[:at] + rng.choice(swaps) + mutated[at + 1 :]
            else:
                size = rng.choice([0, 12, 13, 14])
        yield mutated, bytes(size)


def test_verdicts_agree_with_the_package(tmp_path):
    """What the package refuses is refused, and what it accepts is accepted but for doubled keys."""
    path = tmp_path / "x.safetensors"
    both = [0, 0]
    for text, data in mutations(250, seed=3):
        write(path, text, data)
        try:
            with safetensors.safe_open(path, "numpy") as file:
                names = sorted(file.keys())
        except safetensors.SafetensorError:
            names = None
        done = run("info", path, "--json")
        if done.returncode != 0:
            assert done.returncode == 2, done.stderr
        if names is None:
            assert done.returncode == 2, text
            both[0] += 1
        elif done.returncode == 2:
            assert "twice" in done.stderr, (text, done.stderr)
        else:
            assert sorted(json.loads(done.stdout)["tensors"]) == names, text
            both[1] += 1
    assert min(both) > 10  # the mutations reach both verdicts


def test_converted_folder_is_described(tmp_path):
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    write(tmp_path / "model.safetensors", {"encoder.layer.1.x": entry}, bytes(8))
    layers = [{"mixer": "softmax"}, {"mixer": "hedgehog", "map": "exp"}]
    # An architecture that is not known is described; a known one is checked against its tensors.
    config = {"model_type": "hedgerow_unknown", "num_hidden_layers": 2}

    def put(**changes):
        (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))

    put(hedgerow={"format": 1, "layers": layers})
    found = info(tmp_path)
    assert found["hedgerow"] == {"format": 1, "layers": layers}
    assert found["layers"] == [
        {"mixer": "softmax", "parameters": 0},
        {"mixer": "hedgehog", "map": "exp", "parameters": 2},
    ]
    assert "hedgehog (map exp)" in run_ok("info", tmp_path)
    put(hedgerow={"format": 2, "layers": layers})
    assert "format" in refused("info", tmp_path)
    put(hedgerow={"format": 1, "layers": layers[:1]})
    assert "got 1" in refused("info", tmp_path)
    put(hedgerow={"format": 1, "layers": [{}, {}]})
    assert "mixer" in refused("info", tmp_path)
    put(model_type="bert")
    assert "vocab_size" in refused("info", tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "config.json" in refused("info", tmp_path)


def test_bad_paths(tmp_path):
    assert "nowhere" in refused("info", tmp_path / "nowhere")
    assert "model.safetensors" in refused("info", tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    assert "pytorch_model.bin" in refused("info", tmp_path)
