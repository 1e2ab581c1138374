"""greedy_positions and lmmse_reconstruction against brute force, least squares and closed forms."""

from __future__ import annotations

import pytest
import torch
from hedgerow import ops
from talking_heads_formula import assert_refused, random

f64 = torch.float64


def covariances(heads, n, rank=None, seed=0):
    x = random(heads, n, rank or n + 2, seed=seed)
    return x @ x.transpose(1, 2) / x.shape[2]


def residuals(c, positions):
    """tr(C - C[:, P] C[P, P]^-1 C[P, :]) of each head, positions [H, P]."""
    rows = c.gather(1, positions[:, :, None].expand(-1, -1, c.shape[2]))
    selected = rows.gather(2, positions[:, None].expand(-1, positions.shape[1], -1))
    explained = (rows * torch.linalg.solve(selected, rows)).sum((1, 2))
    return c.diagonal(0, 1, 2).sum(1) - explained


@pytest.mark.parametrize("n", [3, 5, 8])
def test_every_step_is_the_best_of_all(n):
    c = covariances(400, n, seed=n)
    chosen = ops.greedy_positions(c, n - 1)
    for step in range(n - 1):
        before = chosen[:, :step]
        left = torch.full((400, n), torch.inf, dtype=f64)
        for j in range(n):
            free = (before != j).all(1)
            candidate = torch.cat([before, torch.full((400, 1), j)], 1)
            left[free, j] = residuals(c[free], candidate[free])
        assert torch.equal(left.argmin(1), chosen[:, step])


def test_residual_is_that_of_least_squares():
    """On the data that the covariance is of, and by the elimination of the greedy choice."""
    data = random(200, 12, seed=1) @ random(12, 12, seed=2)
    c = data.T @ data / len(data)
    for count in (1, 4, 11, 12):
        positions = ops.greedy_positions(c, count)
        r = ops.lmmse_reconstruction(c, positions)
        residual = torch.trace(c - r @ c[positions]).item()
        error = (data - data[:, positions] @ r.T).square().sum(1).mean().item()
        best = torch.linalg.lstsq(data[:, positions], data).solution.T
        e = c.clone()
        for j in positions:
            e = e - torch.outer(e[:, j], e[j]) / e[j, j]
        floor = torch.linalg.eigvalsh(c)[: 12 - count].sum().item()
        assert abs(residual - error) < 1e-8 and abs(residual - torch.trace(e).item()) < 1e-8
        assert residual > floor - 1e-8
        torch.testing.assert_close(r, best, atol=1e-8, rtol=1e-8)


def test_scores_of_few_dimensions_are_exact():
    """Keys that stay the same give scores of rank D: D of them give all, and attention is exact."""
    q, k, v = random(2, 3, 9, 4), random(1, 3, 16, 4, seed=1), random(2, 3, 16, 5, seed=2)
    covariance = (k @ k.transpose(2, 3))[0]
    positions = ops.greedy_positions(covariance, 4)
    r = ops.lmmse_reconstruction(covariance, positions)
    k = k.expand(2, 3, 16, 4)
    got = ops.partial_attention(q, k, v, positions, r)
    torch.testing.assert_close(got, ops.softmax_attention(q, k, v), atol=1e-9, rtol=1e-9)
    assert_refused("greedy_positions", {"covariance": covariance, "count": 5}, ["rank 4"])


def test_ties_go_to_the_lowest():
    assert ops.greedy_positions(torch.eye(6, dtype=f64), 6).tolist() == list(range(6))
    even = torch.full((7, 7), 0.3, dtype=f64).fill_diagonal_(1.1)  # gains equal but for rounding
    assert ops.greedy_positions(even, 7).tolist() == list(range(7))


def test_heads_are_chosen_by_themselves():
    c = covariances(3, 9)
    positions = ops.greedy_positions(c, 4)
    r = ops.lmmse_reconstruction(c, positions)
    for h in range(3):
        assert torch.equal(ops.greedy_positions(c[h], 4), positions[h])
        torch.testing.assert_close(ops.lmmse_reconstruction(c[h], positions[h]), r[h])


def test_float32_is_computed_in_float64():
    c = covariances(2, 9).float()
    positions = ops.greedy_positions(c, 5)
    assert torch.equal(positions, ops.greedy_positions(c.double(), 5))
    r = ops.lmmse_reconstruction(c, positions)
    assert r.dtype == torch.float32
    assert torch.equal(r, ops.lmmse_reconstruction(c.double(), positions).float())


def test_ridge_is_added_to_the_selected():
    c, positions = covariances(1, 8, rank=3)[0], torch.tensor([5, 0, 2, 7])
    want = c[:, positions] @ torch.linalg.inv(
        c[positions][:, positions] + 0.2 * torch.eye(4, dtype=f64)
    )
    got = ops.lmmse_reconstruction(c, positions, 0.2)
    torch.testing.assert_close(got, want, atol=1e-10, rtol=1e-10)


def test_no_positions():
    c = covariances(2, 5)
    assert ops.greedy_positions(c, 0).shape == (2, 0)
    assert ops.lmmse_reconstruction(c, ops.greedy_positions(c, 0)).shape == (2, 5, 0)


_c = covariances(3, 5)

WRONG = [
    ("greedy_positions", {"covariance": _c[0], "count": 6}, ["[0, n]", "n = 5", "got 6"]),
    ("greedy_positions", {"covariance": _c[0], "count": -1}, ["got -1"]),
    ("greedy_positions", {"covariance": _c[0, :4], "count": 1}, ["[n, n]", "[4, 5]"]),
    ("greedy_positions", {"covariance": _c[0].long(), "count": 1}, ["float32", "int64"]),
    ("greedy_positions", {"covariance": _c * torch.nan, "count": 1}, ["finite", "NaN"]),
    ("greedy_positions", {"covariance": 0 * _c[0], "count": 1}, ["count 1", "rank 0"]),
    ("lmmse_reconstruction", {"covariance": _c[0], "positions": torch.tensor([1, 5])}, ["got 5"]),
    (
        "lmmse_reconstruction",
        {"covariance": _c[0], "positions": torch.tensor([1, 1])},
        ["distinct"],
    ),
    ("lmmse_reconstruction", {"covariance": _c, "positions": torch.tensor([1])}, ["[H, P]", "[1]"]),
    ("lmmse_reconstruction", {"covariance": _c[0], "positions": torch.tensor([1.0])}, ["int64"]),
    (
        "lmmse_reconstruction",
        {"covariance": covariances(2, 5, rank=2), "positions": torch.arange(3).expand(2, 3)},
        ["singular", "ridge 0"],
    ),
    (
        "lmmse_reconstruction",
        {"covariance": _c[0], "positions": torch.tensor([1]), "ridge": -0.1},
        ["ridge", "-0.1"],
    ),
]


@pytest.mark.parametrize("name, arguments, words", WRONG, ids=lambda x: str(x)[:30])
def test_wrong_arguments_are_named(name, arguments, words):
    assert_refused(name, arguments, words)
