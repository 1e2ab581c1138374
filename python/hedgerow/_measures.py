"""What is measured of attention: weights, entropies and divergences. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

from ._arguments import as_alpha

_ops = torch.ops.hedgerow


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
    logits_proj: Tensor | None = None,
    weights_proj: Tensor | None = None,
    x_logits: Tensor | None = None,
    m_logits: Tensor | None = None,
    x_weights: Tensor | None = None,
    m_weights: Tensor | None = None,
    positions: Tensor | None = None,
    reconstruction: Tensor | None = None,
    mean: Tensor | None = None,
) -> Tensor:
    """The full weight tensor of a mechanism, differentiable; for small T.

    Parameters
    ----------
    kind : {"softmax", "entmax", "talking_heads", "partial", "hedgehog"}
    q : Tensor [B, H, T, D]
    k : Tensor [B, Hkv, S, D]
    attn_mask, scale
        Of all but "hedgehog", as in `softmax_attention`.
    wq, wk, bq, bk, variant
        Of "hedgehog", as in `hedgehog_attention`.
    key_mask : Tensor, boolean [B, S], optional
    is_causal : bool
    alpha : Tensor or float, optional
        Of "entmax" and, where wanted, "talking_heads" and "partial", as in `entmax_attention`.
    logits_proj, weights_proj, x_logits, m_logits, x_weights, m_weights
        Of "talking_heads", as in `talking_heads_attention`.
    positions, reconstruction, mean
        Of "partial", as in `partial_attention`.

    Returns
    -------
    Tensor [B, H, T, S]
        Rows without keys are zero. For "talking_heads" the mixed weights that multiply v, [B, Hv, T, S].
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
        alpha=as_alpha(alpha, q),
        logits_proj=logits_proj,
        weights_proj=weights_proj,
        x_logits=x_logits,
        m_logits=m_logits,
        x_weights=x_weights,
        m_weights=m_weights,
        positions=positions,
        reconstruction=reconstruction,
        mean=mean,
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
