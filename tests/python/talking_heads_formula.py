"""The formula of talking heads in full, its inputs, and how tests compare with it."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops

TERMS = ("x_logits", "m_logits", "x_weights", "m_weights")


def random(*shape, seed=0, dtype=torch.float64, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(*shape, generator=generator, dtype=torch.float64) * scale).to(dtype)


def formula(
    q,
    k,
    v,
    logits_proj,
    weights_proj,
    attn_mask=None,
    is_causal=False,
    scale=None,
    alpha=None,
    x_logits=None,
    m_logits=None,
    x_weights=None,
    m_weights=None,
):
    """The definition with every tensor in full: projections [B, T, S, heads, heads] for each query and key."""
    Hk, T, S, Hv = q.shape[1], q.shape[2], k.shape[2], v.shape[1]

    def projection(static, of_queries, of_keys):
        full = static[None, None, None].expand(q.shape[0], T, S, *static.shape)
        full = full if of_queries is None else full + of_queries[:, :, None]
        return full if of_keys is None else full + of_keys[:, None]

    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = scale * q @ k.repeat_interleave(Hk // k.shape[1], 1).transpose(2, 3)
    if logits_proj is not None:
        full = projection(logits_proj, x_logits, m_logits)
        scores = torch.einsum("bats,btsah->bhts", scores, full)
    keep = torch.ones_like(scores, dtype=torch.bool)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        keep = keep & attn_mask
    elif attn_mask is not None:
        keep, scores = keep & (attn_mask != -torch.inf), scores + attn_mask.clamp_min(-1e30)
    if is_causal:
        keep = keep & torch.ones(T, S, dtype=torch.bool).tril(S - T)
    if alpha is None:
        weights = scores.masked_fill(~keep, -1e30).softmax(-1).masked_fill(~keep, 0)
    else:
        heads = alpha if alpha.dim() == 0 else alpha[:, None, None][None]
        weights = ops.entmax(scores, heads, mask=keep)
    if weights_proj is not None:
        full = projection(weights_proj, x_weights, m_weights)
        weights = torch.einsum("bhts,btshc->bcts", weights, full)
    return weights @ v.repeat_interleave(weights.shape[1] // Hv, 1)


# Hk, Hkk, H, Hv, Hvv
HEADS = (4, 2, 3, 6, 2)


def inputs_of(T=33, S=65, heads=HEADS, D=8, Dv=5, B=2) -> dict[str, torch.Tensor]:
    """q, k, v, both projections and all terms, as keyword arguments in float64."""
    Hk, Hkk, H, Hv, Hvv = heads
    return {
        "q": random(B, Hk, T, D, seed=1),
        "k": random(B, Hkk, S, D, seed=2),
        "v": random(B, Hvv, S, Dv, seed=3),
        "logits_proj": random(Hk, H, seed=4, scale=Hk**-0.5),
        "weights_proj": random(H, Hv, seed=5, scale=H**-0.5),
        "x_logits": random(B, T, Hk, H, seed=6, scale=0.3),
        "m_logits": random(B, S, Hk, H, seed=7, scale=0.3),
        "x_weights": random(B, T, H, Hv, seed=8, scale=0.3),
        "m_weights": random(B, S, H, Hv, seed=9, scale=0.3),
    }


def static_inputs(**sizes):
    return {name: t for name, t in inputs_of(**sizes).items() if name not in TERMS}


def with_terms(*terms, **sizes):
    return {name: t for name, t in inputs_of(**sizes).items() if name not in TERMS or name in terms}


def key_mask(S):
    return (random(2, 1, 1, S, seed=10) > -0.5).index_fill(3, torch.tensor(0), True)


ALPHAS = torch.tensor([1.1, 1.5, 1.9], dtype=torch.float64)


VARIANTS = {
    "both": lambda: static_inputs(),
    "both causal": lambda: static_inputs() | {"is_causal": True, "scale": 0.6},
    "causal, more queries": lambda: static_inputs(T=65, S=33) | {"is_causal": True},
    "logits only": lambda: static_inputs(heads=(4, 1, 6, 6, 3)) | {"weights_proj": None},
    "weights only": lambda: static_inputs(heads=(3, 3, 3, 6, 1)) | {"logits_proj": None},
    "neither": lambda: (
        static_inputs(heads=(4, 2, 4, 4, 1)) | {"logits_proj": None, "weights_proj": None}
    ),
    "keys masked": lambda: static_inputs() | {"attn_mask": key_mask(65)},
    "heads masked": lambda: static_inputs() | {"attn_mask": random(3, 33, 65, seed=11) > -0.5},
    "bias": lambda: static_inputs() | {"attn_mask": random(3, 33, 65, seed=12), "is_causal": True},
    "bias of keys": lambda: static_inputs() | {"attn_mask": random(2, 3, 1, 65, seed=13)},
    "entmax": lambda: static_inputs() | {"alpha": ALPHAS, "is_causal": True},
    "one alpha": lambda: static_inputs() | {"alpha": torch.tensor(1.5, dtype=torch.float64)},
    "dynamic": lambda: inputs_of() | {"attn_mask": key_mask(65)},
    "dynamic entmax causal": lambda: inputs_of() | {"alpha": ALPHAS, "is_causal": True},
    "of queries": lambda: with_terms("x_logits", "x_weights"),
    "of keys": lambda: with_terms("m_logits", "m_weights"),
    "of logits, one head": lambda: with_terms("x_logits", "m_logits", heads=(1, 1, 1, 1, 1)),
    "one query": lambda: inputs_of(T=1),
    "one key": lambda: inputs_of(S=1),
    "one of all": lambda: inputs_of(T=1, S=1, heads=(1, 1, 1, 1, 1), D=1, Dv=1),
    "odd heads": lambda: static_inputs(T=9, S=130, heads=(5, 5, 7, 3, 3), D=7, Dv=3),
    "many heads": lambda: static_inputs(T=20, S=70, heads=(24, 12, 24, 24, 24), D=4),
}


def floating(inputs):
    return [t for t in inputs.values() if torch.is_tensor(t) and t.is_floating_point()]


def check_gradients(operator, inputs):
    """First and second derivatives of all floating arguments against finite differences."""
    names = [name for name, t in inputs.items() if torch.is_tensor(t) and t.is_floating_point()]

    def attend(*tensors):
        return operator(**inputs | dict(zip(names, tensors, strict=True)))

    tensors = tuple(inputs[name] for name in names)
    options = {"atol": 1e-6, "rtol": 1e-5, "fast_mode": True}
    assert torch.autograd.gradcheck(attend, tensors, **options)
    assert torch.autograd.gradgradcheck(attend, tensors, **options)


def cast(inputs, dtype):
    """Copies of the inputs that require gradients, numbers in that dtype."""
    tensors = {name: t for name, t in inputs.items() if torch.is_tensor(t)}
    cast = {
        name: t.to(dtype, copy=True).requires_grad_() if t.is_floating_point() else t
        for name, t in tensors.items()
    }
    return inputs | cast


def run(function, inputs):
    """The result and the gradients of all floating inputs."""
    out = function(**inputs)
    direction = random(*out.shape, seed=20).to(out.dtype)
    return [out, *torch.autograd.grad((out * direction).sum(), floating(inputs))]


def assert_near(got, want, forward, backward):
    """Largest differences within these shares of the largest entries."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        limit = (forward if i == 0 else backward) * max(1.0, b.abs().max().item())
        assert a.shape == b.shape and (a.double() - b.double()).abs().max() <= limit, i


def assert_refused(name, arguments, words):
    with pytest.raises(RuntimeError) as caught:
        getattr(ops, name)(**arguments)
    text = str(caught.value).splitlines()[0]
    assert text.startswith(name + ": ") and "got" in text, text
    assert all(word in text for word in words), text
