"""Converting a tiny random BERT to talking heads, and to fewer heads."""

import json

import pytest
import torch
from program import forward, refused, run_ok
from test_convert import arguments as hedgehog_arguments
from test_convert import summary, tiny, weights  # noqa: F401  (tiny is a fixture)

HEADS, WIDTH = 4, 8


def arguments(tiny, out, *more):  # noqa: F811
    command = hedgehog_arguments(tiny, out, *more)
    command[command.index("--to") + 1] = "talking-heads"
    return command


UNTRAINED = ["--distil-steps", "0", "--recover-steps", "0"]


def test_starts_as_the_teacher(tiny, tmp_path):  # noqa: F811
    out = tiny / "heads_start"
    run_ok(*arguments(tiny, out, *UNTRAINED, "--set", "dynamic=all"))
    inputs = {
        "input_ids": [[1, 5, 7, 9, 2], [1, 8, 2, 0, 0]],
        "attention_mask": [[1] * 5, [1, 1, 1, 0, 0]],
    }
    ours = forward(out, tmp_path, inputs)["last_hidden_state"]
    theirs = forward(tiny / "model", tmp_path, inputs)["last_hidden_state"]
    keep = torch.tensor(inputs["attention_mask"]).bool()
    assert (ours - theirs)[keep].abs().max() < 1e-5
    exact = ["--dtype", "float64"]
    ours = forward(out, tmp_path, inputs, *exact)["last_hidden_state"]
    theirs = forward(tiny / "model", tmp_path, inputs, *exact)["last_hidden_state"]
    assert (ours - theirs)[keep].abs().max() < 1e-12
    assert summary(out)["before"]["embedding_cosine"] == pytest.approx(1, abs=1e-6)


def test_projections_train_alone_first(tiny):  # noqa: F811
    out = tiny / "heads_alone"
    run_ok(*arguments(tiny, out, "--recover-steps", "0", "--key-heads", "3"))
    ours = weights(out)
    again = tiny / "heads_alone_start"
    run_ok(*arguments(tiny, again, *UNTRAINED, "--key-heads", "3"))
    start = weights(again)
    moved = {name for name, value in ours.items() if not torch.equal(value, start[name])}
    assert moved == {name for name in ours if ".hedgerow." in name}
    assert len(moved) == 4, "two projections in each of two layers"


def test_fewer_heads(tiny):  # noqa: F811
    out = tiny / "heads_fewer"
    run_ok(*arguments(tiny, out, "--key-heads", "2", "--value-heads", "3"))
    teacher, ours = weights(tiny / "model"), weights(out)
    for layer in range(2):
        at = f"encoder.layer.{layer}.attention"
        assert ours[f"{at}.self.query.weight"].shape == (2 * WIDTH, HEADS * WIDTH)
        assert ours[f"{at}.self.key.bias"].shape == (2 * WIDTH,)
        assert ours[f"{at}.self.value.weight"].shape == (3 * WIDTH, HEADS * WIDTH)
        assert ours[f"{at}.output.dense.weight"].shape == (HEADS * WIDTH, 3 * WIDTH)
        assert ours[f"{at}.hedgerow.logits_proj"].shape == (2, HEADS)
        assert ours[f"{at}.hedgerow.weights_proj"].shape == (HEADS, 3)
    assert sum(t.numel() for t in ours.values()) < sum(t.numel() for t in teacher.values())
    result = summary(out)
    assert result["after"]["embedding_cosine"] > result["before"]["embedding_cosine"]
    info = json.loads(run_ok("info", out, "--json"))
    assert all(layer["key_heads"] == 2 and layer["value_heads"] == 3 for layer in info["layers"])
    compared = run_ok(
        "compare",
        tiny / "model",
        out,
        "--data",
        tiny / "text.txt",
        "--lengths",
        "64",
        "--json",
        "--quiet",
    )
    assert json.loads(compared)["embedding_cosine"] == pytest.approx(
        result["after"]["embedding_cosine"], abs=0.2
    )
    for kind in ("softmax", "entmax", "hedgehog", "talking-heads"):
        again = arguments(tiny, tiny / "heads_again")
        again[1], again[again.index("--to") + 1] = out, kind
        assert "2/4/3" in refused(*again), (
            "a mechanism takes the place of layers with one head count"
        )
    run_ok(
        "analyze",
        out,
        "--data",
        tiny / "text.txt",
        "--texts",
        "5",
        "--out",
        tiny / "heads_page",
        "--quiet",
    )


def test_the_analysis_shows_what_heads_exchange(tiny):  # noqa: F811
    out = tiny / "heads_shown"
    run_ok(*arguments(tiny, out, "--key-heads", "3"))
    analysis, ours = json.loads((out / "analysis.json").read_text()), weights(out)
    assert (
        set(analysis["head_matrices"])
        == set(analysis["head_mixing"])
        == {"logits_proj", "weights_proj"}
    )
    for name, layers in analysis["head_matrices"].items():
        figures = analysis["head_mixing"][name]
        for i, rows in enumerate(layers):
            matrix = ours[f"encoder.layer.{i}.attention.hedgerow.{name}"].double()
            assert torch.equal(torch.tensor(rows, dtype=torch.float64), matrix)
            p = torch.linalg.svdvals(matrix)
            p /= p.sum()
            assert figures["effective_rank"][i] == pytest.approx(
                (-(p * p.log()).sum()).exp().item()
            )
            if name == "logits_proj":
                assert figures["identity_distance"][i] is None, "3 by 4"
            else:
                assert figures["identity_distance"][i] == pytest.approx(
                    (matrix - torch.eye(HEADS)).norm().item() / HEADS**0.5
                )


def test_pruned_heads_have_no_divergence_to_report(tiny):  # noqa: F811
    out = tiny / "heads_pruned"
    run_ok(
        *arguments(tiny, out, "--set", "heads=2", "--set", "logits=false", "--set", "weights=false")
    )
    assert not [name for name in weights(out) if ".hedgerow." in name]
    assert "head_matrices" not in json.loads((out / "analysis.json").read_text())
    result = summary(out)
    assert result["after"]["kl"] == {}
    assert result["after"]["embedding_cosine"] > result["before"]["embedding_cosine"]
    assert (out / "report.html").stat().st_size > 10000


def test_with_learned_alpha(tiny):  # noqa: F811
    out = tiny / "heads_entmax"
    run_ok(*arguments(tiny, out, "--alpha", "learned"))
    names = {name.rsplit(".", 1)[1] for name in weights(out) if ".hedgerow." in name}
    assert names == {"alpha_raw", "logits_proj", "weights_proj"}
    alphas = [a for layer in summary(out)["heads"]["alpha"] for a in layer]
    assert len(alphas) == 2 * HEADS and all(1 < a < 2 for a in alphas)


@pytest.mark.parametrize(
    "more,word",
    [
        (["--key-heads", "5"], "[1, 4]"),
        (["--key-heads", "2", "--set", "logits=false"], "logits' projection"),
        (["--set", "dynamic=z_logits"], "z_logits"),
        (["--alpha", "0.9"], "0.9"),
        (["--set", "head=2"], "key_heads"),
    ],
)
def test_refusals_leave_nothing(tiny, more, word):  # noqa: F811
    out = tiny / "heads_refused"
    assert word in refused(*arguments(tiny, out, *more))
    assert not out.exists() and not out.with_name(out.name + ".partial").exists()
