"""Sample arguments for every hedgerow:: operator; test_ops_conformance.py fails for one without a row."""

from __future__ import annotations

import dataclasses

import entmax_table
import partial_table
import talking_heads_table
import torch

B, H, HKV, T, S, D, DV, E = 2, 4, 2, 3, 4, 3, 2, 2


def _random(shape, dtype, seed, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


@dataclasses.dataclass
class Sample:
    """Positional and keyword arguments of one call."""

    args: tuple
    kwargs: dict = dataclasses.field(default_factory=dict)

    def with_gradients(self) -> Sample:
        """The same with gradients asked for all floating tensors."""
        on = lambda t: t.requires_grad_(True) if _floating(t) else t  # noqa: E731
        return Sample(tuple(map(on, self.args)), {k: on(v) for k, v in self.kwargs.items()})

    def tensors(self) -> list[torch.Tensor]:
        """All floating tensors."""
        return [t for t in (*self.args, *self.kwargs.values()) if _floating(t)]


def _floating(t) -> bool:
    return isinstance(t, torch.Tensor) and t.is_floating_point()


def _state_dtype(dtype):
    return torch.float64 if dtype == torch.float64 else torch.float32


def _qkv(dtype, keys=S):
    return (
        _random((B, H, T, D), dtype, 1),
        _random((B, HKV, keys, D), dtype, 2),
        _random((B, HKV, keys, DV), dtype, 3),
    )


def _features(dtype, keys=S):
    q, k, v = _qkv(dtype, keys)
    return q.abs() + 0.1, k.abs() + 0.1, v


def _maps(dtype):
    return (
        _random((H, D, E), dtype, 4, 0.5),
        _random((HKV, D, E), dtype, 5, 0.5),
        _random((H, E), dtype, 6, 0.3),
        _random((HKV, E), dtype, 7, 0.3),
    )


def _state(dtype, width):
    dtype = _state_dtype(dtype)
    return (
        _random((B, HKV, width, DV), dtype, 8),
        _random((B, HKV, width), dtype, 9).abs() + 0.5,
        _random((B, HKV, width), dtype, 10),
    )


def _key_mask():
    mask = torch.ones(B, S, dtype=torch.bool)
    mask[0, 1] = False
    mask[1] = False
    return mask


def _bias(dtype):
    bias = _random((H, T, S), dtype, 11)
    bias[0, 1] = -torch.inf
    bias[:, :, 2] = -torch.inf
    return bias


def samples(name: str, dtype: torch.dtype) -> list[Sample]:
    """Samples of one operator, without gradients."""
    ops = torch.ops.hedgerow
    q, k, v = _qkv(dtype)
    fq, fk, fv = _features(dtype)
    wq, wk, bq, bk = _maps(dtype)
    own_q, own_k, own_v = _qkv(dtype, T)
    grad = _random((B, H, T, DV), dtype, 12)
    if name == "softmax_attention":
        mask = _key_mask()[:, None, None]
        return [
            Sample((q, k, v)),
            Sample((q, k, v), {"attn_mask": mask, "is_causal": True, "scale": 0.7}),
            Sample((q, k, v), {"attn_mask": _bias(dtype)}),
            Sample((q, k, v), {"dropout_p": 0.3, "dropout_seed": 7}),
        ]
    if name == "softmax_attention_forward":
        return [Sample((q, k, v, _bias(dtype), True, None, 0.0, None))]
    if name == "softmax_attention_backward":
        bias = _bias(dtype)
        out, lse = ops.softmax_attention_forward(q, k, v, bias, True, None, 0.0, None)
        return [Sample((grad, q, k, v, out, lse, bias, True, None, 0.0, None, True))]
    if name == "hedgehog_features":
        return [Sample((q, wq, bq, variant)) for variant in VARIANTS]
    if name == "hedgehog_features_backward":
        return [
            Sample((_random((B, H, T, 2 * E), dtype, 13), q, wq, bq, variant))
            for variant in VARIANTS[:3]
        ]
    if name == "linear_attention":
        return [Sample((fq, fk, fv)), Sample((fq, fk, fv, _key_mask(), True))]
    if name == "linear_attention_state":
        s, z, _ = _state(dtype, D)
        fq, fk, fv = _features(dtype, T)
        return [Sample((fq, fk, fv)), Sample((fq, fk, fv, None, s, z))]
    if name == "linear_attention_forward":
        s, z, _ = _state(dtype, D)
        return [
            Sample((fq, fk, fv, None, True, s, z, True)),
            Sample((fq, fk, fv, _key_mask(), False, None, None, False)),
        ]
    if name == "linear_attention_backward":
        s, z, _ = _state(dtype, D)
        out, inv_den, _, _ = ops.linear_attention_forward(fq, fk, fv, None, True, s, z, True)
        return [Sample((grad, s * 0.5, z * 0.5, fq, fk, fv, out, inv_den, None, True, s, z))]
    if name == "hedgehog_attention":
        full = [
            Sample((q, k, v, wq, wk, None, None, variant, _key_mask(), False))
            for variant in VARIANTS
        ]
        return full + [
            Sample((q, k, v, wq, wk, bq, bk, variant, None, True)) for variant in VARIANTS[:4]
        ]
    if name == "hedgehog_attention_state":
        return [
            Sample((own_q, own_k, own_v, wq, wk)),
            Sample((own_q, own_k, own_v, wq, wk, bq, bk, "exp", None, *_state(dtype, 2 * E))),
        ]
    if name == "hedgehog_step_":
        one = [t[:, :, :1].contiguous() for t in (q, k, v)]
        return [Sample((*one, wq, wk, bq, bk, "exp", *_state(dtype, 2 * E)))]
    if name == "hedgehog_attention_forward":
        return [Sample((q, k, v, wq, wk, bq, bk, "exp", None, True, *_state(dtype, 2 * E), True))]
    if name == "hedgehog_attention_backward":
        s, z, m = _state(dtype, 2 * E)
        result = ops.hedgehog_attention_forward(
            q, k, v, wq, wk, bq, bk, "exp", None, True, s, z, m, True
        )
        out, inv_den, exponent, *state_out = result
        saved = (out, inv_den, exponent, *state_out)
        return [
            Sample(
                (
                    grad,
                    s * 0.5,
                    z * 0.5,
                    q,
                    k,
                    v,
                    wq,
                    wk,
                    bq,
                    bk,
                    "exp",
                    *saved,
                    None,
                    True,
                    s,
                    z,
                    m,
                )
            )
        ]
    if name == "attention_weights":
        maps = {"wq": wq, "wk": wk, "bq": bq, "bk": bk}
        return [
            Sample(("softmax", q, k), {"attn_mask": _bias(dtype), "is_causal": True}),
            Sample(("entmax", q, k), {"attn_mask": _bias(dtype), "alpha": entmax_table.alphas(H)}),
            Sample(("hedgehog", q, k), maps | {"is_causal": True}),
            Sample(("hedgehog", q, k), maps | {"variant": "relu", "key_mask": _key_mask()}),
            *(
                Sample(*row)
                for table in (talking_heads_table, partial_table)
                for row in table.weights_samples(q, k, _key_mask(), _bias(dtype))
            ),
        ]
    p, r = _random((2, 3, 5), dtype, 14).softmax(-1), _random((2, 3, 5), dtype, 15).softmax(-1)
    if name == "entropy":
        return [Sample((p,))]
    if name in ("kl_divergence", "js_divergence"):
        return [Sample((p, r))]
    rows = entmax_table.samples(name, q, k, v, grad, _key_mask(), _bias(dtype))
    for table in (talking_heads_table, partial_table):
        rows += table.samples(name, q, k, v, _key_mask(), _bias(dtype))
    return [Sample(*row) for row in rows]


VARIANTS = ["exp", "softmax", "softmax_joint", "elu", "relu", "taylor", "exp_half", "performer"]


def operator_names() -> list[str]:
    """Every registered hedgerow:: operator, without the namespace."""
    import hedgerow  # noqa: F401  (registers them)

    everything = torch._C._dispatch_get_all_op_names()
    return sorted(name.split("::")[1] for name in everything if name.startswith("hedgerow::"))


def operator(name: str):
    """Its default overload."""
    return getattr(torch.ops.hedgerow, name).default
