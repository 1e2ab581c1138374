"""dynamic_talking_heads_attention: dynamic terms that are projections of tokens."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops
from talking_heads_formula import (
    HEADS,
    assert_near,
    assert_refused,
    cast,
    formula,
    random,
    run,
    static_inputs,
)


def _tokens():
    """x, m and the four projections of tokens."""
    Hk, _, H, Hv, _ = HEADS
    maps = {"x2l": (7, Hk, H), "m2l": (5, Hk, H), "x2w": (7, H, Hv), "m2w": (5, H, Hv)}
    maps = {name: random(*shape, seed=30 + i) for i, (name, shape) in enumerate(maps.items())}
    return {"x": random(2, 33, 7, seed=40), "m": random(2, 65, 5, seed=41)}, maps


def _by_formula(x=None, m=None, x2l=None, m2l=None, x2w=None, m2w=None, **rest):
    def project(tokens, weight):
        return None if weight is None else torch.einsum("bnd,dio->bnio", tokens, weight)

    return formula(
        x_logits=project(x, x2l),
        m_logits=project(m, m2l),
        x_weights=project(x, x2w),
        m_weights=project(m, m2w),
        **rest,
    )


ALL = ("x2l", "m2l", "x2w", "m2w")


@pytest.mark.parametrize("terms", [("x2l",), ("m2l",), ("x2w", "m2w"), ALL], ids=" ".join)
def test_terms_of_tokens(terms, path):
    tokens, maps = _tokens()
    sides = {name[0] for name in terms}
    given = {name: tokens[name] for name in sides} | {name: maps[name] for name in terms}
    inputs = cast(static_inputs() | given | {"is_causal": True}, torch.float64)
    got, want = run(ops.dynamic_talking_heads_attention, inputs), run(_by_formula, inputs)
    assert_near(got, want, 1e-11, 1e-10)


def test_excluded_tokens_are_never_read(path):
    tokens, maps = _tokens()
    inputs = cast(static_inputs() | tokens | maps, torch.float32)
    inputs["attn_mask"] = torch.arange(65) < 50

    def with_excluded(value):
        with torch.no_grad():
            for t in (inputs["k"], inputs["v"]):
                t[:, :, 50:] = value
            inputs["m"][:, 50:] = value
        return run(ops.dynamic_talking_heads_attention, inputs)

    for a, b in zip(with_excluded(torch.nan), with_excluded(0.0), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    "missing, words",
    [
        (["x"], ["x2l needs x"]),
        (["m"], ["m2l needs m"]),
        (["weights_proj"], ["x2w needs weights_proj"]),
    ],
)
def test_terms_need_tokens_and_projections(missing, words):
    tokens, maps = _tokens()
    arguments = static_inputs() | tokens | maps | dict.fromkeys(missing)
    assert_refused("dynamic_talking_heads_attention", arguments, words)


def test_tokens_must_fit():
    tokens, maps = _tokens()
    for name, wrong, words in (
        ("x", random(2, 32, 7), ["x", "[B, T, d_model]", "[2, 32, 7]", "[2, 4, 33, 8]"]),
        ("m2l", random(7, 4, 3), ["m2l", "width of m", "[7, 4, 3]", "[2, 65, 5]"]),
        ("m", random(2, 65, 5).float(), ["m and m2l", "dtype"]),
    ):
        arguments = static_inputs() | tokens | maps | {name: wrong}
        assert_refused("dynamic_talking_heads_attention", arguments, words)
