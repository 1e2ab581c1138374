"""The operators, as functions.

Legend: B batch, T queries, S keys, H heads, Hkv key/value heads (Hkv divides H; head h reads key/value
head h // (H // Hkv)), D query/key width, Dv value width, E map width, F feature width.

Rules common to all: inputs have one dtype out of float32, bfloat16 and float64. What a mask excludes is
never read: NaN stored there changes nothing. A query that sees no key gives zeros and zero gradients.
Sizes of 0 work. Wrong arguments raise RuntimeError whose text is "op: rule; got values". Causality is
aligned bottom-right: query t sees keys s <= t + (S - T) (scaled_dot_product_attention aligns top-left).

Each operator is also torch.ops.hedgerow.<name>, works under torch.compile(fullgraph=True), and has second
derivatives.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import as_alpha

__all__ = [
    "attention_weights",
    "entmax",
    "entmax15",
    "entmax_attention",
    "entmax_loss",
    "entmax_topk",
    "entropy",
    "hedgehog_attention",
    "hedgehog_attention_state",
    "hedgehog_features",
    "hedgehog_step_",
    "js_divergence",
    "kl_divergence",
    "linear_attention",
    "linear_attention_state",
    "softmax_attention",
    "sparsemax",
]

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


def entmax(
    x: Tensor, alpha: Tensor | float, dim: int = -1, mask: Tensor | None = None
) -> Tensor:
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


def hedgehog_features(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, variant: str = "exp"
) -> Tensor:
    """Feature map phi of y = x W + b.

    Parameters
    ----------
    x : Tensor [B, H, S, D]
    weight : Tensor [H, D, E]
        Input-major: y_e = sum_d x_d W[d, e].
    bias : Tensor [H, E], optional
    variant : str
        "exp" [exp y, exp -y], "softmax" [softmax y, softmax -y], "softmax_joint" softmax over [2y, -2y]
        (F = 2E); "elu" 1 + ELU(y), "relu", "exp_half" exp(y), "performer" exp(y - |x|^2 / 2) / sqrt(E)
        (F = E); "taylor" [1, y, vec(y y^T) / sqrt 2] (F = 1 + E + E^2).

    Returns
    -------
    Tensor [B, H, S, F]
    """
    return _ops.hedgehog_features(x, weight, bias, variant)


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    key_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Linear attention: sum_s (phi_q_t . phi_k_s) v_s / sum_s (phi_q_t . phi_k_s).

    Time linear in T. A normaliser of exactly 0 gives zeros and zero gradients; there is no epsilon.

    Parameters
    ----------
    phi_q : Tensor [B, H, T, F]
    phi_k : Tensor [B, Hkv, S, F]
    v : Tensor [B, Hkv, S, Dv]
    key_mask : Tensor, boolean [B, S], optional
        True = keep.
    is_causal : bool
        Query t sees keys s <= t + (S - T).

    Returns
    -------
    Tensor [B, H, T, Dv]
    """
    return _ops.linear_attention(phi_q, phi_k, v, key_mask, is_causal)


def linear_attention_state(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    key_mask: Tensor | None = None,
    s: Tensor | None = None,
    z: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Causal linear attention that continues a state.

    One call over T tokens equals any split into calls that pass the state.

    Parameters
    ----------
    phi_q : Tensor [B, H, T, F]
    phi_k : Tensor [B, Hkv, T, F]
    v : Tensor [B, Hkv, T, Dv]
    key_mask : Tensor, boolean [B, T], optional
        Of this call's own keys.
    s : Tensor [B, Hkv, F, Dv], optional
        sum phi_k v^T of earlier keys; float32, float64 for float64 input. Both s and z, or neither.
    z : Tensor [B, Hkv, F], optional
        sum phi_k of earlier keys.

    Returns
    -------
    out : Tensor [B, H, T, Dv]
    s, z : Tensor
        The state after these keys; fresh tensors.
    """
    return _ops.linear_attention_state(phi_q, phi_k, v, key_mask, s, z)


def hedgehog_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    is_causal: bool = False,
) -> Tensor:
    """Linear attention over Hedgehog features of q and k (arXiv 2402.04347).

    For "exp" finite and equal to the formula at every finite input, in time linear in T. There is no
    1 / sqrt(D).

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    v : Tensor [B, Hkv, S, Dv]
    wq : Tensor [H, D, E]
    wk : Tensor [Hkv, D, E]
    bq : Tensor [H, E], optional
    bk : Tensor [Hkv, E], optional
    variant : str
        The map, see `hedgehog_features`.
    key_mask : Tensor, boolean [B, S], optional
        True = keep; a key is removed after the map.
    is_causal : bool
        Query t sees keys s <= t + (S - T).

    Returns
    -------
    Tensor [B, H, T, Dv]
    """
    return _ops.hedgehog_attention(q, k, v, wq, wk, bq, bk, variant, key_mask, is_causal)


def hedgehog_attention_state(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    s: Tensor | None = None,
    z: Tensor | None = None,
    m: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Causal `hedgehog_attention` that continues a state.

    Parameters
    ----------
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, T, D]
    v : Tensor [B, Hkv, T, Dv]
    wq, wk, bq, bk, variant
        As in `hedgehog_attention`.
    key_mask : Tensor, boolean [B, T], optional
        Of this call's own keys.
    s : Tensor [B, Hkv, F, Dv], optional
        float32, float64 for float64 input. Both s and z, or neither.
    z : Tensor [B, Hkv, F], optional
    m : Tensor [B, Hkv, F], optional
        Reference exponent of each feature of "exp": the true state is s * exp(m), z * exp(m). It carries no
        gradient. Zeros for other maps.

    Returns
    -------
    out : Tensor [B, H, T, Dv]
    s, z, m : Tensor
        The state after these keys; fresh tensors.
    """
    return _ops.hedgehog_attention_state(q, k, v, wq, wk, bq, bk, variant, key_mask, s, z, m)


def hedgehog_step_(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    wq: Tensor,
    wk: Tensor,
    bq: Tensor | None,
    bk: Tensor | None,
    variant: str,
    s: Tensor,
    z: Tensor,
    m: Tensor,
) -> Tensor:
    """One token of `hedgehog_attention_state`; the state is updated in place. Forward only.

    Parameters
    ----------
    q : Tensor [B, H, 1, D]
    k : Tensor [B, Hkv, 1, D]
    v : Tensor [B, Hkv, 1, Dv]
    wq, wk, bq, bk, variant
        As in `hedgehog_attention`.
    s, z, m : Tensor [B, Hkv, F, Dv], [B, Hkv, F], [B, Hkv, F]
        The state; zeros to start.

    Returns
    -------
    Tensor [B, H, 1, Dv]
    """
    return _ops.hedgehog_step_(q, k, v, wq, wk, bq, bk, variant, s, z, m)


def attention_weights(
    kind: str,
    q: Tensor,
    k: Tensor,
    *,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    wq: Tensor | None = None,
    wk: Tensor | None = None,
    bq: Tensor | None = None,
    bk: Tensor | None = None,
    variant: str = "exp",
    key_mask: Tensor | None = None,
    alpha: Tensor | float | None = None,
) -> Tensor:
    """The full weight tensor of a mechanism, differentiable; for small T.

    Parameters
    ----------
    kind : {"softmax", "entmax", "hedgehog"}
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    attn_mask, scale
        Of "softmax" and "entmax", as in `softmax_attention`.
    wq, wk, bq, bk, variant
        Of "hedgehog", as in `hedgehog_attention`.
    key_mask : Tensor, boolean [B, S], optional
    is_causal : bool
    alpha : Tensor or float, optional
        Of "entmax", as in `entmax_attention`.

    Returns
    -------
    Tensor [B, H, T, S]
        Rows without keys are zero.
    """
    return _ops.attention_weights(
        kind,
        q,
        k,
        attn_mask=attn_mask,
        is_causal=is_causal,
        scale=scale,
        wq=wq,
        wk=wk,
        bq=bq,
        bk=bk,
        variant=variant,
        key_mask=key_mask,
        alpha=None if alpha is None else as_alpha(alpha, q),
    )


def entropy(p: Tensor) -> Tensor:
    """Entropy -sum p log p over the last axis, natural logarithm; zero entries add nothing.

    Parameters
    ----------
    p : Tensor [..., N]

    Returns
    -------
    Tensor [...]
    """
    return _ops.entropy(p)


def kl_divergence(p: Tensor, q: Tensor) -> Tensor:
    """KL(p || q) = sum p log(p / q) over the last axis, natural logarithm.

    Entries where p is 0 add nothing; p > 0 where q = 0 gives infinity.

    Parameters
    ----------
    p, q : Tensor [..., N]

    Returns
    -------
    Tensor [...]
    """
    return _ops.kl_divergence(p, q)


def js_divergence(p: Tensor, q: Tensor) -> Tensor:
    """Jensen-Shannon divergence H((p + q) / 2) - (H(p) + H(q)) / 2 over the last axis, natural logarithm.

    Parameters
    ----------
    p, q : Tensor [..., N]

    Returns
    -------
    Tensor [...]
    """
    return _ops.js_divergence(p, q)
