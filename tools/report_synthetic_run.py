"""Write a synthetic run folder (docs/RUN_FOLDER.md) to look at or test the report page.

    python tools/report_synthetic_run.py OUT [--layers 6] [--heads 12] [--long] [--seed 0] [--analysis]

Figures are invented from a seed; nothing here measures anything.
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import pathlib

import numpy as np

SENTENCES = [
    "In the beginning, God created the heavens and the earth.",
    "The Lord is my shepherd: I shall lack nothing.",
    'A token may hold </script><script>document.title="broken"</script> & "quotes".',
    "\u05d1\u05b0\u05bc\u05e8\u05b5\u05d0\u05e9\u05b4\u05c1\u05d9\u05ea and \u4e2d\u6587 and \U0001f33f, na\u00efvely.",
]


def encode_maps(weights: np.ndarray) -> str:
    """Base64 of weights in [0, 1], quantised as round(255 sqrt(w)), in the order of the array."""
    return base64.b64encode(np.rint(255 * np.sqrt(weights)).astype(np.uint8).tobytes()).decode()


def attention(
    rng: np.random.Generator, layers: int, heads: int, size: int, blur: float
) -> np.ndarray:
    """Rows of softmax weights [layers, heads, size, size] with patterns like those of real heads."""
    place = np.arange(size)
    out = np.empty((layers, heads, size, size), np.float32)
    for layer in range(layers):
        for head in range(heads):
            offset, width = (head + layer) % 5 - 2, 0.6 + head % 4
            scores = -np.abs(place[None, :] - place[:, None] - offset) / width
            scores[:, 0] += (head % 3) * 1.5
            if head % 4 == 3:
                scores = rng.normal(size=(size, size)) * 1.6
            scores = (scores + rng.normal(size=(size, size)) * 0.3) * (1 - blur)
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[layer, head] = weights / weights.sum(axis=1, keepdims=True)
    return out


def sentence_maps(rng: np.random.Generator, text: str, layers: int, heads: int) -> dict:
    tokens = ["[CLS]"]
    for word in text.split():
        tokens += [word[:7]] + (["##" + word[7:]] if len(word) > 7 else [])
    tokens.append("[SEP]")
    teacher = attention(rng, layers, heads, len(tokens), 0.0)
    model = 0.85 * teacher + 0.15 * attention(rng, layers, heads, len(tokens), 0.5)
    return {
        "text": text,
        "tokens": tokens,
        "size": len(tokens),
        "bin": 1,
        "teacher": encode_maps(teacher),
        "model": encode_maps(model),
    }


def long_maps(
    rng: np.random.Generator, layers: int, heads: int, num_tokens: int = 4096, size: int = 512
) -> dict:
    tokens = ["[CLS]"] + [f"w{i}" for i in range(1, num_tokens - 1)] + ["[SEP]"]
    place = np.arange(size, dtype=np.float32)
    distance = np.abs(place[None, :] - place[:, None])
    maps = []
    for sharp in (1.0, 0.6):
        rows = [
            np.maximum(
                np.exp(-distance * sharp / (1 + 3 * head)), rng.random((size, size)) ** 8 * 0.3
            ).astype(np.float32)
            for head in range(heads)
        ]
        maps.append(encode_maps(np.broadcast_to(np.stack(rows), (layers, heads, size, size))))
    return {
        "text": " ".join(tokens[1:400]) + " ...",
        "tokens": tokens,
        "size": size,
        "bin": num_tokens // size,
        "teacher": maps[0],
        "model": maps[1],
    }


def metrics_lines(rng: np.random.Generator, steps: int) -> list[dict]:
    lines = []
    for stage, start, end, rate in (("distil", 3.4, 1.9, 3e-2), ("recover", 0.09, 0.011, 2e-4)):
        for step in range(1, steps + 1):
            share = step / steps
            loss = end + (start - end) * math.exp(-6 * share)
            warm = min(1.0, step / (0.05 * steps))
            lines.append(
                {
                    "step": step,
                    "stage": stage,
                    "split": "train",
                    "loss": loss * math.exp(rng.normal() * 0.05),
                    "lr": rate * warm * 0.5 * (1 + math.cos(math.pi * share)),
                    "grad_norm": 0.5 + rng.random(),
                    "tokens_per_s": 9000 + rng.normal() * 300,
                    "peak_bytes": 1_200_000_000,
                    "time_s": step * 0.4,
                }
            )
            if step % max(1, steps // 10) == 0:
                lines.append(
                    {"step": step, "stage": stage, "split": "heldout", "loss": loss * 1.04}
                )
    return lines


def head_value_lines(rng: np.random.Generator, layers: int, heads: int, steps: int) -> list[dict]:
    """Alphas that part from 1.02, first alone, then with the other weights; layers differ."""
    goal = np.clip(
        1.15 + 0.6 * rng.random((layers, 1)) + rng.normal(0, 0.12, (layers, heads)), 1.01, 1.95
    )
    lines = []
    for stage, start, end in (("distil", 0.0, 0.75), ("recover", 0.75, 1.0)):
        for step in range(0 if stage == "distil" else 1, steps + 1):
            share = start + (end - start) * step / steps
            alpha = (
                1.02
                + (goal - 1.02) * (1 - math.exp(-4 * share))
                + 0.01 * np.sin(9 * share + 7 * goal)
            )
            lines.append(
                {"stage": stage, "step": step, "head_values": {"alpha": alpha.round(6).tolist()}}
            )
    return lines


def bench_rows(rng: np.random.Generator) -> list[dict]:
    rows = []
    for mask, factor in (("dense", 1.0), ("causal", 0.55)):
        for step, cost in (("forward", 1.0), ("forward+backward", 3.4)):
            for length in (64, 128, 256, 512, 1024, 2048, 4096):
                sdpa = factor * cost * 6e-6 * length**2 * (1 + 60 / length)
                times = {"sdpa": sdpa, "softmax": 0.42 * sdpa, "hedgehog": cost * 0.0011 * length}
                for method, ms in times.items():
                    ms *= math.exp(rng.normal() * 0.03)
                    memory = {
                        "sdpa": 3072 * length * 4,
                        "softmax": 3100 * length,
                        "hedgehog": 400_000 + 3072 * length,
                    }[method]
                    rows.append(
                        {
                            "method": method,
                            "mask": mask,
                            "step": step,
                            "T": length,
                            "ms": ms,
                            "ratio": ms / sdpa,
                            "peak_bytes": memory,
                            "error": 1e-7 * (1 + rng.random()),
                        }
                    )
    return rows


def analysis(rng: np.random.Generator, layers: int, heads: int, num_examples: int = 5) -> dict:
    before = np.abs(rng.normal(1.4, 0.5, (layers, heads)))
    after_distil = before * (0.1 + 0.1 * rng.random((layers, heads)))
    after = after_distil * (0.9 + 0.5 * rng.random((layers, heads)))
    entropy = 0.4 + 3 * rng.random((layers, heads))
    edges = np.linspace(0.3, 1.0, 36)
    counts = {
        name: np.histogram(np.clip(1 - np.abs(rng.normal(0, spread, 2000)) - shift, 0.3, 1), edges)[
            0
        ].tolist()
        for name, spread, shift in (
            ("before", 0.1, 0.32),
            ("after_distil", 0.025, 0.015),
            ("after", 0.012, 0.006),
        )
    }
    verses = [f"Verse {i}: {SENTENCES[i % len(SENTENCES)]}" for i in range(40)]
    examples = []
    for i in range(num_examples):
        teacher = [verses[(7 * i + k) % 40] for k in range(5)]
        examples.append(
            {
                "query": verses[(11 * i + 3) % 40],
                "teacher": teacher,
                "model": [
                    teacher[1],
                    teacher[0],
                    teacher[2],
                    verses[(5 * i + 30) % 40],
                    teacher[3],
                ],
            }
        )
    return {
        "kl": {
            "length": 128,
            "before": before.tolist(),
            "after_distil": after_distil.tolist(),
            "after": after.tolist(),
        },
        "entropy": {
            "teacher": entropy.tolist(),
            "model": (entropy + 0.2 * rng.normal(size=entropy.shape) + 0.1).clip(0.05).tolist(),
        },
        "embedding": {
            "cosine_histogram": {"edges": edges.tolist(), **counts},
            "neighbour_examples": examples,
        },
    }


def head_matrices(
    rng: np.random.Generator, layers: int, key_heads: int, heads: int, value_heads: int
) -> dict:
    """What analysis.json says of heads that are mixed: near the identity, with some strong exchanges."""
    matrices, figures = {}, {}
    for name, rows, columns in (
        ("logits_proj", key_heads, heads),
        ("weights_proj", heads, value_heads),
    ):
        mixing = np.eye(rows, columns) + rng.normal(0, 0.06, (layers, rows, columns)) * (
            rng.random((layers, rows, columns)) < 0.5
        )
        mixing += rng.normal(0, 0.4, mixing.shape) * (rng.random(mixing.shape) < 0.03)
        spread = np.linalg.svd(mixing, compute_uv=False)
        spread /= spread.sum(-1, keepdims=True)
        distance = np.linalg.norm(mixing - np.eye(rows, columns), axis=(1, 2)) / math.sqrt(rows)
        matrices[name] = mixing.tolist()
        figures[name] = {
            "effective_rank": np.exp(-(spread * np.log(spread)).sum(-1)).tolist(),
            "identity_distance": distance.tolist() if rows == columns else [None] * layers,
        }
    return {"head_matrices": matrices, "head_mixing": figures}


def summary(layers: int, heads: int) -> dict:
    return {
        "format": 1,
        "kind": "hedgehog",
        "map": "exp",
        "model": {
            "name": "MiniLM-L6",
            "architecture": "BertModel",
            "layers": layers,
            "heads": heads,
            "hidden": 32 * heads,
        },
        "before": {
            "embedding_cosine": 0.412,
            "nn_agreement": 0.061,
            "top10_overlap": 0.093,
            "kl": {"128": 1.434, "256": 1.61, "512": 1.82},
        },
        "after_distil": {
            "embedding_cosine": 0.968,
            "nn_agreement": 0.619,
            "top10_overlap": 0.701,
            "kl": {"128": 0.204, "256": 0.31, "512": 0.44},
        },
        "after": {
            "embedding_cosine": 0.984,
            "nn_agreement": 0.735,
            "top10_overlap": 0.791,
            "kl": {"128": 0.231, "256": 0.33, "512": 0.46},
        },
        "seconds": {"distil": 212.4, "recover": 301.9, "verify": 64.2, "analyse": 22.8},
        "seed": 0,
        "command": "hedgerow convert model --to hedgehog --data train.txt --heldout heldout.txt --out demo/minilm-hedgehog",
        "versions": {
            "hedgerow": "0.1.0",
            "libtorch": "2.13.0",
            "compiler": "g++ 12.2.0",
            "highway": "1.0.3",
        },
    }


def sparse(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows without their weak weights; each head has a threshold of its own."""
    threshold = rng.uniform(0.005, 0.12, (*weights.shape[:2], 1, 1))
    kept = np.maximum(0, weights - np.minimum(threshold, 0.9 * weights.max(-1, keepdims=True)))
    return kept / kept.sum(-1, keepdims=True)


def head_figures(
    layers: int, heads: int, texts: list[np.ndarray], reach: int, rng: np.random.Generator
) -> dict:
    """The tables of heads.json from the weights [layers, heads, T, T] of some texts."""

    def entropy(p):
        return -np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0).sum(-1) / np.log(p.shape[-1])

    density = np.stack([(w > 0).mean((2, 3)) for w in texts])
    edges = np.linspace(0, 1, 21)
    offsets = list(range(-reach, reach + 1))
    at_offset = [np.mean([np.diagonal(w, o, 2, 3).mean(-1) for w in texts], 0) for o in offsets]
    merging = np.clip(density.mean(0) * rng.uniform(0.2, 1.6, (layers, heads)), 0, 1)
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    positional = []
    for layer, head in places:
        best = max(
            (o for o in offsets if o != 0), key=lambda o: at_offset[offsets.index(o)][layer, head]
        )
        positional.append(
            {
                "layer": layer,
                "head": head,
                "offset": best,
                "weight": at_offset[offsets.index(best)][layer, head],
            }
        )
    joining = [
        {"layer": layer, "head": head, "weight": merging[layer, head]} for layer, head in places
    ]
    alpha = np.clip(2.1 - density.mean(0) + rng.normal(0, 0.05, (layers, heads)), 1.01, 1.99)
    return {
        "density": density.mean(0).tolist(),
        "density_histogram": {
            "edges": edges.tolist(),
            "counts": [
                np.histogram(density[:, layer], edges)[0].tolist() for layer in range(layers)
            ],
        },
        "entropy": np.mean([entropy(w).mean(-1) for w in texts], 0).tolist(),
        "diversity": np.mean(
            [(entropy(w.mean(1)) - entropy(w).mean(1)).mean(-1) for w in texts], 0
        ).tolist(),
        "uniform_weight": float(np.mean([1 / w.shape[-1] for w in texts])),
        "offsets": offsets,
        "at_offset": [table.tolist() for table in at_offset],
        "positional_heads": sorted(positional, key=lambda head: -head["weight"]),
        "subword_merging": merging.tolist(),
        "subword_merging_heads": sorted(joining, key=lambda head: -head["weight"]),
        "head_values": {"alpha": alpha.tolist()},
    }


def json_lines(lines: list[dict]) -> str:
    return "".join(json.dumps(line) + "\n" for line in lines)


def write_analysis(
    out: pathlib.Path, layers: int = 6, heads: int = 12, seed: int = 0, skip: tuple[str, ...] = ()
) -> pathlib.Path:
    """Write the folder of an analysis: heads.json, maps.json with zeros, and head_values.jsonl."""
    rng = np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)
    sentences, weights = [], []
    for text in SENTENCES:
        sentence = sentence_maps(rng, text, layers, heads)
        del sentence["teacher"]
        weights.append(sparse(attention(rng, layers, heads, sentence["size"], 0.0), rng))
        steps = np.rint(255 * np.sqrt(weights[-1])).astype(np.uint8)
        steps[(weights[-1] > 0) & (steps == 0)] = 1
        sentences.append({**sentence, "model": base64.b64encode(steps.tobytes()).decode()})
    figures = {
        "format": 1,
        "model": {
            "name": "MiniLM-L6, entmax",
            "architecture": "bert",
            "layers": layers,
            "heads": heads,
            "hidden": 32 * heads,
            "mixers": [{"mixer": "entmax", "alpha": "learned"}] * layers,
        },
        "data": {
            "file": "heldout.txt",
            "texts": len(weights),
            "tokens": sum(w.shape[-1] for w in weights),
            "length": 256,
            "subword_groups": 9,
        },
        **head_figures(layers, heads, weights, 5, rng),
        "seconds": 12.5,
        "command": "hedgerow analyze minilm-entmax --data heldout.txt --out heads",
        "versions": {"hedgerow": "0.1.0", "torch": "2.13.0"},
    }
    files = {
        "heads.json": json.dumps(figures),
        "maps.json": json.dumps(
            {
                "scale": "sqrt",
                "sides": ["model"],
                "zeros": "exact",
                "heads": [heads] * layers,
                "sentences": sentences,
            }
        ),
        "head_values.jsonl": json_lines(head_value_lines(rng, layers, heads, 100)),
    }
    for name, text in files.items():
        if name not in skip:
            (out / name).write_text(text, encoding="utf-8")
    return out


def write_run(
    out: pathlib.Path,
    layers: int = 6,
    heads: int = 12,
    seed: int = 0,
    steps: int = 300,
    long: bool = False,
    skip: tuple[str, ...] = (),
) -> pathlib.Path:
    """Write all files of a run folder but those named in `skip`; returns the folder."""
    rng = np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)
    sentences = [sentence_maps(rng, text, layers, heads) for text in SENTENCES]
    if long:
        sentences.append(long_maps(rng, layers, heads))
    files = {
        "summary.json": json.dumps(summary(layers, heads), indent=1),
        "metrics.jsonl": json_lines(metrics_lines(rng, steps)),
        "analysis.json": json.dumps(analysis(rng, layers, heads)),
        "maps.json": json.dumps({"scale": "sqrt", "sentences": sentences}),
        "bench.json": json.dumps(
            {
                "rows": bench_rows(rng),
                "machine": {"cpu": "A CPU with AVX-512", "threads": 1, "simd": "avx3"},
            }
        ),
        "head_values.jsonl": json_lines(head_value_lines(rng, layers, heads, min(steps, 100))),
    }
    for name, text in files.items():
        if name not in skip:
            (out / name).write_text(text, encoding="utf-8")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument(
        "--long", action="store_true", help="add a text of 4,096 tokens in 512 bins"
    )
    parser.add_argument(
        "--analysis", action="store_true", help="the folder of an analysis of heads instead"
    )
    arguments = parser.parse_args()
    if arguments.analysis:
        print(write_analysis(arguments.out, arguments.layers, arguments.heads, arguments.seed))
        return
    print(
        write_run(
            arguments.out,
            arguments.layers,
            arguments.heads,
            arguments.seed,
            arguments.steps,
            arguments.long,
        )
    )


if __name__ == "__main__":
    main()
