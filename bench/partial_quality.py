#!/usr/bin/env python3
"""Conversions with a budget of keys in one table: quality, retrieval, multiplications, time.

    partial_quality.py TEACHER RUN [RUN ...] --out DIR [--pairs FILE.tsv --columns 2,3 --texts 2000]

Each RUN is a folder that `hedgerow convert --to partial|selected-keys|linformer|window` wrote. A row
for each stage that a run measured: untrained, the mechanism's parameters alone, everything. With
--pairs, `hedgerow retrieve` says for the finished models how often a text finds its other version.
Writes DIR/quality.json and DIR/report.html (docs/RUN_FOLDER.md) and prints the table.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys

STAGES = {"before": "nothing", "after_distil": "reconstruction", "after": "everything"}
MEASURES = ("embedding_cosine", "nn_agreement", "top10_overlap")


def program() -> str:
    root = pathlib.Path(__file__).resolve().parent.parent
    return os.environ.get("HEDGEROW_PROGRAM", str(root / "build" / "release" / "bin" / "hedgerow"))


def read(path: pathlib.Path) -> dict:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as e:
        sys.exit(f"error: {path}: {e}")


def rows_of(run: pathlib.Path) -> list[dict]:
    """The stages of a run, the last one first."""
    summary = read(run / "summary.json")
    layers = read(run / "config.json").get("hedgerow", {}).get("layers", [])
    mixer = next((layer for layer in layers if "positions_per_query" in layer), None)
    if mixer is None:
        sys.exit(f"error: {run}: no layer has a budget of keys (positions_per_query)")
    rows = []
    # What trains at all: a stage that changed nothing is left out.
    for stage, trained in reversed(STAGES.items()):
        if stage not in summary or (rows and summary[stage] == summary["after"]):
            continue
        name = "nothing" if summary[stage] == summary.get("before") else trained
        rows.append(
            {
                "run": str(run),
                "kind": mixer["mixer"],
                "positions": mixer["positions_per_query"],
                "sharing": mixer.get("sharing"),
                "r": mixer.get("r"),
                "trained": name,
                **{key: summary[stage].get(key) for key in MEASURES},
                "retrieval": None,
                "cost": summary.get("multiplications"),
                "seconds": None,
            }
        )
    return rows


def add_retrieval(rows: list[dict], args: argparse.Namespace) -> None:
    """For the last stage of every run, which is the model in its folder."""
    last = {row["run"]: row for row in reversed(rows)}
    command = [program(), "retrieve", str(args.teacher), *last, "--pairs", str(args.pairs)]
    command += ["--columns", args.columns, "--texts", str(args.texts), "--threads", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr.strip())
    exact, *others = json.loads(done.stdout)["models"]
    for row, measured in zip(last.values(), others, strict=True):
        row["retrieval"] = {key: measured[key] for key in ("accuracy", "kept")}
        row["seconds"] = {"exact": exact["seconds"], "this": measured["seconds"]}


def print_table(rows: list[dict]) -> None:
    print("kind           P  sharing r        trained         cosine    nn  top-10  found   kept"
          "   scores core layer")  # fmt: skip
    for row in rows:
        found, cost = row["retrieval"] or {}, row["cost"] or {}
        figures = [*(row[key] for key in MEASURES), found.get("accuracy"), found.get("kept")]
        shares = [cost.get(key) for key in ("scores", "core", "layer")]
        text = " ".join("      -" if x is None else f"{x:7.3f}" for x in [*figures, *shares])
        print(
            f"{row['kind']:13} {row['positions']:2}  {row['sharing'] or '-':7} {row['r'] or '-':8}"
            f" {row['trained']:14} {text}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("teacher", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path, nargs="+")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--pairs", type=pathlib.Path)
    parser.add_argument("--columns", default="1,2")
    parser.add_argument("--texts", type=int, default=2000)
    args = parser.parse_args()
    rows = [row for run in args.runs for row in rows_of(run)]
    if args.pairs:
        add_retrieval(rows, args)
    lengths = {row["cost"]["length"] for row in rows if row["cost"]}
    if len(lengths) > 1:
        sys.exit(f"error: runs must be made for one length; got {sorted(lengths)}")
    args.out.mkdir(parents=True, exist_ok=True)
    quality = {"format": 1, "n": lengths.pop() if lengths else None, "teacher": args.teacher.name,
               "rows": rows, "command": " ".join(sys.argv)}  # fmt: skip
    (args.out / "quality.json").write_text(json.dumps(quality, indent=1) + "\n")
    subprocess.run([program(), "report", str(args.out)], check=True)
    print_table(rows)


if __name__ == "__main__":
    main()
