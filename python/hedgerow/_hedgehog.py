"""Hedgehog: feature maps and the linear attention over them. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.hedgerow


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
