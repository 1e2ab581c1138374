"""Arguments as the operators take them."""

from __future__ import annotations

import torch
from torch import Tensor


def as_alpha(alpha: Tensor | float, like: Tensor) -> Tensor:
    """Numbers as 0-dim float64 tensors on the device of the inputs."""
    if isinstance(alpha, Tensor):
        return alpha
    return torch.full((), alpha, dtype=torch.float64, device=like.device)
