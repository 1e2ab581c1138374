"""Folders whose layers attend with entmax, written by hand here, against the formula in PyTorch."""

from __future__ import annotations

import json

import pytest
import safetensors.torch
import torch
import transformers
from program import forward, refused, run_ok
from test_models import assert_equal, ids_and_mask, tiny_folder

LAYERS, HEADS = 3, 4


def entmax(scores, alpha):
    """alpha in (1, 2] by bisection on tau, in float64."""
    z = scores * (alpha - 1)
    low, high = z.amax(-1, keepdim=True) - 1, z.amax(-1, keepdim=True)
    for _ in range(100):
        tau = (low + high) / 2
        enough = (z - tau).clamp_min(0).pow(1 / (alpha - 1)).sum(-1, keepdim=True) >= 1
        low, high = torch.where(enough, tau, low), torch.where(enough, high, tau)
    return (z - low).clamp_min(0).pow(1 / (alpha - 1))


class Reference:
    """The attention of the layers, in float64, as a Transformers attention function."""

    def __init__(self, alphas, mask, length_scale=None):
        self.alphas, self.mask, self.length_scale = alphas, mask, length_scale

    def __call__(self, module, query, key, value, attention_mask, **kwargs):
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
        if self.length_scale is not None:
            delta, beta, gamma = (t.double()[:, None, None] for t in self.length_scale)
            log_n = self.mask.sum(-1).clamp_min(2).double().log()[:, None, None, None]
            scores = scores * (delta + beta * log_n**gamma)
        scores = scores.masked_fill(~self.mask[:, None, None], -torch.inf)
        alpha = self.alphas[module.layer_idx].double().expand(HEADS)[:, None, None]
        output = entmax(scores, alpha) @ value
        return output.transpose(1, 2).contiguous(), None


def convert_by_hand(folder, layers, tensors):
    """Declares the layers in config.json and adds their tensors, lists of dictionaries by layer."""
    path = folder / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    for i, layer in enumerate(tensors):
        for name, tensor in layer.items():
            weights[f"encoder.layer.{i}.attention.hedgerow.{name}"] = tensor.clone()
    safetensors.torch.save_file(weights, path)
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "hedgerow_bert"
    config["hedgerow"] = {"format": 1, "layers": layers}
    (folder / "config.json").write_text(json.dumps(config))


def learned(length_scale, shape=HEADS):
    tensors = {"alpha_raw": torch.randn(shape)}
    if length_scale:
        tensors |= {"scale_delta": 0.5 + torch.rand(HEADS), "scale_beta": 0.2 * torch.randn(HEADS)}
        tensors["scale_gamma"] = 0.5 + torch.rand(HEADS)
    return tensors


def check(folder, model, tmp_path, pattern, alphas, length_scale=None):
    ids, mask = ids_and_mask(3, 17, pattern)
    reference = Reference(alphas, mask.bool(), length_scale)
    transformers.AttentionInterface.register("entmax_reference", reference)
    model.config._attn_implementation = "entmax_reference"
    for i, layer in enumerate(model.encoder.layer):
        layer.attention.self.layer_idx = i
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask).last_hidden_state
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
    exact = forward(folder, tmp_path, inputs, "--dtype", "float64")["last_hidden_state"]
    assert_equal(exact, theirs, mask, 1e-9)
    assert_equal(forward(folder, tmp_path, inputs)["last_hidden_state"], theirs, mask, 2e-4)


@pytest.mark.parametrize("pattern", ["none", "right", "random"])
def test_each_head_has_its_alpha(tmp_path, pattern):
    torch.manual_seed(5)
    folder = tmp_path / "model"
    model = tiny_folder(folder).to(torch.float64)
    tensors = [learned(False) for _ in range(LAYERS)]
    convert_by_hand(folder, [{"mixer": "entmax"}] * LAYERS, tensors)
    alphas = [1 + layer["alpha_raw"].double().sigmoid() for layer in tensors]
    check(folder, model, tmp_path, pattern, alphas)


def test_layers_of_every_option(tmp_path):
    torch.manual_seed(6)
    folder = tmp_path / "model"
    model = tiny_folder(folder).to(torch.float64)
    shared = learned(False, 1)
    layers = [
        {"mixer": "entmax", "alpha": "1.5"},
        {"mixer": "entmax", "share": "layer"},
        {"mixer": "entmax", "alpha": "2"},
    ]
    convert_by_hand(folder, layers, [{}, shared, {}])
    alphas = [torch.tensor(1.5), 1 + shared["alpha_raw"].double().sigmoid(), torch.tensor(2.0)]
    check(folder, model, tmp_path, "right", alphas)
    shown = json.loads(run_ok("info", folder, "--json"))
    assert [layer["mixer"] for layer in shown["layers"]] == ["entmax"] * 3
    assert [layer.get("alpha") for layer in shown["layers"]] == ["1.5", None, "2"]


def test_scores_scaled_by_length(tmp_path):
    torch.manual_seed(7)
    folder = tmp_path / "model"
    model = tiny_folder(folder).to(torch.float64)
    tensors = [learned(True)] * LAYERS
    convert_by_hand(folder, [{"mixer": "entmax", "length_scale": True}] * LAYERS, tensors)
    alphas = [1 + layer["alpha_raw"].double().sigmoid() for layer in tensors]
    scale = [tensors[0][name] for name in ("scale_delta", "scale_beta", "scale_gamma")]
    check(folder, model, tmp_path, "right", alphas, scale)


@pytest.mark.parametrize(
    "layer, word",
    [
        ({"alpha": "0.5"}, "alpha"),
        ({"alpha": "dense"}, "alpha"),
        ({"share": "model"}, "share"),
        ({"share": "layer"}, "alpha_raw"),
        ({"length_scale": True}, "scale_delta"),
        ({"map": "exp"}, "map"),
    ],
)
def test_contradictions_are_refused(tmp_path, layer, word):
    folder = tmp_path / "model"
    tiny_folder(folder)
    tensors = [learned(False) for _ in range(LAYERS)]
    convert_by_hand(folder, [{"mixer": "entmax", **layer}] * LAYERS, tensors)
    source = tmp_path / "ids.json"
    source.write_text('{"input_ids": [[1, 2, 3]]}')
    assert word in refused("forward", folder, "--input", source, "--output", tmp_path / "out")
