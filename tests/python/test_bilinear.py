"""General bilinear attention: its formula, and the layers of heads that it can be."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops
from talking_heads_formula import assert_near, cast, formula, random, run


@pytest.mark.parametrize("static", [True, False], ids=["talking heads", "multi-head"])
def test_bilinear_attention_is_a_layer_of_heads(static, path):
    """In float64, with gradients through the parameters that were built."""
    Hk, H, Hv = (3, 4, 2) if static else (3, 3, 3)
    layer = {
        "wq": random(Hk, 6, 8, seed=1),
        "wk": random(Hk, 5, 8, seed=2),
        "wv": random(Hv, 5, 7, seed=3),
        "wo": random(Hv, 7, 4, seed=4),
    }
    if static:
        layer |= {"logits_proj": random(Hk, H, seed=5), "weights_proj": random(H, Hv, seed=6)}
    x, m = random(2, 9, 6, seed=7), random(2, 11, 5, seed=8)
    inputs = cast(layer | {"x": x, "m": m}, torch.float64)
    mask = random(H, 9, 11, seed=9)

    def bilinear(x, m, **layer):
        p, p_out = ops.bilinear_from_talking_heads(**layer)
        return ops.bilinear_attention(x, m, p, p_out, mask, is_causal=True)

    def heads(x, m, wq, wk, wv, wo, logits_proj=None, weights_proj=None):
        q, k, v = x[:, None] @ wq, m[:, None] @ wk, m[:, None] @ wv
        return (formula(q, k, v, logits_proj, weights_proj, mask, True) @ wo).sum(1)

    assert_near(run(bilinear, inputs), run(heads, inputs), 1e-12, 1e-11)


def test_bilinear_attention_is_its_formula(path):
    x, m = random(2, 9, 6, seed=1), random(2, 11, 5, seed=2)
    p, p_out = random(3, 6, 5, seed=3, scale=0.4), random(3, 5, 4, seed=4)
    for alpha in (None, 1.5):
        scores = torch.einsum("btx,hxm,bsm->bhts", x, p, m)
        weights = scores.softmax(-1) if alpha is None else ops.entmax(scores, alpha)
        want = torch.einsum("bhts,bsm,hmy->bty", weights, m, p_out)
        got = ops.bilinear_attention(x, m, p, p_out, alpha=alpha)
        torch.testing.assert_close(got, want, atol=1e-12, rtol=1e-12)


def test_tokens_of_queries_that_see_nothing_are_not_read(path):
    x, m = random(2, 5, 3, seed=1), random(2, 7, 4, seed=2)
    p, p_out = random(2, 3, 4, seed=3), random(2, 4, 3, seed=4)
    x[:, 3] = torch.nan
    mask = torch.ones(2, 1, 5, 7, dtype=torch.bool)
    mask[:, :, 3] = False
    inputs = [t.clone().requires_grad_() for t in (x, m, p, p_out)]
    out = ops.bilinear_attention(*inputs, mask)
    assert (out[:, 3] == 0).all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), inputs))
