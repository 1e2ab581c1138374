"""Softmax attention. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.hedgerow


def softmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """Softmax attention, softmax(scale q k^T + mask) v, in memory linear in T and S.

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    v : Tensor [B, Hkv, S, Dv]
    attn_mask : Tensor, optional
        Broadcastable to [B, H, T, S]: boolean (true = keep), or floating (added to the scaled scores; only
        -inf excludes; it has a gradient, 0 where it excludes).
    is_causal : bool
        Query t sees keys s <= t + (S - T); with a mask both hold.
    scale : float, optional
        Multiplies q k^T; default 1 / sqrt(D).
    dropout_p : float in [0, 1)
        Share of weights that is dropped, by counter (dropout_seed, b, h, t, s).
    dropout_seed : int, optional
        Needed when dropout_p > 0.

    Returns
    -------
    Tensor [B, H, T, Dv]
    """
    return _ops.softmax_attention(q, k, v, attn_mask, is_causal, scale, dropout_p, dropout_seed)
