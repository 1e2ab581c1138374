"""The operators of entmax as Python users meet them; operator_table.py has what torch asks of them."""

from __future__ import annotations

import hedgerow
import numpy
import pytest
import torch
from hedgerow import ops

ALPHAS = [1.0, 1.0 + 1e-7, 1.0001, 1.01, 1.25, 1.5, 1.9, 2.0, 2.3, 3.0, 10.0]


def _random(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def _row_by_bisection(z: numpy.ndarray, alpha: float) -> numpy.ndarray:
    """entmax of one row, solved in long double for the unknown that is well conditioned."""
    z, e = z.astype(numpy.longdouble), numpy.longdouble(alpha) - 1
    z = z - z.max()

    def root(f, low, high):  # f falls through 1
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if f(middle).sum() >= 1 else (low, middle)
        return f(low)

    if alpha <= 2:

        def by_lambda(at):
            w = z - at
            if e == 0:
                return numpy.exp(w)
            u = numpy.where(e * w > -1, e * w, 0)
            return numpy.where(e * w > -1, numpy.exp(numpy.log1p(u) / e), 0)

        return root(by_lambda, numpy.longdouble(0), numpy.log(numpy.longdouble(len(z))) + 1)
    for least in sorted(
        z
    ):  # the smallest supported score is the first whose weight is not negative
        above = z >= least

        def by_least(minus_p, above=above, least=least):
            d = numpy.where(above, e * (z - least), 0)
            return numpy.where(above, (d + (-minus_p) ** e) ** (1 / e), 0)

        if by_least(numpy.longdouble(0)).sum() < 1:
            return root(by_least, numpy.longdouble(-1), numpy.longdouble(0))
    raise AssertionError("no support")


def _truth(x: torch.Tensor, alpha: float) -> torch.Tensor:
    rows = [_row_by_bisection(row.double().numpy(), alpha) for row in x]
    return torch.tensor(numpy.stack(rows).astype(numpy.float64))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("alpha", ALPHAS)
def test_values_in_float32(alpha, scale, path):
    x = (_random(6, 77) * scale).float()
    p = ops.entmax(x, alpha)
    assert (p.double() - _truth(x, alpha)).abs().max() < 2e-6
    assert (p.sum(-1) - 1).abs().max() < 1e-6


def test_values_of_the_public_package():
    entmax = pytest.importorskip("entmax")
    x = _random(5, 40) * 2
    torch.testing.assert_close(ops.sparsemax(x), entmax.sparsemax(x), atol=1e-12, rtol=0)
    torch.testing.assert_close(ops.entmax15(x), entmax.entmax15(x), atol=1e-12, rtol=0)
    bisected = entmax.entmax_bisect(x, 1.3, n_iter=100)
    torch.testing.assert_close(ops.entmax(x, 1.3), bisected, atol=1e-10, rtol=0)
    target = torch.tensor([0, 39, 5, 7, 1])
    theirs = entmax.entmax15_loss(x, target)
    torch.testing.assert_close(ops.entmax_loss(x, target, 1.5), theirs, atol=1e-10, rtol=0)


def _gradients(x, alpha, g):
    x, alpha = x.clone().requires_grad_(), alpha.clone().requires_grad_()
    return torch.autograd.grad((ops.entmax(x, alpha) * g).sum(), (x, alpha))


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_in_float32(alpha, path):
    """Against float64 by the composite form, which finite differences check in test_ops_conformance.py."""
    alpha = torch.full((20, 1), alpha)
    x, g = _random(20, 50, dtype=torch.float32), _random(20, 50, seed=1, dtype=torch.float32)
    got = _gradients(x, alpha, g)
    hedgerow.set_path("composite_only")
    want = _gradients(x.double(), alpha.double(), g.double())
    for a, b in zip(got, want, strict=True):
        assert (a.double() - b).abs().max() < 1e-4 * b.abs().max()


def test_alpha_gradient_from_differences(path):
    for value in (1.00001, 1.3, 1.5, 2.0, 2.7, 6.0):
        x, g = _random(4, 15), _random(4, 15, seed=1)
        _, got = _gradients(x, torch.tensor(value, dtype=torch.float64), g)
        step = 1e-6
        up, down = (ops.entmax(x, value + sign * step) for sign in (1, -1))
        want = ((up - down) * g).sum() / (2 * step)
        torch.testing.assert_close(got, want, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_alpha_of_any_floating_type(dtype, path):
    x = _random(3, 9, dtype=torch.float32)
    alpha = torch.tensor(1.5, dtype=dtype, requires_grad=True)
    p = ops.entmax(x, alpha)
    torch.testing.assert_close(p, ops.entmax(x, 1.5))
    assert p.dtype == torch.float32
    p.square().sum().backward()
    assert alpha.grad.dtype == dtype and alpha.grad != 0
    q = _random(1, 2, 3, 4, dtype=torch.bfloat16)
    each = torch.full((2,), 1.5, dtype=dtype, requires_grad=True)
    out = ops.entmax_attention(q, q, q, each)
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert each.grad.dtype == dtype and each.grad.shape == (2,)


def test_monotone_in_each_score(path):
    for alpha in (1.0, 1.5, 2.0, 5.0, 10.0):
        swept = torch.linspace(-1, 1, 2001).unsqueeze(1)
        x = torch.cat([swept, torch.tensor([0.1, -0.2, 0.3]).expand(2001, 3)], 1)
        first = ops.entmax(x, alpha)[:, 0]
        assert (first.diff() >= -2e-7).all()


MASKS = {
    "none": lambda b, h, t, s: None,
    "keys": lambda b, h, t, s: (_random(b, 1, 1, s, seed=5) > -0.7).index_fill(
        3, torch.tensor(0), True
    ),
    "rows": lambda b, h, t, s: torch.arange(t).view(t, 1) != 1,
    "heads": lambda b, h, t, s: _random(h, t, s, seed=6) > -0.5,
    "bias": lambda b, h, t, s: _random(h, 1, s, seed=7),
    "bias with exclusions": lambda b, h, t, s: _random(t, s, seed=8).index_fill(
        1, torch.tensor([2]), -torch.inf
    ),
}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (4, 2), (3, 1)])
def test_gradcheck_of_attention(heads, mask, is_causal):
    H, Hkv = heads
    B, T, S, D, Dv = 2, 3, 5, 3, 2
    inputs = [_random(B, H, T, D), _random(B, Hkv, S, D, seed=1), _random(B, Hkv, S, Dv, seed=2)]
    inputs.append(torch.linspace(1.15, 2.2, H, dtype=torch.float64))
    attn_mask = MASKS[mask](B, H, T, S)
    for t in inputs:
        t.requires_grad_()
    if mask == "bias":
        inputs.append(attn_mask.requires_grad_())

    def attend(q, k, v, alpha, bias=None):
        return ops.entmax_attention(q, k, v, alpha, attn_mask if bias is None else bias, is_causal)

    assert torch.autograd.gradcheck(attend, inputs, atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(attend, inputs, atol=1e-6, rtol=1e-5, fast_mode=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradcheck_of_rows(dim):
    x = _random(3, 4, 5).requires_grad_()
    shape = [3, 4, 5]
    shape[dim] = 1
    alpha = (1.2 + _random(*shape, seed=1).abs()).requires_grad_()
    mask = _random(4, 1, seed=2) > -1
    for arguments in ((x, alpha, dim), (x, alpha, dim, mask)):
        assert torch.autograd.gradcheck(ops.entmax, arguments, atol=1e-6, rtol=1e-5)
        assert torch.autograd.gradgradcheck(ops.entmax, arguments, atol=1e-5, rtol=1e-5)


def test_gradcheck_of_loss():
    x = _random(3, 4, 5).requires_grad_()
    alpha = (1.2 + _random(3, 1, 1, seed=1).abs()).requires_grad_()
    target = torch.arange(12).view(3, 4) % 5
    target[1, 2] = -100

    def losses(x, alpha):
        return ops.entmax_loss(x, target, alpha)

    assert torch.autograd.gradcheck(losses, (x, alpha), atol=1e-6, rtol=1e-5)
    assert torch.autograd.gradgradcheck(losses, (x, alpha), atol=1e-5, rtol=1e-5)


def test_second_derivatives_at_softmax():
    """At alpha = 1 differences in alpha are one-sided: x alone, against torch's softmax."""
    x, g = _random(2, 6).requires_grad_(), _random(2, 6, seed=1)
    seconds = []
    for p in (ops.entmax(x, torch.ones((), dtype=torch.float64)), x.softmax(-1)):
        (first,) = torch.autograd.grad((p * g).sum(), x, create_graph=True)
        seconds.append(torch.autograd.grad(first.square().sum(), x)[0])
    torch.testing.assert_close(*seconds)


def test_masked_nan_changes_nothing(path):
    keep = torch.ones(2, 1, 1, 40, dtype=torch.bool)
    keep[..., 25:] = False

    def run(poison):
        q, k, v = (_random(2, 4, 40, 8, seed=s, dtype=torch.float32) for s in range(3))
        k[:, :, 25:], v[:, :, 25:] = (torch.nan, torch.inf) if poison else (0, 0)
        alpha = torch.tensor([1.0, 1.3, 1.5, 2.0])
        inputs = [t.requires_grad_() for t in (q, k, v, alpha)]
        out = ops.entmax_attention(*inputs, keep, is_causal=True)
        return out, torch.autograd.grad(out.square().sum(), inputs)

    torch.testing.assert_close(run(True), run(False))


def test_rows_without_keys_are_zero(path):
    q, k, v = (_random(2, 2, 5, 4, seed=s, dtype=torch.float32).requires_grad_() for s in range(3))
    keep = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    keep[0, :, 2] = False
    alpha = torch.tensor(1.5, requires_grad=True)
    out = ops.entmax_attention(q, k, v, alpha, keep)
    assert (out[0, :, 2] == 0).all()
    grads = torch.autograd.grad(out.square().sum(), (q, k, v, alpha))
    assert all(torch.isfinite(g).all() for g in grads) and (grads[0][0, :, 2] == 0).all()


@pytest.mark.parametrize("causal", [False, True])
def test_results_do_not_depend_on_threads(causal):
    inputs = [_random(2, 4, 130, 16, seed=s, dtype=torch.float32) for s in range(3)]
    inputs = [t.requires_grad_() for t in (*inputs, torch.tensor([1.0, 1.2, 1.5, 1.9]))]
    before, seen = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            out = ops.entmax_attention(*inputs, is_causal=causal)
            seen.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
    finally:
        torch.set_num_threads(before)
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


def test_bfloat16_is_float32_rounded(path):
    tensors = [_random(2, 4, 60, 16, seed=s).bfloat16().requires_grad_() for s in range(3)]
    wide = [t.detach().float().requires_grad_() for t in tensors]
    alpha = torch.tensor([1.0, 1.2, 1.5, 1.9])
    got, want = ops.entmax_attention(*tensors, alpha), ops.entmax_attention(*wide, alpha)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=1e-2, rtol=1e-2)
    got = torch.autograd.grad(got.float().sum(), tensors)
    for a, b in zip(got, torch.autograd.grad(want.sum(), wide), strict=True):
        scale = max(1.0, b.abs().max().item())
        torch.testing.assert_close(a.float(), b, atol=2e-2 * scale, rtol=2e-2)


@pytest.mark.parametrize("alpha", [1, 1.5, 2, torch.tensor(1.3), torch.tensor([1.2, 1.6])])
def test_attention_is_weights_times_values(alpha, path):
    q, k, v = (_random(2, 2, 9, 4, seed=s) for s in range(3))
    p = ops.attention_weights("entmax", q, k, alpha=alpha, is_causal=True)
    torch.testing.assert_close(p @ v, ops.entmax_attention(q, k, v, alpha, is_causal=True))
    assert (p.sum(-1) - 1).abs().max() < 1e-10


@pytest.mark.parametrize("alpha", [0.9, -0.3, float("nan"), float("inf"), torch.tensor(0.5)])
def test_bad_alphas_are_named(alpha, path):
    x = torch.zeros(1, 2, 3, 4)
    target = torch.zeros(1, 2, 3, dtype=torch.int64)
    calls = {
        "entmax": lambda: ops.entmax(x, alpha),
        "entmax_topk": lambda: ops.entmax_topk(x, alpha, 2),
        "entmax_loss": lambda: ops.entmax_loss(x, target, alpha),
        "entmax_attention": lambda: ops.entmax_attention(x, x, x, alpha),
        "attention_weights": lambda: ops.attention_weights("entmax", x, x, alpha=alpha),
    }
    value = str(float(alpha))
    for name, call in calls.items():
        with pytest.raises(RuntimeError) as caught:
            call()
        text = str(caught.value).splitlines()[0]
        assert text.startswith(name + ": alpha") and "at least 1" in text and value in text, text


def test_alpha_is_checked_when_compiled_code_runs():
    compiled = torch.compile(lambda x, a: ops.entmax(x, a) * 2, backend="aot_eager", fullgraph=True)
    x, alpha = _random(3, 5), torch.tensor(1.5, dtype=torch.float64, requires_grad=True)
    torch.testing.assert_close(compiled(x, alpha), ops.entmax(x, alpha) * 2)
    with torch.no_grad():
        alpha.fill_(0.5)
    with pytest.raises(RuntimeError, match="alpha must be finite and at least 1; got 0.5"):
        compiled(x, alpha)


def test_one_compiled_function_takes_every_length():
    """What is kept of a row changes its size with the number of keys, up to a constant."""
    torch._dynamo.reset()
    compiled = torch.compile(
        ops.entmax_attention, backend="aot_eager", fullgraph=True, dynamic=True
    )
    alpha = torch.tensor([1.2, 1.7], requires_grad=True)
    for keys in (20, 60, 150, 300):
        q, k, v = (_random(1, 2, keys, 8, seed=s, dtype=torch.float32) for s in range(3))
        inputs = [t.requires_grad_() for t in (q, k, v)] + [alpha]
        results = []
        for attend in (compiled, ops.entmax_attention):
            out = attend(*inputs)
            results.append([out, *torch.autograd.grad(out.square().sum(), inputs)])
        torch.testing.assert_close(*results)


def test_numbers_compile():
    q = _random(1, 2, 3, 4)
    for alpha in (1, 1.5):
        compiled = torch.compile(
            lambda q, alpha=alpha: ops.entmax_attention(q, q, q, alpha),
            backend="aot_eager",
            fullgraph=True,
        )
        torch.testing.assert_close(compiled(q), ops.entmax_attention(q, q, q, alpha))


def test_alpha_learns_which_head_is_sparse():
    """The target attends with alpha 1.2 and 1.9: 200 steps of AdamW find both."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(4, 2, 32, 16) for _ in range(3))
    goal = torch.tensor([1.2, 1.9])
    target = ops.entmax_attention(q, k, v, goal)
    raw = torch.zeros(2, requires_grad=True)
    optimiser = torch.optim.AdamW([raw], lr=0.05, weight_decay=0)
    for _ in range(200):
        loss = (ops.entmax_attention(q, k, v, 1 + raw.sigmoid()) - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert (1 + raw.detach().sigmoid() - goal).abs().max() < 0.02
