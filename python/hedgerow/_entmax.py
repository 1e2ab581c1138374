"""alpha-entmax: rows, a loss for classifiers, attention. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import as_alpha

_ops = torch.ops.hedgerow


def entmax(x: Tensor, alpha: Tensor | float, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """alpha-entmax, [(alpha - 1) x - tau]_+^(1 / (alpha - 1)) with entries summing to 1 (arXiv 1909.00015).

    alpha = 1 is softmax, alpha = 2 sparsemax; between and above, entries far below the largest are exactly
    zero. Differentiable in x and alpha, also at alpha = 1 (where alpha's gradient is the right-hand limit).

    Parameters
    ----------
    x : Tensor [...]
        Entries of -inf are excluded.
    alpha : Tensor or float
        Finite and at least 1. A tensor (of any floating dtype; its gradient has that dtype) is a scalar, or
        has x's rank with size 1 on `dim` and sizes of 1 or x's elsewhere.
    dim : int
        The axis that is normalised.
    mask : Tensor, boolean, broadcastable to x, optional
        True = keep.

    Returns
    -------
    Tensor [...]
        Of x's shape. A row without entries is zero.
    """
    return _ops.entmax(x, as_alpha(alpha, x), dim, mask)


def sparsemax(x: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """`entmax` with alpha = 2: the Euclidean projection of x onto the simplex (arXiv 1602.02068).

    Parameters
    ----------
    x : Tensor [...]
    dim : int
    mask : Tensor, boolean, broadcastable to x, optional
        True = keep.

    Returns
    -------
    Tensor [...]
    """
    return _ops.sparsemax(x, dim, mask)


def entmax15(x: Tensor, dim: int = -1, mask: Tensor | None = None) -> Tensor:
    """`entmax` with alpha = 1.5.

    Parameters
    ----------
    x : Tensor [...]
    dim : int
    mask : Tensor, boolean, broadcastable to x, optional
        True = keep.

    Returns
    -------
    Tensor [...]
    """
    return _ops.entmax15(x, dim, mask)


def entmax_topk(
    x: Tensor, alpha: Tensor | float, k: int, dim: int = -1, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """`entmax` of the k largest entries along `dim`, in compact form: for very long rows.

    Parameters
    ----------
    x : Tensor [..., N, ...]
    alpha : Tensor or float
        As in `entmax`.
    k : int
        At least 1; may exceed N.
    dim : int
    mask : Tensor, boolean, broadcastable to x, optional
        True = keep.

    Returns
    -------
    values : Tensor [..., k, ...]
        Descending; 0 beyond the support. Differentiable in x and alpha.
    indices : Tensor, int64 [..., k, ...]
        Where the values stand along `dim` of x; -1 where the value is 0.
    complete : Tensor, boolean [...]
        Without `dim`: the support has at most k entries, and this is entmax of the whole row.
    """
    return _ops.entmax_topk(x, as_alpha(alpha, x), k, dim, mask)


def entmax_loss(
    x: Tensor, target: Tensor, alpha: Tensor | float, ignore_index: int = -100
) -> Tensor:
    """The Fenchel-Young loss of `entmax`, for classifiers: (p - onehot) . x + H(p), p = entmax(x).

    H is Tsallis' entropy, (1 - sum p^alpha) / (alpha (alpha - 1)). The gradient for x is p - onehot. alpha = 1
    is cross-entropy; above, the loss is exactly 0 once the target leads by 1 / (alpha - 1).

    Parameters
    ----------
    x : Tensor [..., C]
        Scores of the classes; -inf excludes one.
    target : Tensor, int64 [...]
    alpha : Tensor or float
        As in `entmax`, over the last axis.
    ignore_index : int
        Targets of this value have loss and gradient 0.

    Returns
    -------
    Tensor [...]
        One loss per row (take its mean), float32, or float64 for float64 input.
    """
    return _ops.entmax_loss(x, target, as_alpha(alpha, x), ignore_index)


def entmax_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    alpha: Tensor | float,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """Adaptively sparse attention, entmax(scale q k^T + mask) v, in memory linear in T and S.

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    v : Tensor [B, Hkv, S, Dv]
    alpha : Tensor or float
        Finite and at least 1: a scalar, or one per head [H] (of any floating dtype; its gradient has that
        dtype). 1 is softmax, 2 sparsemax.
    attn_mask, is_causal, scale, dropout_p, dropout_seed
        As in `softmax_attention`.

    Returns
    -------
    Tensor [B, H, T, Dv]
    """
    return _ops.entmax_attention(
        q, k, v, as_alpha(alpha, q), attn_mask, is_causal, scale, dropout_p, dropout_seed
    )
