"""talking_heads_attention as Python users meet it; operator_table.py has what torch asks of it."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops
from talking_heads_formula import (
    ALPHAS,
    TERMS,
    VARIANTS,
    assert_near,
    assert_refused,
    cast,
    check_gradients,
    formula,
    inputs_of,
    random,
    run,
    static_inputs,
)

PROJECTED = ("logits_proj", "weights_proj")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients(variant, dtype, path):
    inputs = cast(VARIANTS[variant](), dtype)
    want = run(formula, cast(inputs, torch.float64))
    limits = (1e-12, 1e-11) if dtype == torch.float64 else (1e-5, 1e-4)
    assert_near(run(ops.talking_heads_attention, inputs), want, *limits)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_is_float32_rounded(variant, path):
    narrow = cast(VARIANTS[variant](), torch.bfloat16)
    wide = cast(narrow, torch.float32)
    got = run(ops.talking_heads_attention, narrow)
    assert all(t.dtype == torch.bfloat16 for t in got)
    assert_near(got, run(ops.talking_heads_attention, wide), 1e-2, 2e-2)


def test_each_gradient_alone(path):
    """One input asks for a gradient among others that do not."""
    inputs = cast(inputs_of() | {"alpha": ALPHAS, "attn_mask": random(3, 33, 65)}, torch.float64)
    _, *want = run(ops.talking_heads_attention, inputs)
    for (name, t), gradient in zip(inputs.items(), want, strict=True):
        alone = {other: x.detach() for other, x in inputs.items()} | {name: t}
        out = ops.talking_heads_attention(**alone)
        direction = random(*out.shape, seed=20)
        torch.testing.assert_close(*torch.autograd.grad((out * direction).sum(), t), gradient)


def _small(variant):
    """A variant's arguments over 2 queries and 3 keys, so that finite differences are quick."""
    inputs = VARIANTS[variant]()
    cut = {"q": (2, 2), "k": (2, 3), "v": (2, 3)}
    cut |= {"x_logits": (1, 2), "x_weights": (1, 2), "m_logits": (1, 3), "m_weights": (1, 3)}
    for name, (dim, size) in cut.items():
        if inputs.get(name) is not None:
            inputs[name] = inputs[name].narrow(dim, 0, min(size, inputs[name].shape[dim]))
    if inputs.get("attn_mask") is not None:
        inputs["attn_mask"] = inputs["attn_mask"][..., :2, :3]
    return cast(inputs, torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck(variant):
    check_gradients(ops.talking_heads_attention, _small(variant))


def test_identities_change_nothing(path):
    inputs = static_inputs(heads=(4, 2, 4, 4, 2))
    eye = torch.eye(4, dtype=torch.float64)
    got = ops.talking_heads_attention(**inputs | dict.fromkeys(PROJECTED, eye))
    want = ops.softmax_attention(inputs["q"], inputs["k"], inputs["v"])
    torch.testing.assert_close(got, want, atol=1e-12, rtol=0)


@pytest.mark.parametrize("variant", ["both", "entmax", "dynamic"])
def test_what_no_head_sees_is_never_read(variant, path):
    """Keys, values and terms of excluded keys, and the query and terms of a row that sees nothing."""
    inputs = cast(VARIANTS[variant](), torch.float32)
    keep = torch.ones(2, 3, 33, 65, dtype=torch.bool)
    keep[..., 40:] = False
    keep[0, :, 7] = False
    keep[:, 1, :, 3] = False  # seen by the other heads

    def with_unseen(value):
        with torch.no_grad():
            for name, t in inputs.items():
                if name in ("k", "v"):
                    t[:, :, 40:] = value
                elif name.startswith("m_"):
                    t[:, 40:] = value
                elif name == "q":
                    t[0, :, 7] = value
                elif name.startswith("x_"):
                    t[0, 7] = value
        return run(ops.talking_heads_attention, inputs | {"attn_mask": keep})

    clean = with_unseen(1.0)
    assert (clean[0][0, :, 7] == 0).all() and (clean[1][0, :, 7] == 0).all()
    assert (clean[2][:, :, 40:] == 0).all() and (clean[3][:, :, 40:] == 0).all()
    for poison in (torch.nan, torch.inf):
        for a, b in zip(with_unseen(poison), clean, strict=True):
            assert torch.equal(a, b)


def test_a_row_empty_in_one_head_loses_that_head_alone(path):
    inputs = cast(static_inputs(), torch.float64)
    keep = torch.ones(3, 33, 65, dtype=torch.bool)
    keep[1, 5] = False
    got = run(ops.talking_heads_attention, inputs | {"attn_mask": keep})
    assert_near(got, run(formula, inputs | {"attn_mask": keep}), 1e-12, 1e-11)


@pytest.mark.parametrize("sizes", [{"B": 0}, {"T": 0}, {"S": 0}, {"T": 0, "S": 0}], ids=str)
def test_sizes_of_zero(sizes, path):
    inputs = cast(inputs_of(**sizes), torch.float32)
    out, *grads = run(ops.talking_heads_attention, inputs)
    assert out.shape == (sizes.get("B", 2), 6, sizes.get("T", 33), 5)
    assert all((t == 0).all() for t in (out, *grads))


@pytest.mark.parametrize("variant", ["both causal", "dynamic entmax causal"])
def test_pieces_are_one_call(variant, path):
    inputs = cast(VARIANTS[variant](), torch.float32)
    whole = ops.talking_heads_attention(**inputs)
    pieces, at = [], 0
    for n in (1, 20, 12):
        end = 65 - 33 + at + n
        part = dict(inputs, q=inputs["q"][:, :, at : at + n])
        part |= {name: inputs[name][:, :, :end] for name in ("k", "v")}
        for name in TERMS:
            if name in inputs:
                rows = slice(at, at + n) if name.startswith("x_") else slice(0, end)
                part[name] = inputs[name][:, rows]
        pieces.append(ops.talking_heads_attention(**part))
        at += n
    torch.testing.assert_close(torch.cat(pieces, 2), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_dropout_acts_on_mixed_weights(dtype, path):
    inputs = cast(static_inputs(heads=(4, 2, 3, 6, 6)), dtype)
    inputs["v"] = torch.eye(65, dtype=dtype).expand(2, 6, 65, 65).clone().requires_grad_()
    seed = {"dropout_p": 0.3, "dropout_seed": 11}
    got = run(ops.talking_heads_attention, inputs | seed)
    weights = {name: t for name, t in inputs.items() if name != "v"}
    mixed = ops.attention_weights("talking_heads", **weights)
    kept = got[0] != 0
    assert abs(kept.double().mean() - 0.7) < 0.02
    torch.testing.assert_close(got[0], mixed * kept / 0.7, atol=1e-5, rtol=1e-5)

    def with_factors(q, k, v, **rest):
        return (ops.attention_weights("talking_heads", q, k, **rest) * kept / 0.7) @ v

    want = run(with_factors, inputs)
    assert_near(got, want, 1e-5, 1e-5)
    other = ops.talking_heads_attention(**inputs | seed | {"dropout_seed": 12})
    assert not torch.equal(other != 0, kept)


@pytest.mark.parametrize("variant", ["both", "entmax", "dynamic", "bias"])
def test_results_do_not_depend_on_threads(variant):
    inputs = cast(VARIANTS[variant](), torch.float32)
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            seen.append(run(ops.talking_heads_attention, inputs))
    finally:
        torch.set_num_threads(before)
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_weights_times_values_is_attention():
    inputs = inputs_of(heads=(4, 2, 3, 6, 6)) | {"alpha": ALPHAS, "is_causal": True}
    want = ops.talking_heads_attention(**inputs)
    v = inputs.pop("v")
    u = ops.attention_weights("talking_heads", **inputs)
    torch.testing.assert_close(u @ v, want)
    keep = torch.ones(2, 65, dtype=torch.bool)
    keep[:, 50:] = False
    u = ops.attention_weights("talking_heads", **inputs, key_mask=keep)
    assert (u[..., 50:] == 0).all() and (u[..., :50] != 0).any()


def test_one_compiled_function_takes_every_length():
    torch._dynamo.reset()
    compiled = torch.compile(
        ops.talking_heads_attention, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for length in (20, 33, 70):
        inputs = cast(inputs_of(T=length, S=length) | {"alpha": ALPHAS}, torch.float32)
        assert_near(run(compiled, inputs), run(ops.talking_heads_attention, inputs), 1e-6, 1e-5)


_z = torch.zeros


WRONG = [
    ({"logits_proj": _z(3, 3)}, ["logits_proj", "[Hk, H]", "4", "[3, 3]", "[2, 4, 33, 8]"]),
    ({"logits_proj": _z(4)}, ["logits_proj", "[Hk, H]", "[4]"]),
    ({"logits_proj": _z(4, 3).double()}, ["logits_proj", "dtype", "float64", "float32"]),
    ({"logits_proj": _z(4, 3).bfloat16()}, ["logits_proj", "bfloat16"]),
    ({"logits_proj": None}, ["weights_proj", "[H, Hv]", "4 rows", "[3, 6]"]),
    ({"weights_proj": _z(3, 5)}, ["Hv = 5", "multiple", "[2, 2, 65, 5]", "[3, 5]"]),
    ({"weights_proj": None}, ["Hv = 3", "multiple", "no weights_proj"]),
    ({"k": _z(2, 3, 65, 8)}, ["multiple", "[2, 4, 33, 8]", "[2, 3, 65, 8]"]),
    ({"k": _z(2, 2, 65, 7)}, ["width", "[2, 4, 33, 8]", "[2, 2, 65, 7]"]),
    ({"v": _z(2, 2, 64, 5)}, ["keys", "[2, 2, 65, 8]", "[2, 2, 64, 5]"]),
    ({"v": _z(2, 2, 65)}, ["v", "4 dimensions", "[2, 2, 65]"]),
    ({"attn_mask": _z(4, 33, 65)}, ["attn_mask", "[2, 3, 33, 65]", "[4, 33, 65]"]),
    ({"attn_mask": _z(65).long()}, ["attn_mask", "int64"]),
    ({"alpha": torch.ones(4)}, ["alpha", "[H] = [3]", "[4]"]),
    ({"x_logits": _z(2, 65, 4, 3)}, ["x_logits", "[B, T, Hk, H]", "[2, 33, 4, 3]"]),
    ({"m_logits": _z(2, 65, 3, 4)}, ["m_logits", "[B, S, Hk, H]", "[2, 65, 4, 3]"]),
    ({"x_weights": _z(1, 33, 3, 6)}, ["x_weights", "[B, T, H, Hv]", "[2, 33, 3, 6]"]),
    ({"m_weights": _z(2, 65, 3, 6).half()}, ["m_weights", "float16"]),
    (
        {"weights_proj": None, "v": _z(2, 3, 65, 5), "m_weights": _z(2, 65, 3, 3)},
        ["m_weights needs weights_proj"],
    ),
    ({"scale": float("inf")}, ["scale", "inf"]),
    ({"dropout_p": 0.5}, ["dropout_seed"]),
]


@pytest.mark.parametrize("wrong, words", WRONG, ids=lambda x: ",".join(x))
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_wrong_arguments_are_named(wrong, words, device):
    right = {name: t.float() for name, t in static_inputs().items()}
    arguments = {
        name: t.to(device) if torch.is_tensor(t) else t for name, t in (right | wrong).items()
    }
    assert_refused("talking_heads_attention", arguments, words)


@pytest.mark.parametrize("alpha", [0.5, float("nan"), torch.tensor([1.5, 1.2, float("inf")])])
def test_bad_alphas_are_named(alpha, path):
    right = {name: t.float() for name, t in static_inputs().items()}
    assert_refused("talking_heads_attention", right | {"alpha": alpha}, ["alpha", "at least 1"])
