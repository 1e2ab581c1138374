"""Attention from partial computation as Python users meet it; operator_table.py has what torch asks of it."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops
from talking_heads_formula import assert_near, assert_refused, cast, check_gradients, random, run

B, H, HKV, T, S, D, DV, P = 2, 4, 2, 33, 65, 8, 5, 6


def formula(
    q,
    k,
    v,
    positions,
    reconstruction,
    mean=None,
    attn_mask=None,
    is_causal=False,
    scale=None,
    alpha=None,
):
    """The definition with every tensor in full: positions [B, H, T, P], R [B, H, T, S, P], mean [B, H, T, S]."""
    B, H, T, S, P = *q.shape[:3], v.shape[2], positions.shape[-1]

    def full(t, own):
        if t.dim() == len(own) + 1:
            t = t[:, None]
        return t.expand(B, H, T, *own)

    positions, r = full(positions, (P,)), full(reconstruction.double(), (S, P))
    mean = q.new_zeros(S) if mean is None else mean.double()
    mean = full(mean, (S,))
    keep = torch.ones(B, H, T, S, dtype=torch.bool)
    bias = 0
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        keep = keep & attn_mask
    elif attn_mask is not None:
        keep, bias = keep & (attn_mask != -torch.inf), attn_mask.clamp_min(-1e30)
    if is_causal:
        keep = keep & torch.ones(T, S, dtype=torch.bool).tril(S - T)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    wide = lambda t: t.repeat_interleave(H // t.shape[1], 1)  # noqa: E731
    exact = scale * q @ wide(k).transpose(2, 3)
    centred = (exact - mean).gather(3, positions) * keep.gather(3, positions)
    scores = mean + (r @ centred[..., None])[..., 0] + bias
    if alpha is None:
        weights = scores.masked_fill(~keep, -1e30).softmax(-1).masked_fill(~keep, 0)
    else:
        weights = ops.entmax(
            scores, alpha if alpha.dim() == 0 else alpha[None, :, None, None], mask=keep
        )
    return weights @ wide(v)


def selected_of(k, positions, heads):
    """What `partial_attention_selected` takes of the keys."""
    if positions.dim() == 1:
        return k[:, :, positions]
    wide = k.repeat_interleave(heads // k.shape[1], 1)
    return torch.stack([wide[:, h, positions[h]] for h in range(heads)], 1)


def positions_of(*rows, count=P, keys=S, seed=4):
    order = random(*rows, keys, seed=seed).argsort(-1)
    return order[..., :count].contiguous()


def inputs_of(
    positions=(), reconstruction=(), mean=(), queries=T, keys=S, kv_heads=HKV, **rest
) -> dict:
    """Arguments in float64; the leading sizes of positions, R and mean, which may be None."""
    given = {
        "q": random(B, H, queries, D, seed=1),
        "k": random(B, kv_heads, keys, D, seed=2),
        "v": random(B, kv_heads, keys, DV, seed=3),
        "positions": positions_of(*positions, keys=keys),
        "reconstruction": random(*reconstruction, keys, P, seed=5, scale=0.4),
    }
    if mean is not None:
        given["mean"] = random(*mean, keys, seed=6)
    return given | rest


def key_mask(keys=S):
    return (random(B, 1, 1, keys, seed=10) > -0.5).index_fill(3, torch.tensor(0), True)


def bias(*shape):
    t = random(*shape, seed=11)
    return t.masked_fill(t < -1, -torch.inf)


ALPHAS = torch.tensor([1.1, 1.4, 1.7, 2.0], dtype=torch.float64)
HEAD, EVERY, OWN = (H,), (1, T), (H, T)

VARIANTS = {
    "common": lambda: inputs_of(),
    "no mean": lambda: inputs_of(mean=None, scale=0.6),
    "causal": lambda: inputs_of(is_causal=True),
    "causal, no mean": lambda: inputs_of(mean=None, is_causal=True),
    "causal, more queries": lambda: inputs_of(queries=65, keys=33, is_causal=True),
    "keys masked": lambda: inputs_of(attn_mask=key_mask()),
    "keys masked, no mean": lambda: inputs_of(mean=None, attn_mask=key_mask(), is_causal=True),
    "pairs masked": lambda: inputs_of(attn_mask=random(H, T, S, seed=12) > -0.5),
    "rows masked": lambda: inputs_of(attn_mask=random(T, 1, seed=13) > -0.5),
    "bias": lambda: inputs_of(attn_mask=bias(H, T, S), is_causal=True),
    "bias of keys, no mean": lambda: inputs_of(mean=None, attn_mask=bias(B, 1, 1, S)),
    "bias of one dimension": lambda: inputs_of(attn_mask=bias(S)),
    "entmax": lambda: inputs_of(alpha=ALPHAS, is_causal=True),
    "one alpha": lambda: inputs_of(alpha=torch.tensor(1.5, dtype=torch.float64)),
    "by head": lambda: inputs_of(HEAD, HEAD, HEAD, attn_mask=key_mask()),
    "by head, entmax": lambda: inputs_of(HEAD, HEAD, HEAD, is_causal=True, alpha=ALPHAS),
    "R by head": lambda: inputs_of((), HEAD, ()),
    "R by head, as many key heads": lambda: inputs_of((), HEAD, (), kv_heads=H),
    "positions by head": lambda: inputs_of(HEAD, (), HEAD, kv_heads=1, is_causal=True),
    "mean of queries": lambda: inputs_of((), (), EVERY, is_causal=True),
    "own": lambda: inputs_of(EVERY, EVERY, EVERY),
    "own, causal": lambda: inputs_of(EVERY, EVERY, EVERY, is_causal=True),
    "own, bias": lambda: inputs_of(EVERY, EVERY, None, attn_mask=bias(H, T, S)),
    "own by head": lambda: inputs_of(OWN, OWN, OWN, attn_mask=key_mask()),
    "own by head, entmax": lambda: inputs_of(OWN, OWN, OWN, alpha=ALPHAS, is_causal=True),
    "own positions alone": lambda: inputs_of(OWN, (), (), is_causal=True),
    "own R alone": lambda: inputs_of(HEAD, EVERY, (), is_causal=True),
}
COMMON = [name for name, make in VARIANTS.items() if make()["positions"].dim() < 3]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_values_and_gradients(variant, dtype, path):
    inputs = cast(VARIANTS[variant](), dtype)
    want = run(formula, cast(inputs, torch.float64))
    limits = (1e-12, 1e-11) if dtype == torch.float64 else (1e-5, 1e-4)
    assert_near(run(ops.partial_attention, inputs), want, *limits)


@pytest.mark.parametrize("variant", COMMON)
def test_selected_keys_are_enough(variant, path):
    inputs = cast(VARIANTS[variant](), torch.float64)

    def of_selected(q, k, v, positions, **rest):
        keys = selected_of(k, positions, H)
        return ops.partial_attention_selected(q, keys, v, positions, **rest)

    assert_near(run(of_selected, inputs), run(ops.partial_attention, inputs), 1e-12, 1e-11)


@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_is_float32_rounded(variant):
    narrow = cast(VARIANTS[variant](), torch.bfloat16)
    got = run(ops.partial_attention, narrow)
    assert all(t.dtype == torch.bfloat16 for t in got)
    want = run(ops.partial_attention, cast(narrow, torch.float32))
    assert_near(got, want, 2**-8, 2e-2)


def test_parameters_may_stay_float32_beside_bfloat16():
    inputs = cast(inputs_of(), torch.bfloat16)
    wide = {
        name: inputs[name].detach().float().requires_grad_() for name in ("reconstruction", "mean")
    }
    got, want = run(ops.partial_attention, inputs | wide), run(ops.partial_attention, inputs)
    assert torch.equal(got[0], want[0])
    assert [t.dtype for t in got[4:]] == [torch.float32, torch.float32]


def _small(variant):
    """A variant's arguments of the first query and two keys, so that finite differences are quick."""
    inputs = VARIANTS[variant]()
    for name, own in (("positions", 1), ("reconstruction", 2), ("mean", 1)):
        if name in inputs and inputs[name].dim() == own + 2:
            inputs[name] = inputs[name][:, :2]
    inputs["q"] = inputs["q"][:, :, :2]
    keys = 5
    order = random(*inputs["positions"].shape[:-1], keys, seed=7).argsort(-1)
    inputs["positions"] = order[..., :2].contiguous()
    for name in ("k", "v"):
        inputs[name] = inputs[name][:, :, :keys]
    inputs["reconstruction"] = inputs["reconstruction"][..., :keys, :2]
    if "mean" in inputs:
        inputs["mean"] = inputs["mean"][..., :keys]
    if "attn_mask" in inputs:
        inputs["attn_mask"] = inputs["attn_mask"][..., :keys]
        if inputs["attn_mask"].dim() > 1:
            inputs["attn_mask"] = inputs["attn_mask"][..., :2, :]
        if inputs["attn_mask"].is_floating_point():
            inputs["attn_mask"] = inputs["attn_mask"].clamp_min(-2)
    return cast(inputs, torch.float64)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradcheck(variant):
    check_gradients(ops.partial_attention, _small(variant))


@pytest.mark.parametrize("variant", ["common", "no mean", "by head", "own by head", "own R alone"])
@pytest.mark.parametrize("causal", [False, True])
def test_what_is_excluded_is_never_read(variant, causal, path):
    """Keys, values, rows of R and means of excluded keys; the query of a row that sees nothing."""
    inputs = cast(VARIANTS[variant](), torch.float32)
    keep = torch.ones(B, 1, T, S, dtype=torch.bool)
    keep[..., 40:] = False
    keep[0, :, 7] = False
    assert (inputs["positions"] >= 40).any()

    def with_unseen(value):
        with torch.no_grad():
            for name in ("k", "v"):
                inputs[name][:, :, 40:] = value
            inputs["reconstruction"][..., 40:, :] = value
            if "mean" in inputs:
                inputs["mean"][..., 40:] = value
            inputs["q"][0, :, 7] = value
        return run(ops.partial_attention, inputs | {"attn_mask": keep, "is_causal": causal})

    clean = with_unseen(1.0)
    assert (clean[0][0, :, 7] == 0).all() and (clean[1][0, :, 7] == 0).all()
    assert (clean[2][:, :, 40:] == 0).all() and (clean[3][:, :, 40:] == 0).all()
    for poison in (torch.nan, torch.inf):
        for a, b in zip(with_unseen(poison), clean, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("variant", ["causal", "causal, no mean", "own, causal", "entmax"])
def test_the_future_is_not_read(variant, path):
    """A later key, its value, and nothing else changes the rows before it."""
    inputs = cast(VARIANTS[variant](), torch.float32)
    first = T - 10
    before = ops.partial_attention(**inputs)[:, :, :first]
    with torch.no_grad():
        for name in ("k", "v"):
            inputs[name][:, :, S - T + first :] = torch.nan
    assert torch.equal(ops.partial_attention(**inputs)[:, :, :first], before)


def test_the_lowest_finite_number_excludes_nothing(path):
    inputs = cast(inputs_of(), torch.float32)
    lowest = torch.finfo(torch.float32).min
    mask = torch.full((S,), -torch.inf)
    mask[3] = lowest
    out = ops.partial_attention(**inputs | {"attn_mask": mask})
    want = inputs["v"][:, :, 3:4].repeat_interleave(H // HKV, 1).expand_as(out)
    torch.testing.assert_close(out, want)


@pytest.mark.parametrize("sizes", [{"queries": 0}, {"keys": 0}, {"batch": 0}], ids=str)
@pytest.mark.parametrize("own", [False, True])
def test_sizes_of_zero(sizes, own, path):
    queries, keys, batch = sizes.get("queries", T), sizes.get("keys", S), sizes.get("batch", B)
    rows, count = ((1, queries) if own else ()), min(P, keys)
    inputs = cast(
        {
            "q": random(batch, H, queries, D),
            "k": random(batch, HKV, keys, D),
            "v": random(batch, HKV, keys, DV),
            "positions": positions_of(*rows, keys=keys),
            "reconstruction": random(*rows, keys, count),
            "mean": random(*rows, keys),
            "is_causal": True,
        },
        torch.float32,
    )
    out, *grads = run(ops.partial_attention, inputs)
    assert out.shape == (batch, H, queries, DV)
    assert all((t == 0).all() for t in (out, *grads))


@pytest.mark.parametrize("variant", ["common", "R by head", "own by head", "one alpha"])
def test_dropout_acts_on_weights(variant, path):
    inputs = cast(VARIANTS[variant](), torch.float64)
    inputs["v"] = torch.eye(S, dtype=torch.float64).expand(B, HKV, S, S).clone().requires_grad_()
    got = ops.partial_attention(**inputs, dropout_p=0.3, dropout_seed=11)
    rest = {name: t for name, t in inputs.items() if name != "v"}
    weights = ops.attention_weights("partial", **rest)
    kept = got != 0
    assert abs(kept[weights > 0].double().mean() - 0.7) < 0.02
    torch.testing.assert_close(got, weights * kept / 0.7)


@pytest.mark.parametrize("variant", ["common", "by head", "own by head", "entmax"])
def test_results_do_not_depend_on_threads(variant):
    inputs = cast(VARIANTS[variant](), torch.float32)
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            seen.append(run(ops.partial_attention, inputs))
    finally:
        torch.set_num_threads(before)
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_times_values_is_attention(variant):
    inputs = cast(VARIANTS[variant](), torch.float64)
    want = run(ops.partial_attention, inputs)

    def through_weights(v, **rest):
        return ops.attention_weights("partial", **rest) @ v.repeat_interleave(H // v.shape[1], 1)

    assert_near(run(through_weights, inputs), want, 1e-12, 1e-11)


def test_weights_take_a_key_mask():
    inputs, mask = inputs_of(), key_mask()[:, 0, 0]
    v = inputs.pop("v")
    weights = ops.attention_weights("partial", **inputs, key_mask=mask)
    want = ops.partial_attention(v=v, **inputs, attn_mask=mask[:, None, None])
    torch.testing.assert_close(weights @ v.repeat_interleave(H // HKV, 1), want)


def test_one_compiled_function_takes_every_length():
    torch._dynamo.reset()
    compiled = torch.compile(
        ops.partial_attention, backend="aot_eager", fullgraph=True, dynamic=True
    )
    for length in (20, 33, 70):
        inputs = cast(inputs_of(queries=length, keys=length, is_causal=True), torch.float32)
        assert_near(run(compiled, inputs), run(ops.partial_attention, inputs), 1e-6, 1e-5)


_z = torch.zeros
_every = _z(1, T, P, dtype=torch.int64)


WRONG = [
    ({"positions": torch.arange(P) + S - P + 1}, ["positions", f"[0, {S})", f"got {S}"]),
    ({"positions": torch.arange(P) - 1}, ["positions", "got -1"]),
    ({"positions": torch.tensor([1, 2, 3, 4, 5, 1])}, ["distinct", "got 1 twice"]),
    ({"positions": torch.arange(P).int()}, ["positions", "int64", "int32"]),
    ({"positions": torch.tensor(1)}, ["positions", "1 dimension"]),
    ({"positions": torch.arange(P).expand(3, P)}, ["positions", "[H, P]", "H = 4", "[3, 6]"]),
    ({"positions": torch.arange(P).expand(2, T, P)}, ["[H, T, P]", "T = 33", "[2, 33, 6]"]),
    ({"reconstruction": _z(S - 1, P)}, ["reconstruction", "S = 65, P = 6", "[64, 6]"]),
    ({"reconstruction": _z(P, S)}, ["reconstruction", "[S, P]", "[6, 65]"]),
    ({"reconstruction": _z(2, S, P)}, ["reconstruction", "[H, S, P]", "H = 4", "[2, 65, 6]"]),
    ({"reconstruction": _z(1, S, S, P)}, ["reconstruction", "[1, T, S, P]", "T = 33"]),
    ({"reconstruction": _z(S, P).double()}, ["reconstruction", "dtype", "float64", "float32"]),
    ({"mean": _z(S + 1)}, ["mean", "[S]", "S = 65", "[66]"]),
    ({"mean": _z(2, S)}, ["mean", "[H, S]", "[2, 65]"]),
    ({"mean": _z(S).bfloat16()}, ["mean", "bfloat16"]),
    ({"k": _z(B, 3, S, D)}, ["multiple", "[2, 4, 33, 8]", "[2, 3, 65, 8]"]),
    ({"k": _z(B, HKV, S, D + 1)}, ["width", "[2, 2, 65, 9]"]),
    ({"v": _z(B, HKV, S - 1, DV)}, ["keys", "[2, 2, 64, 5]"]),
    ({"attn_mask": _z(2, T, S)}, ["attn_mask", "[2, 4, 33, 65]", "[2, 33, 65]"]),
    ({"attn_mask": _z(S).long()}, ["attn_mask", "int64"]),
    ({"alpha": torch.ones(3)}, ["alpha", "[H] = [4]", "[3]"]),
    ({"scale": float("inf")}, ["scale", "inf"]),
    ({"dropout_p": 0.5}, ["dropout_seed"]),
]


def _as_float32():
    return {name: t.float() if t.is_floating_point() else t for name, t in inputs_of().items()}


@pytest.mark.parametrize("wrong, words", WRONG, ids=lambda x: ",".join(x))
def test_wrong_arguments_are_named(wrong, words):
    assert_refused("partial_attention", _as_float32() | wrong, words)


WRONG_SELECTED = [
    ({"k_selected": _z(B, HKV, P - 1, D)}, ["k_selected", "[B, Hkv, P, D]", "[2, 2, 5, 8]"]),
    ({"k_selected": _z(B, H, P, D)}, ["[B, Hkv, P, D]", "[2, 4, 6, 8]", "[2, 2, 65, 5]"]),
    ({"positions": torch.arange(P).expand(H, P)}, ["[B, H, P, D]", "[2, 2, 6, 8]"]),
    ({"positions": torch.arange(P).expand(1, T, P)}, ["partial_attention and all keys"]),
    ({"k_selected": _z(B, HKV, P, D + 1)}, ["width", "[2, 2, 6, 9]"]),
    ({"reconstruction": _z(P, P)}, ["reconstruction", "S = 65", "[6, 6]"]),
    ({"positions": torch.tensor([1, 2, 3, 4, 5, 1])}, ["distinct"]),
]


@pytest.mark.parametrize("wrong, words", WRONG_SELECTED, ids=lambda x: ",".join(x))
def test_wrong_selected_keys_are_named(wrong, words):
    right = _as_float32()
    right["k_selected"] = right.pop("k")[:, :, :P]
    assert_refused("partial_attention_selected", right | wrong, words)


@pytest.mark.parametrize("alpha", [0.5, float("nan"), torch.tensor([1.5, 1.2, 1.1, float("inf")])])
def test_bad_alphas_are_named(alpha):
    assert_refused("partial_attention", _as_float32() | {"alpha": alpha}, ["alpha", "at least 1"])
