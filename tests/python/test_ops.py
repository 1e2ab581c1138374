"""The operators as Python users meet them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import hedgerow
import pytest
import torch
from hedgerow import ops

SOURCE = pathlib.Path(__file__).resolve().parents[2]
CASES = SOURCE.parent / "shared" / "cases"


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture
def any_path():
    yield
    hedgerow.set_path("automatic")


def _random(*shape, dtype=torch.float32, seed=0):
    return torch.randn(
        *shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).to(dtype)


def _attention_inputs(dtype=torch.float32, B=2, H=4, Hkv=2, T=65, S=67, D=16, Dv=8):
    q, k, v = (
        _random(B, H, T, D, seed=1),
        _random(B, Hkv, S, D, seed=2),
        _random(B, Hkv, S, Dv, seed=3),
    )
    return [t.to(dtype).requires_grad_() for t in (q, k, v)]


def _maps(dtype=torch.float32, H=4, Hkv=2, D=16, E=8):
    return [(_random(h, D, E, seed=4 + h) * 0.3).to(dtype).requires_grad_() for h in (H, Hkv)]


def test_softmax_attention_is_scaled_dot_product_attention():
    q, k, v = _attention_inputs(T=33, S=33)
    for causal in (False, True):
        want = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=True
        )
        got = ops.softmax_attention(q, k, v, is_causal=causal)
        torch.testing.assert_close(got, want)
        gradients = [torch.autograd.grad(out.square().sum(), (q, k, v)) for out in (got, want)]
        torch.testing.assert_close(*gradients)


def test_weights_times_values_is_attention():
    q, k, v = _attention_inputs()
    wq, wk = _maps()
    values = v.repeat_interleave(2, 1)
    for causal in (False, True):
        got = ops.attention_weights("softmax", q, k, is_causal=causal) @ values
        torch.testing.assert_close(got, ops.softmax_attention(q, k, v, is_causal=causal))
        got = ops.attention_weights("hedgehog", q, k, wq=wq, wk=wk, is_causal=causal) @ values
        torch.testing.assert_close(got, ops.hedgehog_attention(q, k, v, wq, wk, is_causal=causal))


def test_hedgehog_attention_is_linear_attention_of_features():
    q, k, v = _attention_inputs()
    wq, wk = _maps()
    for variant in ("exp", "softmax", "elu", "taylor"):
        features = (
            ops.hedgehog_features(q, wq, variant=variant),
            ops.hedgehog_features(k, wk, variant=variant),
        )
        want = ops.linear_attention(*features, v, is_causal=True)
        got = ops.hedgehog_attention(q, k, v, wq, wk, variant=variant, is_causal=True)
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", ["softmax_attention", "linear_attention", "hedgehog_attention"])
def test_results_do_not_depend_on_threads(name, causal, two_threads):
    q, k, v = _attention_inputs(T=130, S=130)
    extra = _maps() if name == "hedgehog_attention" else []
    if name == "linear_attention":
        q, k = q.detach().abs().requires_grad_(), k.detach().abs()[..., :16].requires_grad_()
    seen = []
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        out = getattr(ops, name)(q, k, v, *extra, is_causal=causal)
        seen.append([out, *torch.autograd.grad(out.square().sum(), [q, k, v, *extra])])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("name", ["softmax_attention", "linear_attention", "hedgehog_attention"])
def test_bfloat16_is_float32_rounded(name):
    tensors = [t.detach().bfloat16() for t in (*_attention_inputs(), *_maps())]
    if name == "linear_attention":
        tensors = [tensors[0].abs(), tensors[1].abs(), tensors[2]]
    elif name == "softmax_attention":
        tensors = tensors[:3]
    tensors = [t.requires_grad_() for t in tensors]
    wide = [t.detach().float().requires_grad_() for t in tensors]
    got, want = getattr(ops, name)(*tensors), getattr(ops, name)(*wide)
    assert got.dtype == torch.bfloat16
    torch.testing.assert_close(got.float(), want, atol=1e-2, rtol=1e-2)
    got_gradients = torch.autograd.grad(got.float().sum(), tensors)
    want_gradients = torch.autograd.grad(want.sum(), wide)
    for a, b in zip(got_gradients, want_gradients, strict=True):
        torch.testing.assert_close(
            a.float(), b, atol=2e-2 * max(1.0, b.abs().max().item()), rtol=2e-2
        )


def test_splits_of_a_sequence_agree():
    q, k, v = (t.detach() for t in _attention_inputs(T=40, S=40))
    wq, wk = (t.detach() for t in _maps())
    whole, s, z, m = ops.hedgehog_attention_state(q, k, v, wq, wk)
    state, parts, at = (None, None, None), [], 0
    for n in (1, 17, 22):
        part = slice(at, at + n)
        out, *state = ops.hedgehog_attention_state(
            q[:, :, part], k[:, :, part], v[:, :, part], wq, wk, None, None, "exp", None, *state
        )
        parts.append(out)
        at += n
    torch.testing.assert_close(torch.cat(parts, 2), whole)
    torch.testing.assert_close(state[0] * state[2].exp()[..., None], s * m.exp()[..., None])
    torch.testing.assert_close(whole, ops.hedgehog_attention(q, k, v, wq, wk, is_causal=True))
    step = [torch.zeros(2, 2, 16, 8), torch.zeros(2, 2, 16), torch.zeros(2, 2, 16)]
    for t in range(40):
        at = slice(t, t + 1)
        out = ops.hedgehog_step_(
            q[:, :, at], k[:, :, at], v[:, :, at], wq, wk, None, None, "exp", *step
        )
        torch.testing.assert_close(out, whole[:, :, at])
    torch.testing.assert_close(step[0] * step[2].exp()[..., None], s * m.exp()[..., None])


def test_masked_nan_changes_nothing():
    wq, wk = _maps()
    mask = torch.ones(2, 67, dtype=torch.bool)
    mask[:, 40:] = False

    def run(poison):
        q, k, v = (t.detach() for t in _attention_inputs())
        k[:, :, 40:], v[:, :, 40:] = (torch.nan, torch.nan) if poison else (0, 0)
        q, k, v = (t.requires_grad_() for t in (q, k, v))
        outs = [
            ops.softmax_attention(q, k, v, mask[:, None, None]),
            ops.hedgehog_attention(q, k, v, wq, wk, key_mask=mask),
            ops.hedgehog_attention(
                q, k, v, wq, wk, key_mask=mask, variant="softmax", is_causal=True
            ),
        ]
        return outs, torch.autograd.grad(sum(o.square().sum() for o in outs), (q, k, v, wq, wk))

    for path in ("fast_only", "composite_only"):
        hedgerow.set_path(path)
        try:
            torch.testing.assert_close(run(True), run(False))
        finally:
            hedgerow.set_path("automatic")


WRONG = [
    ("softmax_attention", {"q": torch.zeros(2, 3)}, ["q", "4 dimensions", "[2, 3]"]),
    (
        "softmax_attention",
        {"q": torch.zeros(1, 3, 4, 8)},
        ["multiple", "[1, 3, 4, 8]", "[1, 2, 5, 8]"],
    ),
    (
        "softmax_attention",
        {"q": torch.zeros(1, 4, 4, 6)},
        ["width", "[1, 4, 4, 6]", "[1, 2, 5, 8]"],
    ),
    ("softmax_attention", {"v": torch.zeros(1, 2, 6, 8)}, ["keys", "[1, 2, 5, 8]", "[1, 2, 6, 8]"]),
    ("softmax_attention", {"v": torch.zeros(1, 2, 5, 8).double()}, ["dtype", "float64", "float32"]),
    ("softmax_attention", {"q": torch.zeros(1, 4, 4, 8).int()}, ["float32", "int32"]),
    ("softmax_attention", {"attn_mask": torch.ones(4, 5).long()}, ["attn_mask", "int64"]),
    (
        "softmax_attention",
        {"attn_mask": torch.ones(4, 6).bool()},
        ["attn_mask", "[4, 6]", "[1, 4, 4, 5]"],
    ),
    ("softmax_attention", {"scale": float("nan")}, ["scale", "nan"]),
    ("softmax_attention", {"dropout_p": 1.0, "dropout_seed": 1}, ["dropout_p", "[0, 1)", "1"]),
    ("softmax_attention", {"dropout_p": -0.5, "dropout_seed": 1}, ["dropout_p", "-0.5"]),
    ("softmax_attention", {"dropout_p": 0.5}, ["dropout_seed", "0.5"]),
    ("linear_attention", {"key_mask": torch.ones(1, 4).bool()}, ["key_mask", "[1, 4]", "[1, 5]"]),
    ("linear_attention", {"key_mask": torch.ones(1, 5)}, ["key_mask", "boolean", "float32"]),
    ("linear_attention_state", {"s": torch.zeros(1, 2, 8, 8)}, ["both or neither", "s"]),
    ("linear_attention_state", {}, ["length", "[1, 4, 4, 8]", "[1, 2, 5, 8]"]),
    ("hedgehog_attention", {"variant": "cosine"}, ["variant", "softmax_joint", "cosine"]),
    ("hedgehog_attention", {"wk": torch.zeros(4, 8, 3)}, ["wk", "[4, 8, 3]", "[1, 2, 5, 8]"]),
    ("hedgehog_attention", {"wk": torch.zeros(2, 8, 4)}, ["width E", "[4, 8, 3]", "[2, 8, 4]"]),
    ("hedgehog_attention", {"bq": torch.zeros(3)}, ["bq", "[H, E]", "[3]"]),
    (
        "hedgehog_features",
        {"weight": torch.zeros(4, 7, 3)},
        ["weight", "[4, 7, 3]", "[1, 4, 4, 8]"],
    ),
    ("attention_weights", {"kind": "cosine"}, ["kind", "cosine"]),
    ("attention_weights", {"kind": "hedgehog"}, ["needs wq and wk"]),
    ("attention_weights", {"kind": "softmax", "wq": torch.zeros(4, 8, 3)}, ["wq"]),
]


@pytest.mark.parametrize("name, wrong, words", WRONG)
def test_wrong_arguments_are_named(name, wrong, words):
    q, k, v = torch.zeros(1, 4, 4, 8), torch.zeros(1, 2, 5, 8), torch.zeros(1, 2, 5, 8)
    right = {
        "softmax_attention": {"q": q, "k": k, "v": v},
        "linear_attention": {"phi_q": q, "phi_k": k, "v": v},
        "linear_attention_state": {"phi_q": q, "phi_k": k, "v": v},
        "hedgehog_features": {"x": q, "weight": torch.zeros(4, 8, 3)},
        "hedgehog_attention": {
            "q": q,
            "k": k,
            "v": v,
            "wq": torch.zeros(4, 8, 3),
            "wk": torch.zeros(2, 8, 3),
        },
        "attention_weights": {"q": q, "k": k},
    }[name]
    for device in ("cpu", "meta"):
        arguments = {
            key: t.to(device) if torch.is_tensor(t) else t for key, t in {**right, **wrong}.items()
        }
        with pytest.raises(RuntimeError) as caught:
            getattr(ops, name)(**arguments)
        text = str(caught.value).splitlines()[0]
        assert text.startswith(name + ": ") and "got" in text
        assert all(word in text for word in words), text


def test_step_refuses_gradients():
    q, k, v = (t[:, :, :1] for t in _attention_inputs())
    wq, wk = _maps()
    state = [torch.zeros(2, 2, 16, 8), torch.zeros(2, 2, 16), torch.zeros(2, 2, 16)]
    with pytest.raises(RuntimeError, match="hedgehog_step_: works in place"):
        ops.hedgehog_step_(q, k, v, wq, wk, None, None, "exp", *state)
    with torch.no_grad():
        ops.hedgehog_step_(q, k, v, wq, wk, None, None, "exp", *state)


def test_inference_mode():
    with torch.inference_mode():
        q, k, v = (t.detach() for t in _attention_inputs())
        wq, wk = (t.detach() for t in _maps())
        out = ops.softmax_attention(q.clone(), k.clone(), v.clone())
        assert out.isfinite().all()
        assert ops.hedgehog_attention(q, k, v, wq, wk, is_causal=True).isfinite().all()


def test_paths(any_path):
    assert hedgerow.get_path() == "automatic"
    hedgerow.set_path("composite_only")
    assert hedgerow.get_path() == "composite_only"
    with pytest.raises(ValueError, match="automatic, fast_only, composite_only; got 'quick'"):
        hedgerow.set_path("quick")


def _python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE / "python"), **environment},
    )


def test_the_program_runs_in_process():
    shown = _python("-m", "hedgerow", "--version")
    assert shown.returncode == 0 and hedgerow.version() in shown.stdout
    wrong = _python("-m", "hedgerow", "no-such-command")
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: ")
    assert len(wrong.stderr.splitlines()) == 1


def test_missing_library_is_named(tmp_path):
    shown = _python("-c", "import hedgerow", HEDGEROW_LIBRARY=str(tmp_path / "nothing.so"))
    assert "nothing.so" in shown.stderr.splitlines()[-1]


def test_another_torch_is_refused_by_name(tmp_path):
    library = pathlib.Path(hedgerow._library._candidates()[0])
    library = next(p for p in hedgerow._library._candidates() if p.exists())
    (tmp_path / library.name).symlink_to(library)
    (tmp_path / "torch_version.txt").write_text("1.2.3\n")
    shown = _python("-c", "import hedgerow", HEDGEROW_LIBRARY=str(tmp_path / library.name))
    last = shown.stderr.splitlines()[-1]
    assert (
        last.startswith("ImportError: hedgerow: was built against torch 1.2.3")
        and torch.__version__.split("+")[0] in last
    )


@pytest.mark.skipif(not CASES.exists(), reason=f"no cases at {CASES}")
def test_handed_cases():
    shown = _python(str(CASES / "check_python.py"), str(CASES / "handed"), "--existing")
    assert shown.returncode == 0, shown.stdout
