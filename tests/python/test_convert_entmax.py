"""Converting a tiny random BERT to alpha-entmax attention."""

import json

import pytest
import torch
from program import refused, run_ok
from test_convert import arguments as hedgehog_arguments
from test_convert import summary, tiny, weights  # noqa: F401  (tiny is a fixture)


def arguments(tiny, out, *more):  # noqa: F811
    command = hedgehog_arguments(tiny, out, *more)
    command[command.index("--to") + 1] = "entmax"
    return command


@pytest.fixture(scope="module")
def learned(tiny):  # noqa: F811
    out = tiny / "entmax_learned"
    run_ok(*arguments(tiny, out, "--recover-steps", "0"))
    return out


def test_learned_alphas_train_alone_first(tiny, learned):  # noqa: F811
    teacher, ours = weights(tiny / "model"), weights(learned)
    raw = {name: value for name, value in ours.items() if ".hedgerow." in name}
    assert len(raw) == 2 and all(
        name.endswith("alpha_raw") and value.shape == (4,) for name, value in raw.items()
    )
    config = json.loads((learned / "config.json").read_text())
    start = torch.logit(torch.tensor(float(config["hedgerow"]["layers"][0]["start"]) - 1))
    assert all((value - start).abs().max() > 1e-3 for value in raw.values()), "alphas must move"
    assert all(torch.equal(value, teacher[name]) for name, value in ours.items() if name not in raw)
    result = summary(learned)
    assert result["before"]["embedding_cosine"] > 0.98, "it starts close to softmax"
    for layer, alphas in enumerate(result["heads"]["alpha"]):
        name = next(name for name in raw if f"layer.{layer}." in name)
        assert alphas == pytest.approx((1 + raw[name].sigmoid()).tolist(), rel=1e-6)


def head_values(folder):
    """(stage, step, alphas [layer][head]) of each line."""
    lines = [json.loads(line) for line in (folder / "head_values.jsonl").read_text().splitlines()]
    assert all(set(line["head_values"]) == {"alpha"} for line in lines)
    return [(line["stage"], line["step"], line["head_values"]["alpha"]) for line in lines]


def test_alphas_are_followed(tiny, learned, tmp_path):  # noqa: F811
    lines = head_values(learned)
    steps = [step for _, step, _ in lines]
    assert steps[0] == 0 and steps == sorted(set(steps)) and 10 < len(steps) <= 21
    assert {stage for stage, _, _ in lines} == {"distil"}
    assert lines[0][2] == [[1.02] * 4] * 2
    for logged, final in zip(lines[-1][2], summary(learned)["heads"]["alpha"], strict=True):
        assert logged == pytest.approx(final, rel=1e-5)
    assert '"head_values":[{"stage":"distil","step":0,' in (learned / "report.html").read_text()
    out = tmp_path / "analysis"
    run_ok("analyze", learned, "--data", tiny / "text.txt", "--texts", "5", "--out", out, "--quiet")
    assert (out / "head_values.jsonl").read_bytes() == (learned / "head_values.jsonl").read_bytes()


def test_fixed_alpha_then_everything(tiny):  # noqa: F811
    out = tiny / "entmax_fixed"
    run_ok(*arguments(tiny, out, "--alpha", "1.5"))
    assert not [name for name in weights(out) if ".hedgerow." in name]
    config = json.loads((out / "config.json").read_text())
    assert all(
        layer["mixer"] == "entmax" and layer["alpha"] == "1.5"
        for layer in config["hedgerow"]["layers"]
    )
    result = summary(out)
    heads = result["heads"]
    assert heads["alpha"] == [[1.5] * 4] * 2 and heads["length"] == 64
    assert head_values(out) == [("recover", 0, [[1.5] * 4] * 2)], "what stays is logged once"
    densities = [value for layer in heads["density"] for value in layer]
    assert len(densities) == 8 and all(0 < value < 1 for value in densities)
    assert heads["mean_density"] == pytest.approx(sum(densities) / 8)
    assert len(heads["diversity"]) == 2 and all(0 <= value <= 1 for value in heads["diversity"])
    assert result["after"]["embedding_cosine"] > result["before"]["embedding_cosine"]
    again = run_ok(
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
    assert json.loads(again)["embedding_cosine"] < 1


def test_resumed_equals_uninterrupted(tiny):  # noqa: F811
    from test_convert import assert_same_result, interrupt_after

    whole, out = tiny / "entmax_whole", tiny / "entmax_interrupted"
    run_ok(*arguments(tiny, whole))
    status, stderr = interrupt_after(arguments(tiny, out), out, 9)
    assert status in (0, 130), stderr
    run_ok(*arguments(tiny, out, "--resume"))
    assert_same_result(whole, out)
    assert (out / "head_values.jsonl").read_bytes() == (whole / "head_values.jsonl").read_bytes()


@pytest.mark.parametrize("alpha", ["0.5", "nan", "two"])
def test_bad_alpha(tiny, tmp_path, alpha):  # noqa: F811
    assert alpha in refused(*arguments(tiny, tmp_path / "out", "--alpha", alpha))
    assert list(tmp_path.iterdir()) == []
