"""Sample arguments for the operators of entmax, as (positional, keyword) arguments; see operator_table.py."""

from __future__ import annotations

import torch


def alphas(heads: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """One alpha per head, away from 1, where alpha cannot be stepped down."""
    return torch.linspace(1.1, 1.9, heads, dtype=torch.float64).to(dtype)


def _scalar(value: float, dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor(value, dtype=dtype)


def _loss_inputs(k: torch.Tensor, dtype: torch.dtype):
    x = k[:, 0].detach().clone()  # [B, S, D]: D classes
    target = torch.arange(x[..., 0].numel()).view(x.shape[:-1]) % x.shape[-1]
    target[0, 1] = -100
    return x, target, _scalar(1.4, dtype)


def samples(name, q, k, v, grad, key_mask, bias) -> list[tuple[tuple, dict]]:
    """Samples of one operator, [] for one of another method; all tensors of one dtype."""
    ops, dtype, heads = torch.ops.hedgerow, q.dtype, q.shape[1]
    by_head = alphas(heads).view(1, heads, 1, 1).to(dtype)
    mask = key_mask[:, None, None]
    if name == "entmax":
        x_mask = torch.tensor([True, False, True])
        return [
            ((q, _scalar(1.5, dtype)), {}),
            ((q, by_head), {"mask": x_mask}),
            ((q, _scalar(3.2, dtype), 1), {}),
            ((q, _scalar(1.0001, torch.float64)), {}),
        ]
    if name == "entmax_backward":
        p = ops.entmax(q, by_head)
        return [((k[:, :1, :3].expand_as(q).contiguous(), p, by_head, -1, True), {})]
    if name == "entmax_topk":
        return [((q, _scalar(1.3, dtype), 2), {}), ((q, by_head, 5), {})]
    if name in ("sparsemax", "entmax15"):
        return [((q,), {}), ((q, 2), {"mask": torch.tensor([True, True, False])})]
    if name == "entmax_loss":
        return [(_loss_inputs(k, dtype), {})]
    if name == "entmax_loss_forward":
        return [((*_loss_inputs(k, dtype), -100), {})]
    if name == "entmax_loss_backward":
        x, target, alpha = _loss_inputs(k, dtype)
        loss, dx, dalpha = ops.entmax_loss_forward(x, target, alpha, -100)
        return [((loss.cos(), x, target, alpha, dx, dalpha, -100), {})]
    if name == "entmax_attention":
        return [
            ((q, k, v, _scalar(1.5, dtype)), {}),
            ((q, k, v, alphas(heads, dtype)), {"attn_mask": mask, "is_causal": True, "scale": 0.7}),
            ((q, k, v, alphas(heads)), {"attn_mask": bias}),
            ((q, k, v, _scalar(1.2, dtype)), {"dropout_p": 0.3, "dropout_seed": 7}),
        ]
    if name == "entmax_attention_forward":
        return [((q, k, v, alphas(heads, dtype), bias, True, None, 0.0, None), {})]
    if name == "entmax_attention_backward":
        inputs = (q, k, v, alphas(heads, dtype))
        _, *saved = ops.entmax_attention_forward(*inputs, bias, True, None, 0.0, None)
        return [((grad, *inputs, *saved, bias, True, None, 0.0, None, True, True), {})]
    return []
