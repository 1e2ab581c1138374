"""Checkpoints as they are found in the wild: old names, prefixes, heads, faults."""

import json
import pathlib
import subprocess
import sys

import pytest
import safetensors.torch
import torch
from program import SOURCE, forward, refused
from test_models import assert_equal, ids_and_mask, tiny_folder

CASES = SOURCE.parent / "shared" / "cases" / "handed"


@pytest.fixture
def tiny(tmp_path):
    """A folder, its model, and a way to write it with other tensors."""

    class Tiny:
        folder = tmp_path / "model"
        model = tiny_folder(folder)
        tensors = safetensors.torch.load_file(folder / "model.safetensors")

        def write(self, tensors):
            safetensors.torch.save_file(tensors, self.folder / "model.safetensors")

        def check(self):
            ids, mask = ids_and_mask(3, 11, "right")
            inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
            ours = forward(self.folder, tmp_path, inputs)
            with torch.no_grad():
                theirs = self.model(ids, attention_mask=mask).last_hidden_state
            assert_equal(ours["last_hidden_state"], theirs, mask)

        def refused(self):
            source = tmp_path / "ids.json"
            source.write_text('{"input_ids": [[1, 2, 3]]}')
            out = tmp_path / "out.safetensors"
            message = refused("forward", self.folder, "--input", source, "--output", out)
            assert not out.exists()
            return message

    return Tiny()


def old_norms(tensors):
    return {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): t
        for name, t in tensors.items()
    }


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("old", [False, True])
def test_names(tiny, prefix, old):
    tensors = old_norms(tiny.tensors) if old else tiny.tensors
    tiny.write({prefix + name: t for name, t in tensors.items()})
    tiny.check()


@pytest.mark.parametrize(
    "extra",
    [
        {"embeddings.position_ids": torch.arange(40)[None]},
        {"bert.embeddings.token_type_ids": torch.zeros(1, 40, dtype=torch.long)},
        {
            "cls.predictions.bias": torch.zeros(61),
            "cls.seq_relationship.weight": torch.zeros(2, 24),
        },
        {"classifier.weight": torch.zeros(2, 24)},
    ],
)
def test_buffers_and_other_heads_are_ignored(tiny, extra):
    tiny.write({**tiny.tensors, **extra})
    tiny.check()


def test_without_a_pooler(tiny):
    tiny.write({name: t for name, t in tiny.tensors.items() if "pooler" not in name})
    tiny.check()


def test_half_a_pooler_is_missing(tiny):
    tiny.write({name: t for name, t in tiny.tensors.items() if name != "pooler.dense.bias"})
    assert "1 tensor missing: pooler.dense.bias" in tiny.refused()


def test_everything_wrong_is_one_line(tiny):
    tensors = dict(tiny.tensors)
    del tensors["encoder.layer.0.output.dense.bias"]
    del tensors["embeddings.LayerNorm.weight"]
    tensors["encoder.layer.7.output.dense.bias"] = torch.zeros(24)
    tensors["encoder.layer.1.intermediate.dense.weight"] = torch.zeros(24, 40)
    tensors["encoder.layer.2.intermediate.dense.weight"] = torch.zeros(40, 24, dtype=torch.int32)
    tiny.write(tensors)
    message = tiny.refused()
    for part in [
        "2 tensors missing",
        "encoder.layer.0.output.dense.bias",
        "embeddings.LayerNorm.weight",
        "1 tensor unexpected: encoder.layer.7.output.dense.bias",
        "encoder.layer.1.intermediate.dense.weight must be [40, 24], got [24, 40]",
        "encoder.layer.2.intermediate.dense.weight I32",
    ]:
        assert part in message


def test_stored_under_two_names(tiny):
    name = "encoder.layer.0.output.dense.bias"
    tiny.write({**tiny.tensors, "bert." + name: tiny.tensors[name] + 1})
    assert "two names" in tiny.refused()


@pytest.mark.parametrize(
    "content,words",
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "git-lfs"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"", "too small"),
    ],
)
def test_files_that_are_something_else(tiny, content, words):
    (tiny.folder / "model.safetensors").write_bytes(content)
    assert words in tiny.refused().lower()


def test_truncated_file(tiny):
    path = tiny.folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    assert "error: " in tiny.refused()


def test_unknown_architecture(tiny):
    path = tiny.folder / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "model_type": "mamba"}))
    message = tiny.refused()
    assert '"mamba"' in message and "known: bert" in message


def test_no_config(tiny):
    (tiny.folder / "config.json").unlink()
    assert "config.json" in tiny.refused()


def test_no_weights(tiny):
    (tiny.folder / "model.safetensors").unlink()
    assert "model.safetensors" in tiny.refused()


@pytest.mark.skipif(not CASES.exists(), reason="the shared cases are not beside the checkout")
def test_shared_checkpoints(tmp_path):
    subprocess.run(
        [sys.executable, CASES / "make_fixtures.py", tmp_path / "fixtures"],
        check=True,
        capture_output=True,
    )
    manifest = json.loads((tmp_path / "fixtures" / "manifest.json").read_text())
    expected = json.loads((CASES / "checkpoint_expected.json").read_text())["models"]
    items = [i for i in manifest if pathlib.Path(i["path"]).name.startswith("bert_")]
    assert len(items) >= 4
    for item in items:
        folder = tmp_path / "fixtures" / item["path"]
        if item["expect"] == "error":
            source = tmp_path / "ids.json"
            source.write_text('{"input_ids": [[1, 2, 3]]}')
            message = refused("forward", folder, "--input", source, "--output", tmp_path / "o")
            assert all(word.lower() in message.lower() for word in item["words"]), message
            continue
        for run in expected[item["model"]]:
            ours = forward(folder, tmp_path, run["inputs"])["last_hidden_state"]
            for got, wanted in zip(ours, run["out"], strict=True):
                for row, values in zip(got, wanted, strict=True):
                    if values is not None:
                        assert (row - torch.tensor(values)).abs().max() < 1e-5
