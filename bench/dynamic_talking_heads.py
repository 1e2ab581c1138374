#!/usr/bin/env python3
"""What the dynamic terms of talking heads cost, as a multiple of the static kernel in the same run.

    dynamic_talking_heads.py [--length 512,1024] [--heads 12] [--head-dim 64] [--rounds 5] [--json]

Each of the four terms alone, and all; forward, and forward with gradients of everything. Results
are checked against plain formulas in float64 at a short length first. Times are medians; static and
dynamic calls take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time

import hedgerow
import torch

TERMS = ("x_logits", "m_logits", "x_weights", "m_weights")


def inputs(heads: int, length: int, dim: int, terms: tuple[str, ...], dtype=torch.float32) -> dict:
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64)  # noqa: E731
    x = {name: make(1, heads, length, dim) for name in ("q", "k", "v")}
    x |= {name: make(heads, heads) / heads**0.5 for name in ("logits_proj", "weights_proj")}
    x |= {name: 0.1 * make(1, length, heads, heads) for name in TERMS}
    return {n: t.to(dtype).requires_grad_() for n, t in x.items() if n not in TERMS or n in terms}


def formula(x: dict) -> torch.Tensor:
    """Per-pair projections, whole tensors."""
    scores = x["q"] @ x["k"].transpose(2, 3) / x["q"].shape[-1] ** 0.5

    def mix(a, static, of_query, of_key):
        out = torch.einsum("bats,ah->bhts", a, static)
        if of_query is not None:
            out = out + torch.einsum("bats,btah->bhts", a, of_query)
        if of_key is not None:
            out = out + torch.einsum("bats,bsah->bhts", a, of_key)
        return out

    logits = mix(scores, x["logits_proj"], x.get("x_logits"), x.get("m_logits"))
    weights = mix(logits.softmax(-1), x["weights_proj"], x.get("x_weights"), x.get("m_weights"))
    return weights @ x["v"]


def check(heads: int, dim: int, terms: tuple[str, ...]) -> None:
    x = inputs(heads, 70, dim, terms)
    with torch.no_grad():
        got = hedgerow.ops.talking_heads_attention(**x).double()
        want = formula({name: t.double() for name, t in x.items()})
    error = ((got - want).abs().max() / want.abs().max()).item()
    if not error < 1e-4:
        sys.exit(f"error: {'+'.join(terms) or 'static'}: differs from the formula by {error:.1e}")


def seconds(x: dict, train: bool) -> float:
    start = time.perf_counter()
    if train:
        hedgerow.ops.talking_heads_attention(**x).sum().backward()
    else:
        with torch.no_grad():
            hedgerow.ops.talking_heads_attention(**x)
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", default="512,1024")
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--head-dim", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for terms in [*((term,) for term in TERMS), TERMS]:
        check(args.heads, args.head_dim, terms)
        for length in map(int, args.length.split(",")):
            static = inputs(args.heads, length, args.head_dim, ())
            dynamic = inputs(args.heads, length, args.head_dim, terms)
            for train in (False, True):
                times = [
                    (seconds(static, train), seconds(dynamic, train))
                    for _ in range(args.rounds + 1)
                ]
                s, d = (statistics.median(t[i] for t in times[1:]) for i in (0, 1))
                name = "all four" if len(terms) == 4 else terms[0]
                step = "forward+backward" if train else "forward"
                rows.append({"terms": name, "T": length, "step": step, "static_ms": 1e3 * s,
                             "ms": 1e3 * d, "ratio": d / s})  # fmt: skip
                if not args.json:
                    print(f"{name:10} T {length:5} {step:17} {1e3 * s:9.1f} ms static"
                          f" {1e3 * d:9.1f} ms = {d / s:.2f}", flush=True)  # fmt: skip
    if args.json:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
