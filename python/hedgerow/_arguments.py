"""Arguments as the operators take them."""

from __future__ import annotations

import torch
from torch import Tensor


def as_alpha(alpha: Tensor | float | None, like: Tensor) -> Tensor | None:
    """Numbers as 0-dim float64 tensors on the device of the inputs; None stays None."""
    if alpha is None or isinstance(alpha, Tensor):
        return alpha
    return torch.full((), alpha, dtype=torch.float64, device=like.device)
