"""What torch asks of an operator, for every registered hedgerow:: operator."""

from __future__ import annotations

import copy
import warnings

import operator_table
import pytest
import torch
from torch.autograd import forward_ad

NAMES = operator_table.operator_names()
IN_PLACE = {"hedgehog_step_"}
BACKWARD = {name for name in NAMES if name.endswith("_backward")}
# What `_forward` helpers save for the backward is not a function that finite differences can check.
SAVING = {name for name in NAMES if name.endswith("_forward")}
PUBLIC = [n for n in NAMES if n not in IN_PLACE | BACKWARD | SAVING]
DIFFERENTIABLE = [n for n in PUBLIC if n != "greedy_positions"]  # that one gives indices


@pytest.mark.parametrize("name", NAMES)
def test_has_samples(name):
    assert operator_table.samples(name, torch.float64), "no row in tests/python/operator_table.py"


def _opcheck(name, sample, **options):
    torch.library.opcheck(operator_table.operator(name), sample.args, sample.kwargs, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(name, dtype):
    for sample in operator_table.samples(name, dtype)[: 8 if dtype == torch.float32 else 1]:
        _opcheck(name, sample if name in IN_PLACE | BACKWARD else sample.with_gradients())


@pytest.mark.parametrize("name", sorted(BACKWARD))
def test_opcheck_of_second_derivatives(name):
    """AOTAutograd traces no second derivatives, so its part of opcheck is left out here."""
    utilities = ("test_schema", "test_autograd_registration", "test_faketensor")
    for sample in operator_table.samples(name, torch.float32):
        _opcheck(name, sample.with_gradients(), test_utils=utilities)


def _as_function(name, sample):
    """The operator as a function of the sample's floating tensors, of results that carry gradients."""
    operator = operator_table.operator(name)
    keys = list(sample.kwargs)

    def function(*tensors):
        left = iter(tensors)
        take = lambda t: next(left) if operator_table._floating(t) else t  # noqa: E731
        args = [take(t) for t in sample.args]
        kwargs = {key: take(sample.kwargs[key]) for key in keys}
        result = operator(*args, **kwargs)
        if name == "hedgehog_attention_state":  # s and z count relative to m
            out, s, z, m = result
            result = out, s * m.exp().unsqueeze(-1), z * m.exp()
        results = result if isinstance(result, tuple) else (result,)
        return tuple(r for r in results if r.requires_grad) or results

    return function


def _inputs(name, sample):
    """Inputs for finite differences: not a mask with -inf, and not m, which carries no gradient."""
    inputs = [t.requires_grad_(bool(torch.isfinite(t).all())) for t in sample.tensors()]
    if name == "hedgehog_attention_state" and len(sample.args) > 5:
        inputs[-1].requires_grad_(False)
    return inputs


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_against_finite_differences(name):
    for sample in operator_table.samples(name, torch.float64):
        inputs = _inputs(name, sample)
        assert torch.autograd.gradcheck(_as_function(name, sample), inputs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_second_derivatives_against_finite_differences(name):
    for sample in operator_table.samples(name, torch.float64)[:2]:
        inputs = _inputs(name, sample)
        assert torch.autograd.gradgradcheck(
            _as_function(name, sample), inputs, atol=1e-6, rtol=1e-5, fast_mode=True
        )


def _dual(function, first, direction):
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(function(forward_ad.make_dual(first, direction))).tangent


def _functional(function, first, direction):
    return torch.func.jvp(function, (first,), (direction,))[1]


@pytest.mark.parametrize("forward_mode", [_dual, _functional])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_forward_mode_is_right_or_refused(name, forward_mode):
    sample = operator_table.samples(name, torch.float64)[0]
    first, *rest = [t.detach() for t in sample.tensors()]

    def function(x):
        return _as_function(name, sample)(x, *rest)[0]

    direction = torch.randn(
        first.shape, generator=torch.Generator().manual_seed(1), dtype=first.dtype
    )
    try:
        tangent = forward_mode(function, first, direction)
    except (RuntimeError, NotImplementedError) as error:
        assert "forward" in str(error).lower(), "refused for another reason"  # noqa: PT017
        return
    step = 1e-6 * direction
    want = (function(first + step) - function(first - step)) / 2e-6
    torch.testing.assert_close(tangent, want, atol=1e-6, rtol=1e-5)


def _run_and_differentiate(function, sample):
    sample = copy.deepcopy(sample).with_gradients()
    result = function(*sample.args, **sample.kwargs)
    results = result if isinstance(result, tuple) else (result,)
    terms = [r.float().square().sum() for r in results if r.requires_grad]
    if terms:
        sum(terms).backward()
    return [r.detach() for r in results], [t.grad for t in sample.tensors()]


def _agree(got, want):
    for a, b in zip(got, want, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, equal_nan=False)


@pytest.mark.parametrize("name", PUBLIC)
def test_compiles_whole(name):
    operator = operator_table.operator(name)
    for sample in operator_table.samples(name, torch.float32):
        torch._dynamo.reset()
        compiled = torch.compile(
            lambda *a, **k: operator(*a, **k), backend="aot_eager", fullgraph=True
        )
        want, want_gradients = _run_and_differentiate(operator, sample)
        got, got_gradients = _run_and_differentiate(compiled, sample)
        _agree(got, want)
        _agree(got_gradients, want_gradients)


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_in_place_operator_compiles_whole(name):
    torch._dynamo.reset()
    operator = operator_table.operator(name)
    (sample,) = operator_table.samples(name, torch.float32)
    compiled = torch.compile(lambda *a: operator(*a), backend="aot_eager", fullgraph=True)
    theirs = copy.deepcopy(sample)
    _agree([compiled(*theirs.args)], [operator(*sample.args)])
    _agree(theirs.tensors(), sample.tensors())


@pytest.mark.parametrize("name", PUBLIC)
def test_compiles_with_symbolic_sizes(name):
    torch._dynamo.reset()
    operator = operator_table.operator(name)
    sample = operator_table.samples(name, torch.float32)[0]
    compiled = torch.compile(
        lambda *a, **k: operator(*a, **k), backend="aot_eager", fullgraph=True, dynamic=True
    )
    want, want_gradients = _run_and_differentiate(operator, sample)
    got, got_gradients = _run_and_differentiate(compiled, sample)
    _agree(got, want)
    _agree(got_gradients, want_gradients)


@pytest.mark.parametrize(
    "name", [n for n in PUBLIC if n not in ("entropy", "kl_divergence", "js_divergence")]
)
def test_inductor(name, monkeypatch, tmp_path):
    # the cache on disk does not know when an operator's arguments change
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    operator = operator_table.operator(name)
    sample = operator_table.samples(name, torch.float32)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(lambda *a, **k: operator(*a, **k), fullgraph=True)
        got, got_gradients = _run_and_differentiate(compiled, sample)
    want, want_gradients = _run_and_differentiate(operator, sample)
    _agree(got, want)
    _agree(got_gradients, want_gradients)
