"""Sample arguments for talking heads and bilinear attention, as (positional, keyword); see operator_table.py."""

from __future__ import annotations

import torch
from entmax_table import alphas


def _random(shape, dtype, seed, scale=0.5):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def _options(q, k, key_mask, bias) -> list[dict]:
    """Keyword arguments beside q, k and v: 4 heads of q, 3 of the softmax, 2 of the result."""
    dtype, heads = q.dtype, q.shape[1]
    batch, T, S = q.shape[0], q.shape[2], k.shape[2]
    logits, weights = _random((heads, 3), dtype, 50), _random((3, 2), dtype, 51)
    both = {"logits_proj": logits, "weights_proj": weights}
    terms = {
        "x_logits": _random((batch, T, heads, 3), dtype, 52),
        "m_logits": _random((batch, S, heads, 3), dtype, 53),
        "x_weights": _random((batch, T, 3, 2), dtype, 54),
        "m_weights": _random((batch, S, 3, 2), dtype, 55),
    }
    return [
        both,
        both | terms | {"attn_mask": key_mask[:, None, None], "is_causal": True},
        {"logits_proj": _random((heads, 2), dtype, 56), "weights_proj": None, "scale": 0.7},
        {"logits_proj": None, "weights_proj": _random((heads, 6), dtype, 57), "attn_mask": bias},
        {"logits_proj": None, "weights_proj": None, "is_causal": True},
        both | {"attn_mask": bias[:3], "alpha": alphas(3, dtype)},
        both | {"alpha": torch.tensor(1.3, dtype=dtype), "is_causal": True} | terms,
        both | {"dropout_p": 0.3, "dropout_seed": 7},
        *(both | {name: term} for name, term in terms.items()),
    ]


def samples(name, q, k, v, key_mask, bias) -> list[tuple[tuple, dict]]:
    """Samples of one operator, [] for one of another method; all tensors of one dtype."""
    ops, dtype, heads = torch.ops.hedgerow, q.dtype, q.shape[1]
    batch, T, S = q.shape[0], q.shape[2], k.shape[2]
    options = _options(q, k, key_mask, bias)
    if name == "talking_heads_attention":
        return [((q, k, v), rest) for rest in options]
    if name == "talking_heads_attention_backward":
        found = []
        for rest in options:
            out = ops.talking_heads_attention(q, k, v, **rest)
            names = ("logits_proj", "weights_proj", "attn_mask", "alpha")
            names += ("x_logits", "m_logits", "x_weights", "m_weights")
            wanted = [rest.get(n) is not None and rest[n].is_floating_point() for n in names]
            found.append(((_random(out.shape, dtype, 58), wanted, q, k, v), rest))
        return found
    if name == "dynamic_talking_heads_attention":
        tokens = {
            "x": _random((batch, T, 3), dtype, 59),
            "m": _random((batch, S, 2), dtype, 60),
        }
        maps = {
            "x2l": _random((3, heads, 3), dtype, 61),
            "m2l": _random((2, heads, 3), dtype, 62),
            "x2w": _random((3, 3, 2), dtype, 63),
            "m2w": _random((2, 3, 2), dtype, 64),
        }
        first = ((q, k, v), options[0] | tokens | maps)
        return [first] + [((q, k, v), options[0] | tokens | {n: maps[n]}) for n in maps]
    if name == "bilinear_attention":
        layer = (_random((batch, T, 3), dtype, 65, 1), _random((batch, S, 2), dtype, 66, 1))
        layer += (_random((heads, 3, 2), dtype, 67), _random((heads, 2, 3), dtype, 68))
        return [
            (layer, {"attn_mask": key_mask[:, None, None], "is_causal": True}),
            (layer, {"attn_mask": bias, "alpha": alphas(heads, dtype)}),
            (layer, {"dropout_p": 0.3, "dropout_seed": 7}),
        ]
    if name == "bilinear_from_talking_heads":
        wq, wk = _random((heads, 3, 2), dtype, 69), _random((heads, 4, 2), dtype, 70)
        wv, wo = _random((2, 4, 3), dtype, 71), _random((2, 3, 5), dtype, 72)
        projections = (options[0]["logits_proj"], options[0]["weights_proj"])
        same = (_random((heads, 4, 3), dtype, 73), _random((heads, 3, 5), dtype, 74))
        return [((wq, wk, wv, wo, *projections), {}), ((wq, wk, *same), {"scale": 0.5})]
    return []


def weights_samples(q, k, key_mask, bias) -> list[tuple[tuple, dict]]:
    """Samples of attention_weights."""
    both, dynamic, *_ = _options(q, k, key_mask, bias)
    entmax = both | {"attn_mask": bias[:3], "alpha": alphas(3), "key_mask": key_mask}
    return [(("talking_heads", q, k), rest) for rest in (both, dynamic, entmax)]
