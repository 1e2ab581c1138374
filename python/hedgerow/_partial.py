"""Attention from partial computation. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import as_alpha

_ops = torch.ops.hedgerow


def partial_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Tensor,
    reconstruction: Tensor,
    mean: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """Attention whose scores are computed at P keys and reconstructed linearly at the others (arXiv 2106.08823).

    c[p] = scale q . k[positions[p]] - mean[positions[p]], and 0 where the query may not see that key;
    scores[s] = mean[s] + sum_p reconstruction[s, p] c[p]; the result is softmax or entmax of scores + mask, times v.
    A selected key that a query may not see is not read, so a causal call tells a query nothing of later keys.

    It runs on other operators: with a reconstruction common to all queries on `softmax_attention` or
    `entmax_attention`, with c for queries and R for keys, in memory linear in T. A reconstruction of its own for
    each query holds T S P numbers and forms the [B, H, T, S] scores.

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    v : Tensor [B, Hkv, S, Dv]
    positions : Tensor, int64 [P], [H, P], [1, T, P] or [H, T, P]
        Of the keys to compute: for all queries, by head, or for each query. Distinct, in any order. Their values
        are checked where the call runs, not while torch.compile traces it.
    reconstruction : Tensor [S, P], [H, S, P], [1, T, S, P] or [H, T, S, P]
        R, used as given, also at the selected positions. R and the mean have q's dtype, or float32 where q is
        bfloat16.
    mean : Tensor [S], [H, S], [1, T, S] or [H, T, S], optional
        Of the scaled scores; none is 0.
    attn_mask : Tensor, optional
        As in `softmax_attention`; a floating one is added after the reconstruction.
    is_causal, scale, dropout_p, dropout_seed
        As in `softmax_attention`.
    alpha : Tensor or float, optional
        Weights by entmax instead of softmax: a scalar, or one per head [H]; see `entmax_attention`.

    Returns
    -------
    Tensor [B, H, T, Dv]

    Raises
    ------
    RuntimeError
        Where positions are out of range or not distinct, or R, mean or positions do not fit H, T, S and P.
    """
    return _ops.partial_attention(
        q,
        k,
        v,
        positions,
        reconstruction,
        mean,
        attn_mask,
        is_causal,
        scale,
        as_alpha(alpha, q),
        dropout_p,
        dropout_seed,
    )


def partial_attention_selected(
    q: Tensor,
    k_selected: Tensor,
    v: Tensor,
    positions: Tensor,
    reconstruction: Tensor,
    mean: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """`partial_attention` of keys that are given, or projected, at the selected positions only.

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k_selected : Tensor [B, Hkv, P, D], or [B, H, P, D] where positions are by head
        k_selected[:, :, p] is the key at positions[p].
    v : Tensor [B, Hkv, S, Dv]
    positions : Tensor, int64 [P] or [H, P]
    reconstruction, mean, attn_mask, is_causal, scale, alpha, dropout_p, dropout_seed
        As in `partial_attention`.

    Returns
    -------
    Tensor [B, H, T, Dv]
    """
    return _ops.partial_attention_selected(
        q,
        k_selected,
        v,
        positions,
        reconstruction,
        mean,
        attn_mask,
        is_causal,
        scale,
        as_alpha(alpha, q),
        dropout_p,
        dropout_seed,
    )


def greedy_positions(covariance: Tensor, count: int) -> Tensor:
    """Positions whose scores tell most about all others, chosen greedily.

    Each is the one that leaves the least residual: argmax_j |E_j|^2 / E_jj, E the covariance given those before;
    ties go to the lowest. In float64. Not differentiable.

    Parameters
    ----------
    covariance : Tensor [n, n] or [H, n, n]
        Of the scores of a row, symmetric.
    count : int
        P, at most the rank: E_jj <= 1e-12 max C_jj counts as no variance.

    Returns
    -------
    Tensor, int64 [P] or [H, P]
        In the order of the choice.

    Raises
    ------
    RuntimeError
        Where the rank is below count; the text names it.
    """
    return _ops.greedy_positions(covariance, count)


def lmmse_reconstruction(covariance: Tensor, positions: Tensor, ridge: float = 0.0) -> Tensor:
    """Least-squares reconstruction R = C[:, P] (C[P, P] + ridge I)^-1 of scores from those at positions P.

    What it leaves is tr(C - R C[P, :]). Computed in float64; differentiable in the covariance.

    Parameters
    ----------
    covariance : Tensor [n, n] or [H, n, n]
        C; of an unsymmetric one the mean with its transpose.
    positions : Tensor, int64 [P] or [H, P]
    ridge : float
        In units of the covariance.

    Returns
    -------
    Tensor [n, P] or [H, n, P]
        Of the covariance's dtype.

    Raises
    ------
    RuntimeError
        Where C[P, P] is singular.
    """
    return _ops.lmmse_reconstruction(covariance, positions, ridge)
