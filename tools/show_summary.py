#!/usr/bin/env python3
"""Print a conversion's summary.json as a table, and hold the result against what is wanted.

    show_summary.py SUMMARY.json [--preset demo|thorough]

The wanted figures are those of the demonstration: MiniLM-L6 to Hedgehog, seed 0, the first 2,000
held-out verses.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import sys

STAGES = (("before", "swapped"), ("after_distil", "distilled"), ("after", "recovered"))
MEASURES = (
    ("embedding_cosine", "embedding cosine"),
    ("nn_agreement", "same nearest neighbour"),
    ("top10_overlap", "top-10 overlap"),
)
WANTED = {
    "demo": {
        "embedding_cosine": 0.980,
        "nn_agreement": 0.72,
        "top10_overlap": 0.78,
        "kl": {"128": 0.22, "256": 0.35, "512": 0.48},
    },
    "thorough": {
        "embedding_cosine": 0.990,
        "nn_agreement": 0.82,
        "kl": {"128": 0.17, "256": 0.25, "512": 0.35},
    },
}


def cell(value: float | None) -> str:
    return "      -" if value is None else f"{value:7.4f}"


def rows(summary: dict, wanted: dict) -> list[str]:
    """One line per measure: its value after each stage, what is wanted, whether it is met."""
    lines = []
    stages = [summary.get(key) or {} for key, _ in STAGES]

    def line(label: str, values: list, goal: float | None, met: bool | None, sign: str) -> None:
        verdict = "" if goal is None else f"   {sign} {goal:.3f}  {'yes' if met else 'NO'}"
        lines.append(f"{label:26s}" + "".join(f"{cell(v):>12s}" for v in values) + verdict)

    for key, label in MEASURES:
        values = [stage.get(key) for stage in stages]
        goal = wanted.get(key)
        met = values[-1] is not None and goal is not None and values[-1] >= goal
        line(label, values, goal, met, ">=")
    lengths = sorted({length for stage in stages for length in stage.get("kl") or {}}, key=int)
    for length in lengths:
        values = [(stage.get("kl") or {}).get(length) for stage in stages]
        goal = wanted.get("kl", {}).get(length)
        # The divergence is judged after distillation, on the teacher's queries and keys.
        met = values[1] is not None and goal is not None and values[1] <= goal
        line(f"KL at {length} tokens", values, goal, met, "<=")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("summary", type=pathlib.Path)
    parser.add_argument("--preset", choices=sorted(WANTED), help="default: the summary's own")
    arguments = parser.parse_args()
    try:
        summary = json.loads(arguments.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"error: show_summary: {arguments.summary}: {error}", file=sys.stderr)
        return 2
    print(f"{'on held-out text':26s}" + "".join(f"{name:>12s}" for _, name in STAGES) + "   wanted")
    preset = arguments.preset or summary.get("preset", "demo")
    print("\n".join(rows(summary, WANTED.get(preset, {}))))
    seconds = summary.get("seconds")
    if isinstance(seconds, dict):  # by stage
        seconds = sum(seconds.values())
    if seconds is not None:
        print(f"seed {summary.get('seed', '?')}, {seconds / 60:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
