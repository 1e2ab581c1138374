"""Talking-heads and general bilinear attention. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import as_alpha

_ops = torch.ops.hedgerow


def talking_heads_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logits_proj: Tensor | None,
    weights_proj: Tensor | None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    x_logits: Tensor | None = None,
    m_logits: Tensor | None = None,
    x_weights: Tensor | None = None,
    m_weights: Tensor | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """Talking-heads attention (arXiv 2003.02436): heads mixed before and after the softmax.

    J = scale q k^T; L[h] = sum_a J[a] Pl[a, h]; W = softmax or entmax of L + mask over the keys;
    U[c] = sum_h W[h] Pw[h, c]; the result is U v. Memory is linear in T and S. Hk, H and Hv are the heads of
    q, of the softmax and of the result. Rows of U need not sum to 1.

    Parameters
    ----------
    q : Tensor [B, Hk, T, D]
    k : Tensor [B, Hkk, S, D]
        Hkk divides Hk.
    v : Tensor [B, Hvv, S, Dv]
        Hvv divides Hv; it need not be Hkk.
    logits_proj : Tensor [Hk, H], or None
        Pl, of q's dtype, or float32 where q is bfloat16 (so for all that mix heads). None: the identity, H = Hk.
    weights_proj : Tensor [H, Hv], or None
        Pw. None: the identity, Hv = H.
    attn_mask : Tensor, optional
        Over the softmax heads, broadcastable to [B, H, T, S]; as in `softmax_attention`. A key that every
        head excludes is never read.
    is_causal, scale
        As in `softmax_attention`.
    alpha : Tensor or float, optional
        Weights by entmax instead of softmax: a scalar, or one per softmax head [H]; see `entmax_attention`.
    x_logits : Tensor [B, T, Hk, H], optional
        Added to Pl for each query; needs `logits_proj`.
    m_logits : Tensor [B, S, Hk, H], optional
        Added to Pl for each key; needs `logits_proj`.
    x_weights : Tensor [B, T, H, Hv], optional
        Added to Pw for each query; needs `weights_proj`.
    m_weights : Tensor [B, S, H, Hv], optional
        Added to Pw for each key; needs `weights_proj`.
    dropout_p, dropout_seed
        As in `softmax_attention`; dropout acts on U.

    Returns
    -------
    Tensor [B, Hv, T, Dv]

    Raises
    ------
    RuntimeError
        Where head counts or shapes do not fit, a dynamic term comes without its projection, or alpha is
        below 1 or not finite.
    """
    return _ops.talking_heads_attention(
        q,
        k,
        v,
        logits_proj,
        weights_proj,
        attn_mask,
        is_causal,
        scale,
        as_alpha(alpha, q),
        x_logits,
        m_logits,
        x_weights,
        m_weights,
        dropout_p,
        dropout_seed,
    )


def dynamic_talking_heads_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    logits_proj: Tensor | None,
    weights_proj: Tensor | None,
    x: Tensor | None = None,
    m: Tensor | None = None,
    x2l: Tensor | None = None,
    m2l: Tensor | None = None,
    x2w: Tensor | None = None,
    m2w: Tensor | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """`talking_heads_attention` whose dynamic terms are projections of tokens.

    x_logits = x x2l, m_logits = m m2l, x_weights = x x2w, m_weights = m m2w, each where its projection is given.

    Parameters
    ----------
    q, k, v, logits_proj, weights_proj
        As in `talking_heads_attention`.
    x : Tensor [B, T, dX], optional
        Tokens of the queries; `x2l` and `x2w` need them.
    m : Tensor [B, S, dM], optional
        Tokens of the keys; `m2l` and `m2w` need them. A token whose key every head excludes is never read.
    x2l : Tensor [dX, Hk, H], optional
    m2l : Tensor [dM, Hk, H], optional
    x2w : Tensor [dX, H, Hv], optional
    m2w : Tensor [dM, H, Hv], optional
    attn_mask, is_causal, scale, alpha, dropout_p, dropout_seed
        As in `talking_heads_attention`.

    Returns
    -------
    Tensor [B, Hv, T, Dv]
    """
    return _ops.dynamic_talking_heads_attention(
        q,
        k,
        v,
        logits_proj,
        weights_proj,
        x,
        m,
        x2l,
        m2l,
        x2w,
        m2w,
        attn_mask,
        is_causal,
        scale,
        as_alpha(alpha, q),
        dropout_p,
        dropout_seed,
    )


def bilinear_attention(
    x: Tensor,
    m: Tensor,
    p: Tensor,
    p_out: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    alpha: Tensor | float | None = None,
    dropout_p: float = 0.0,
    dropout_seed: int | None = None,
) -> Tensor:
    """General bilinear multi-head attention (arXiv 2003.02436), of which layers of heads are the low-rank cases.

    L[h, t, s] = x_t^T p_h m_s; W = softmax or entmax of L + mask over the keys; the result is
    sum_h sum_s W[h, t, s] m_s^T p_out_h. It runs on `softmax_attention` and `entmax_attention`.

    Parameters
    ----------
    x : Tensor [B, T, dX]
    m : Tensor [B, S, dM]
    p : Tensor [H, dX, dM]
    p_out : Tensor [H, dM, dY]
    attn_mask, is_causal, dropout_p, dropout_seed
        As in `softmax_attention`.
    alpha : Tensor or float, optional
        As in `entmax_attention`. None: softmax.

    Returns
    -------
    Tensor [B, T, dY]
    """
    return _ops.bilinear_attention(
        x,
        m,
        p,
        p_out,
        attn_mask,
        is_causal,
        as_alpha(alpha, x),
        dropout_p,
        dropout_seed,
    )


def bilinear_from_talking_heads(
    wq: Tensor,
    wk: Tensor,
    wv: Tensor,
    wo: Tensor,
    logits_proj: Tensor | None = None,
    weights_proj: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Parameters of `bilinear_attention` that make it a given multi-head or talking-heads layer.

    The layer: queries x wq, keys m wk and values m wv, `talking_heads_attention` of these, and the sum over heads
    of its outputs times wo.

    Parameters
    ----------
    wq : Tensor [Hk, dX, D]
    wk : Tensor [Hk, dM, D]
    wv : Tensor [Hv, dM, Dv]
    wo : Tensor [Hv, Dv, dY]
    logits_proj : Tensor [Hk, H], optional
        None: the identity.
    weights_proj : Tensor [H, Hv], optional
        None: the identity. Without both: multi-head attention.
    scale : float, optional
        Of q k^T; default 1 / sqrt(D).

    Returns
    -------
    p : Tensor [H, dX, dM]
    p_out : Tensor [H, dM, dY]
    """
    return _ops.bilinear_from_talking_heads(wq, wk, wv, wo, logits_proj, weights_proj, scale)
