"""Sample arguments for attention from partial computation, as (positional, keyword); see operator_table.py."""

from __future__ import annotations

import torch
from entmax_table import alphas


def _random(shape, dtype, seed, scale=0.5):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def _positions(rows, keys):
    """[*rows, 2]: distinct, other ones in each row."""
    first = torch.arange(max(1, torch.tensor(rows).prod().int().item()))
    return torch.stack([(first + 2) % keys, first % keys], -1).view(*rows, 2)


def _parameters(rows, keys, dtype) -> dict:
    """positions, reconstruction and mean, each with the leading sizes `rows`."""
    return {
        "positions": _positions(rows, keys),
        "reconstruction": _random((*rows, keys, 2), dtype, 80),
        "mean": _random((*rows, keys), dtype, 81, 1),
    }


def _options(q, k, key_mask, bias) -> list[dict]:
    """Keyword arguments beside q, k and v, for positions common to all queries."""
    dtype, heads, S = q.dtype, q.shape[1], k.shape[2]
    common, by_head = _parameters((), S, dtype), _parameters((heads,), S, dtype)
    return [
        common,
        common | {"attn_mask": key_mask[:, None, None], "is_causal": True},
        by_head | {"attn_mask": bias, "scale": 0.7},
        by_head | {"mean": None, "alpha": alphas(heads, dtype), "is_causal": True},
        common | {"mean": None, "dropout_p": 0.3, "dropout_seed": 7},
    ]


def _own(q, k, bias) -> list[dict]:
    """The same for positions of each query."""
    dtype, heads, T, S = q.dtype, q.shape[1], q.shape[2], k.shape[2]
    every, by_head = _parameters((1, T), S, dtype), _parameters((heads, T), S, dtype)
    common = _parameters((), S, dtype)
    return [
        every | {"attn_mask": bias},
        by_head | {"is_causal": True, "alpha": torch.tensor(1.3, dtype=dtype)},
        common | {"positions": every["positions"]},
    ]


def _covariance(rows, n, dtype):
    x = _random((*rows, n, n), torch.float64, 83, 1)
    return (x @ x.transpose(-1, -2) / n + torch.eye(n, dtype=torch.float64)).to(dtype)


def samples(name, q, k, v, key_mask, bias) -> list[tuple[tuple, dict]]:
    """Samples of one operator, [] for one of another method; all tensors of one dtype."""
    dtype, heads, S = q.dtype, q.shape[1], k.shape[2]
    if name == "partial_attention":
        return [((q, k, v), rest) for rest in _options(q, k, key_mask, bias) + _own(q, k, bias)]
    if name == "partial_attention_selected":
        found = []
        for rest in _options(q, k, key_mask, bias):
            key_heads = heads if rest["positions"].dim() == 2 else k.shape[1]
            keys = _random((k.shape[0], key_heads, 2, k.shape[3]), dtype, 82, 1)
            found.append(((q, keys, v), rest))
        return found
    if name.startswith("selected_scores"):
        T, found = q.shape[2], []
        for rows in ((1, T), (heads, T)):
            scores = torch.float64 if dtype == torch.float64 else torch.float32
            grad = (
                (_random((q.shape[0], heads, T, 2), scores, 84, 1),)
                if name.endswith("_backward")
                else ()
            )
            found.append(((*grad, q, k, _positions(rows, S)), {}))
        return found
    if name == "greedy_positions":
        return [((_covariance((), S, dtype), 3), {}), ((_covariance((2,), S, dtype), 2), {})]
    if name == "lmmse_reconstruction":
        by_head = (_covariance((2,), S, dtype), _positions((2,), S), 0.1)
        return [((_covariance((), S, dtype), _positions((), S)), {}), (by_head, {})]
    return []


def weights_samples(q, k, key_mask, bias) -> list[tuple[tuple, dict]]:
    """Samples of attention_weights."""
    common, masked, by_head, *_ = _options(q, k, key_mask, bias)
    by_head = by_head | {"alpha": alphas(q.shape[1])}
    rows = [common | {"key_mask": key_mask}, masked, by_head, *_own(q, k, bias)]
    return [(("partial", q, k), rest) for rest in rows]
