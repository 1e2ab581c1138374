"""spectra.json and quality.json with invented figures, of any shape, for the tests of the report."""

from __future__ import annotations

import numpy as np

SHARES = ("0.9", "0.95", "0.99")
METHODS = ("greedy", "random", "even", "variance", "cholesky")


def needed(values: np.ndarray, share: float) -> int:
    """How many of the largest values hold the share of their sum."""
    return int(np.searchsorted(np.cumsum(values) / values.sum(), share) + 1)


def form(rng: np.random.Generator, layers: int, heads: int, n: int, decay: float) -> dict:
    sizes = [k for k in (2, 8, 16, 32) if k <= n]
    steep = decay * (1 + 0.5 * np.arange(layers) / max(1, layers - 1))
    values = np.exp(-np.arange(n)[None, :] * steep[:, None]) * 40 + 1e-4
    shared = np.sort(values.mean(axis=0) ** 0.8)[::-1]
    by_head = np.maximum(1, rng.integers(1, max(2, n // 2), (layers, heads)))
    distance = np.abs(np.arange(layers)[:, None] - np.arange(layers)[None, :])
    overlap = {str(k): (k / n + (1 - k / n) * np.exp(-0.5 * distance)).tolist() for k in sizes}
    return {
        "eigenvalues": values.tolist(),
        "shared_eigenvalues": shared.tolist(),
        "k": {share: [needed(row, float(share)) for row in values] for share in SHARES},
        "shared_k": {share: needed(shared, float(share)) for share in SHARES},
        "k_by_head": {share: (by_head + i).tolist() for i, share in enumerate(SHARES)},
        "overlap": overlap,
        "chance": {str(k): k / n for k in sizes},
        "explained": {k: (0.4 + 0.6 * np.array(rows)).tolist() for k, rows in overlap.items()},
    }


def selection(rng: np.random.Generator, n: int) -> dict:
    most = min(n, 32)
    chosen = {name: rng.permutation(n)[:most].tolist() for name in METHODS}
    chosen["even"] = np.linspace(0, n - 1, most).round().astype(int).tolist()
    left = {
        name: np.exp(-np.arange(most + 1) * rate).tolist()
        for name, rate in zip((*METHODS, "floor"), (0.12, 0.05, 0.07, 0.04, 0.1, 0.16))
    }
    return {"positions": chosen, "residual": left}


def fits(rng: np.random.Generator, layers: int, heads: int, sizes: list[int]) -> list[dict]:
    shapes = {"head": (layers, heads), "layer": (layers, 1), "shared": (1, 1)}
    return [
        {
            "positions": size,
            "sharing": sharing,
            "ridge": [[0.01] * shape[1]] * shape[0],
            "heldout_residual": (
                (0.8 + 0.2 * rng.random(shape)) * (0.5 + 0.2 * i) * 4 / size**0.8
            ).tolist(),
        }
        for size in sizes
        for i, (sharing, shape) in enumerate(shapes.items())
    ]


def cost(size: int, n: int) -> dict:
    share = size / n
    return {"scores": 0.3 + 2.6 * share, "core": 0.65 + 1.3 * share, "layer": 0.83 + 0.7 * share}


def matrix(rng: np.random.Generator, layers: int, n: int) -> dict:
    rank = min(64, 2 * n)
    values = np.exp(-np.arange(rank)[None, :] * (0.05 + 0.02 * np.arange(layers))[:, None]) * 9
    pairs = [rng.permutation(n * n)[: min(rank, n * n)] for _ in range(layers)]
    return {
        "samples": 512,
        "rank": rank,
        "eigenvalues": values.tolist(),
        "total": (values.sum(axis=1) * 1.15).tolist(),
        "pairs": [[[int(p) // n, int(p) % n] for p in row] for row in pairs],
        "residual": [(0.2 + 0.8 * np.exp(-np.arange(len(row) + 1) / 20)).tolist() for row in pairs],
    }


def spectra(layers: int = 3, heads: int = 5, n: int = 24, seed: int = 0) -> dict:
    rng = np.random.default_rng(seed)
    sizes = [k for k in (4, 8, 16, 32, 64) if k < n]
    other = [[*row, *row[:1]] for row in form(rng, layers, heads, n, 0.2)["overlap"]["8"]]
    return {
        "format": 1,
        "model": {
            "name": "MiniLM-L6",
            "architecture": "bert",
            "layers": layers,
            "heads": heads,
            "hidden": 32 * heads,
        },
        "data": {"file": "heldout.txt", "windows": 256, "tokens": 256 * n},
        "n": n,
        "forms": {
            "scores": form(rng, layers, heads, n, 0.14),
            "centred": form(rng, layers, heads, n, 0.11),
            "weights": form(rng, layers, heads, n, 0.05),
        },
        "against": {
            "model": {"name": "MiniLM-L7", "layers": layers + 1},
            "forms": {"scores": {"overlap": {"8": other}, "explained": {"8": other}}},
        },
        "selection": {
            "layers": [selection(rng, n) for _ in range(layers)],
            "shared": selection(rng, n),
        },
        "reconstruction": fits(rng, layers, heads, sizes),
        "queries": {
            "positions": sizes[-1],
            "common": (0.2 + 0.1 * rng.random(layers)).tolist(),
            "own": (0.1 + 0.1 * rng.random(layers)).tolist(),
        },
        "matrix": matrix(rng, layers, n),
        "cost": {str(size): cost(size, n) for size in sizes},
        "seconds": 12.3,
        "command": "hedgerow analyze minilm --what spectra --data heldout.txt --out spectra",
        "versions": {"hedgerow": "0.1.0"},
    }


def quality(sizes: tuple[int, ...] = (8, 16, 32, 64), n: int = 128) -> dict:
    rows = []
    for sharing, r, trained, start in (
        ("layer", "fixed", "nothing", 0.5),
        ("layer", "fixed", "reconstruction", 0.62),
        ("layer", "learned", "everything", 0.85),
        ("head", "learned", "everything", 0.88),
        (None, None, None, 0.3),
    ):
        kind = "partial" if trained else "window"
        for size in sizes:
            close = start + (1 - start) * (1 - np.exp(-size / 24))
            rows.append(
                {
                    "kind": kind,
                    "positions": size,
                    "sharing": sharing,
                    "r": r,
                    "trained": trained or "everything",
                    "embedding_cosine": close,
                    "nn_agreement": close**3,
                    "top10_overlap": close**2,
                    "retrieval": {"accuracy": 0.9 * close, "kept": close} if trained else None,
                    "cost": cost(size, n),
                    "seconds": {"exact": 1.2, "this": 0.7 + size / 90} if trained else None,
                }
            )
    rows.append({**rows[0], "kind": "linformer", "sharing": None, "r": None, "seconds": None})
    return {
        "format": 1,
        "n": n,
        "teacher": "MiniLM-L6",
        "rows": rows,
        "command": "python bench/quality.py",
        "versions": {"hedgerow": "0.1.0"},
    }
