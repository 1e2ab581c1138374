"""Converted folders, written by hand here, against the formulas in PyTorch."""

import json

import pytest
import safetensors.torch
import torch
import transformers
from program import forward, refused
from test_models import assert_equal, ids_and_mask, tiny_folder

LAYERS, HEADS, WIDTH = 3, 4, 6


def features(x, weight, bias, variant):
    """phi(x W + b) as METHODS defines it; x [B,H,T,D], weight [H,D,E], bias [H,E]."""
    y = torch.einsum("bhtd,hde->bhte", x, weight)
    if bias is not None:
        y = y + bias[:, None]
    if variant == "exp":
        return torch.cat([y.exp(), (-y).exp()], -1)
    if variant == "softmax":
        return torch.cat([y.softmax(-1), (-y).softmax(-1)], -1)
    if variant == "softmax_joint":
        return torch.cat([2 * y, -2 * y], -1).softmax(-1)
    if variant == "elu":
        return 1 + torch.nn.functional.elu(y)
    if variant == "relu":
        return y.relu()
    if variant == "exp_half":
        return y.exp()
    assert variant == "taylor"
    outer = (y[..., :, None] * y[..., None, :]).flatten(-2) / 2**0.5
    return torch.cat([torch.ones_like(y[..., :1]), y, outer], -1)


class Reference:
    """The attention of a converted layer, in float64, as a Transformers attention function."""

    def __init__(self, maps, variant, mask):
        self.maps, self.variant, self.mask = maps, variant, mask

    def __call__(self, module, query, key, value, attention_mask, **kwargs):
        maps = self.maps[module.layer_idx]
        if self.variant == "taylor":
            query, key = query / WIDTH**0.25, key / WIDTH**0.25
        phi_q = features(query, maps["wq"], maps.get("bq"), self.variant)
        phi_k = features(key, maps["wk"], maps.get("bk"), self.variant)
        weights = phi_q @ phi_k.transpose(-1, -2) * self.mask[:, None, None, :]
        total = weights.sum(-1, keepdim=True)
        output = weights @ value / torch.where(total == 0, 1, total)  # nothing in common: zeros
        return output.transpose(1, 2).contiguous(), None


def convert_by_hand(folder, variant, bias):
    """Adds random maps to a plain folder; returns them, by layer."""
    maps = []
    for _ in range(LAYERS):
        identity = torch.eye(WIDTH).expand(HEADS, WIDTH, WIDTH)
        layer = {n: identity + 0.2 * torch.randn(HEADS, WIDTH, WIDTH) for n in ["wq", "wk"]}
        if bias:
            layer |= {n: 0.2 + 0.2 * torch.rand(HEADS, WIDTH) for n in ["bq", "bk"]}
        maps.append(layer)
    add_mixers(folder, {"mixer": "hedgehog", "map": variant, "bias": bias}, maps)
    return maps


def add_mixers(folder, declared, maps):
    """Puts the same mechanism, with its own tensors, into every layer of a plain folder."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    for i, layer in enumerate(maps):
        for name, tensor in layer.items():
            tensors[f"encoder.layer.{i}.attention.hedgerow.{name}"] = tensor.contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["model_type"] = "hedgerow_bert"
    config["hedgerow"] = {"format": 1, "layers": [declared] * LAYERS}
    (folder / "config.json").write_text(json.dumps(config))


CASES = [("exp", False), ("exp", True), ("softmax", False), ("softmax_joint", False)]
CASES += [("elu", False), ("relu", True), ("exp_half", False), ("taylor", False)]


@pytest.mark.parametrize("pattern", ["none", "right", "random"])
@pytest.mark.parametrize("variant,bias", CASES)
def test_hedgehog_layers(tmp_path, variant, bias, pattern):
    torch.manual_seed(3)
    folder = tmp_path / "model"
    # Random weights of size 0.3 put q and k near 10, which exp's features are made for.
    model = tiny_folder(folder).to(torch.float64)
    maps = convert_by_hand(folder, variant, bias)
    ids, mask = ids_and_mask(3, 17, pattern)
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}

    doubles = [{name: t.double() for name, t in layer.items()} for layer in maps]
    transformers.AttentionInterface.register(
        "reference", Reference(doubles, variant, mask.double())
    )
    model.config._attn_implementation = "reference"
    for i, layer in enumerate(model.encoder.layer):
        layer.attention.self.layer_idx = i
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask).last_hidden_state
    ours = forward(folder, tmp_path, inputs)["last_hidden_state"]
    assert_equal(ours, theirs, mask, 5e-5)
    exact = forward(folder, tmp_path, inputs, "--dtype", "float64")["last_hidden_state"]
    assert_equal(exact, theirs, mask, 1e-10)


class TalkingHeads:
    """The attention of a talking-heads layer with all dynamic terms, in float64."""

    def __init__(self, layers, mask):
        self.layers, self.mask, self.tokens = layers, mask, {}

    def __call__(self, module, query, key, value, attention_mask, **kwargs):
        p, x = self.layers[module.layer_idx], self.tokens[module.layer_idx]

        def mixed(heads, proj, of_x, of_m):
            pairs = p[proj] + torch.einsum("btd,dio->btio", x, p[of_x])[:, :, None]
            pairs = pairs + torch.einsum("bsd,dio->bsio", x, p[of_m])[:, None]
            return torch.einsum("bits,btsio->bots", heads, pairs)

        scores = query @ key.transpose(-1, -2) / WIDTH**0.5
        logits = mixed(scores, "logits_proj", "x_logits", "m_logits")
        logits = logits.masked_fill(self.mask[:, None, None, :] == 0, -torch.inf)
        weights = mixed(logits.softmax(-1), "weights_proj", "x_weights", "m_weights")
        return (weights @ value).transpose(1, 2).contiguous(), None


@pytest.mark.parametrize("pattern", ["none", "right"])
def test_talking_heads_layers(tmp_path, pattern):
    torch.manual_seed(4)
    folder = tmp_path / "model"
    model = tiny_folder(folder).to(torch.float64)
    sizes = {name: (HEADS, HEADS) for name in ["logits_proj", "weights_proj"]}
    sizes |= {
        name: (HEADS * WIDTH, HEADS, HEADS)
        for name in ["x_logits", "m_logits", "x_weights", "m_weights"]
    }
    layers = [
        {name: 0.3 * torch.randn(size) for name, size in sizes.items()} for _ in range(LAYERS)
    ]
    add_mixers(folder, {"mixer": "talking-heads", "dynamic": "all"}, layers)
    ids, mask = ids_and_mask(3, 17, pattern)

    reference = TalkingHeads(
        [{n: t.double() for n, t in layer.items()} for layer in layers], mask.double()
    )
    transformers.AttentionInterface.register("talking_heads_reference", reference)
    model.config._attn_implementation = "talking_heads_reference"
    for i, layer in enumerate(model.encoder.layer):
        attention = layer.attention.self
        attention.layer_idx = i
        attention.register_forward_pre_hook(
            lambda module, args, kwargs: reference.tokens.update(
                {module.layer_idx: args[0] if args else kwargs["hidden_states"]}
            ),
            with_kwargs=True,
        )
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask).last_hidden_state
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
    ours = forward(folder, tmp_path, inputs)["last_hidden_state"]
    assert_equal(ours, theirs, mask, 2e-4)
    exact = forward(folder, tmp_path, inputs, "--dtype", "float64")["last_hidden_state"]
    assert_equal(exact, theirs, mask, 1e-9)


def test_transformers_refuses_a_converted_folder(tmp_path):
    folder = tmp_path / "model"
    tiny_folder(folder)
    convert_by_hand(folder, "exp", False)
    with pytest.raises(ValueError, match="hedgerow_bert"):
        transformers.AutoModel.from_pretrained(folder)


def refused_forward(folder, tmp_path):
    source = tmp_path / "ids.json"
    source.write_text('{"input_ids": [[1, 2, 3]]}')
    return refused("forward", folder, "--input", source, "--output", tmp_path / "out")


def edit(folder, change):
    path = folder / "config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


@pytest.mark.parametrize(
    "change,word",
    [
        (lambda c: c["hedgerow"].update(format=2), "format 1"),
        (lambda c: c["hedgerow"]["layers"].pop(), "got 2"),
        (lambda c: c["hedgerow"]["layers"][0].update(mixer="hopfield"), "hopfield"),
        (lambda c: c["hedgerow"]["layers"][0].update(map="tanh"), "tanh"),
        (lambda c: c["hedgerow"]["layers"][0].update(width=5), "hedgerow.wq"),
        (lambda c: c["hedgerow"]["layers"][0].update(bias=True), "hedgerow.bq"),
        (lambda c: c["hedgerow"]["layers"][0].update(size=3), "size"),
        (lambda c: c.update(model_type="bert"), "hedgerow"),
        (lambda c: c.pop("hedgerow"), "hedgerow"),
    ],
)
def test_contradictions_are_refused(tmp_path, change, word):
    folder = tmp_path / "model"
    tiny_folder(folder)
    convert_by_hand(folder, "exp", False)
    edit(folder, change)
    message = refused_forward(folder, tmp_path)
    assert word in message


def write_metadata(folder, text):
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    safetensors.torch.save_file(tensors, folder / "model.safetensors", metadata={"hedgerow": text})


def made_with(**changes):
    layer = {"mixer": "hedgehog", "map": "exp", "bias": False} | changes
    return json.dumps({"format": 1, "layers": [layer] * LAYERS})


@pytest.mark.parametrize(
    "text,words",
    [
        (made_with(map="softmax"), ["config.json", "layer 0 has map exp, not softmax"]),
        (made_with(bias=True), ["layer 0 has bias false, not true"]),
        (json.dumps({"format": 1, "layers": [{"mixer": "entmax"}] * LAYERS}), ["not entmax"]),
        (json.dumps({"format": 1, "layers": []}), ["model.safetensors", "got 0"]),
        ("{", ["model.safetensors", "hedgerow"]),
    ],
)
def test_mixers_are_those_that_the_weights_were_made_with(tmp_path, text, words):
    folder = tmp_path / "model"
    tiny_folder(folder)
    convert_by_hand(folder, "exp", False)
    write_metadata(folder, text)
    message = refused_forward(folder, tmp_path)
    assert all(word in message for word in words) and len(message) < 600


def test_what_weights_leave_out_has_its_default(tmp_path):
    """As a folder from before an option existed has it."""
    folder = tmp_path / "model"
    tiny_folder(folder)
    convert_by_hand(folder, "softmax", False)
    write_metadata(folder, json.dumps({"format": 1, "layers": [{"mixer": "hedgehog"}] * LAYERS}))
    found = forward(folder, tmp_path, {"input_ids": [[1, 2, 3]]})
    assert found["last_hidden_state"].isfinite().all()
