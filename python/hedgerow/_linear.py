"""Linear attention. See `hedgerow.ops` for the rules common to all."""

from __future__ import annotations

import torch
from torch import Tensor

_ops = torch.ops.hedgerow


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
