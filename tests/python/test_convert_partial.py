"""Converting a tiny random BERT to attention from partial computation and to its baselines."""

import json

import pytest
import safetensors.torch
import torch
from program import forward, refused, run_ok
from test_convert import arguments as hedgehog_arguments
from test_convert import interrupt_after, summary, tiny, weights  # noqa: F401  (tiny is a fixture)

HEADS, LENGTH = 4, 24


def arguments(tiny, out, *more, kind="partial", budget=6, length=LENGTH):  # noqa: F811
    command = hedgehog_arguments(tiny, out, *more)
    command[command.index("--to") + 1] = kind
    at = command.index("--length")
    del command[at : at + 2]
    return [*command, "--set", f"length={length}", "--positions-per-query", budget]


UNTRAINED = ["--distil-steps", "0", "--recover-steps", "0"]


def tensor(values, layer, name):
    return values[f"encoder.layer.{layer}.attention.hedgerow.{name}"]


def test_folder_and_report(tiny, tmp_path):  # noqa: F811
    out = tiny / "partial"
    run_ok(*arguments(tiny, out))
    ours = weights(out)
    for layer in range(2):
        positions = tensor(ours, layer, "positions")
        assert positions.dtype == torch.int64 and positions[0] == 0
        assert (positions.diff() > 0).all() and positions[-1] < LENGTH
        assert tensor(ours, layer, "reconstruction").shape == (LENGTH, 6)
        assert tensor(ours, layer, "mean").shape == (HEADS, LENGTH, LENGTH)
    config = json.loads((out / "config.json").read_text())["hedgerow"]["layers"][0]
    assert config["mixer"] == "partial" and config["positions_per_query"] == 6
    fit = json.loads((out / "analysis.json").read_text())["score_fit"]
    assert len(fit["heldout_residual"]) == 2 and all(0 < x[0] < 1 for x in fit["heldout_residual"])
    maps = json.loads((out / "maps.json").read_text())
    assert max(len(s["tokens"]) for s in maps["sentences"]) <= LENGTH
    # joined texts are windows of the mechanism's length
    assert list(summary(out)["after"]["kl"]) == [str(LENGTH)]
    assert summary(out)["multiplications"]["scores"] > 0
    assert (out / "report.html").exists()
    # texts that are longer than the mechanism are cut, ids that are longer are refused
    (tmp_path / "long.txt").write_text("wa1 " * 60 + "\nwb2\n")
    run_ok("embed", out, "--input", tmp_path / "long.txt", "--output", tmp_path / "e.npy")
    (tmp_path / "ids.json").write_text(json.dumps({"input_ids": [[7] * (LENGTH + 1)]}))
    line = refused(
        "forward", out, "--input", tmp_path / "ids.json", "--output", tmp_path / "o.safetensors"
    )
    assert "partial" in line and str(LENGTH) in line and str(LENGTH + 1) in line


def test_same_start_whatever_the_run(tiny):  # noqa: F811
    one, two = tiny / "partial_one", tiny / "partial_two"
    for out in (one, two):
        run_ok(*arguments(tiny, out, *UNTRAINED))
    a, b = weights(one), weights(two)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_reconstruction_trains_alone_first(tiny):  # noqa: F811
    start, alone = tiny / "partial_start", tiny / "partial_alone"
    run_ok(*arguments(tiny, start, *UNTRAINED))
    run_ok(*arguments(tiny, alone, "--recover-steps", "0"))
    a, b = weights(start), weights(alone)
    moved = {name for name in a if not torch.equal(a[name], b[name])}
    assert {name.rsplit(".", 1)[1] for name in moved} == {"reconstruction", "mean"}
    assert len(moved) == 4


def test_fixed_reconstruction_stays(tiny):  # noqa: F811
    start, after = tiny / "partial_start", tiny / "partial_fixed"
    if not start.exists():
        run_ok(*arguments(tiny, start, *UNTRAINED))
    run_ok(*arguments(tiny, after, "--r", "fixed"))
    a, b = weights(start), weights(after)
    for layer in range(2):
        for name in ("positions", "reconstruction", "mean"):
            assert torch.equal(tensor(a, layer, name), tensor(b, layer, name))
    name = "encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(a[name], b[name]), "the network trains around it"


@pytest.mark.parametrize("mean", ["common", "query"])
def test_shared_reconstruction_is_one(tiny, mean):  # noqa: F811
    out = tiny / f"partial_shared_{mean}"
    run_ok(*arguments(tiny, out, "--sharing", "shared", "--set", f"mean={mean}"))
    ours = weights(out)
    for name in ("positions", "reconstruction") + (("mean",) if mean == "common" else ()):
        assert torch.equal(tensor(ours, 0, name), tensor(ours, 1, name))
    # a folder whose layers disagree is refused
    tensor(ours, 1, "reconstruction").add_(1)
    safetensors.torch.save_file(ours, out / "model.safetensors", metadata={"format": "pt"})
    line = refused("info", out)
    assert "reconstruction" in line and "same values" in line


@pytest.mark.parametrize(
    "options",
    [
        ["--sharing", "head"],
        ["--sharing", "head", "--set", "positions=head"],
        ["--set", "positions=query"],
        ["--set", "positions=query", "--set", "mean=common"],
        ["--set", "selection=cholesky", "--set", "first=false"],
        ["--set", "alpha=1.5"],
        ["--no-join"],
    ],
    ids=lambda options: "_".join(options).replace("-", "").replace("=", "_"),
)
def test_every_form_converts_and_loads(tiny, tmp_path, options):  # noqa: F811
    out = tiny / ("form_" + "_".join(options).replace("-", "").replace("=", "_"))
    few = ["--distil-steps", "2", "--recover-steps", "2"]
    run_ok(*arguments(tiny, out, *few, *options))
    inputs = {
        "input_ids": [[2, 5, 7, 9, 3], [2, 8, 3, 0, 0]],
        "attention_mask": [[1] * 5, [1] * 3 + [0] * 2],
    }
    hidden = forward(out, tmp_path, inputs)["last_hidden_state"]
    alone = forward(out, tmp_path, {"input_ids": [[2, 8, 3]]})["last_hidden_state"]
    assert (hidden[1, :3] - alone[0]).abs().max() < 1e-4, "padding changes nothing"


@pytest.mark.parametrize("kind", ["selected-keys", "linformer", "window"])
def test_baselines(tiny, kind):  # noqa: F811
    out = tiny / kind
    run_ok(*arguments(tiny, out, "--join", kind=kind))
    after = summary(out)["after"]
    assert -1 <= after["embedding_cosine"] <= 1
    names = {name.rsplit(".", 1)[1] for name in weights(out) if ".hedgerow." in name}
    want = {
        "selected-keys": {"positions"},
        "linformer": {"key_proj", "value_proj"},
        "window": set(),
    }
    assert names == want[kind]


def test_many_positions_are_exact(tiny):  # noqa: F811
    """All positions known: the scores are those of the teacher, up to the least ridge."""
    out = tiny / "partial_all"
    run_ok(*arguments(tiny, out, *UNTRAINED, budget=LENGTH, length=LENGTH))
    assert summary(out)["before"]["embedding_cosine"] > 0.999


@pytest.mark.parametrize(
    "more, words",
    [
        (["--positions-per-query", "25"], ["positions_per_query", "24", "25"]),
        (["--positions-per-query", "0"], ["positions_per_query", "0"]),
        (["--set", "length=65"], ["64", "65"]),
        (["--sharing", "all"], ["sharing", "all"]),
        (["--r", "free"], ["free"]),
        (["--set", "positions=head"], ["positions", "sharing head"]),
        (["--length", "25"], ["--length", "24", "25"]),
        (["--join", "--no-join"], ["--join"]),
    ],
)
def test_bad_options(tiny, more, words):  # noqa: F811
    command = [*arguments(tiny, tiny / "bad_partial"), *more]
    for option in ("--positions-per-query", "--set"):
        if option in more and option == "--positions-per-query":
            at = command.index(option)
            del command[at : at + 2]
    line = refused(*command)
    for word in words:
        assert word in line
    assert not (tiny / "bad_partial").exists() and not (tiny / "bad_partial.partial").exists()


def test_resumes_to_the_same_result(tiny):  # noqa: F811
    whole, cut = tiny / "partial_whole", tiny / "partial_cut"
    steps = ["--distil-steps", "30", "--recover-steps", "30"]
    run_ok(*arguments(tiny, whole, *steps))
    status, stderr = interrupt_after(arguments(tiny, cut, *steps), cut, 6)
    assert status == 130, stderr
    run_ok(*arguments(tiny, cut, *steps, "--resume"))
    a, b = weights(whole), weights(cut)
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_what_is_exact_for_some_lengths_trains_at_others(tiny):  # noqa: F811
    for i, more in enumerate((["--set", "longer=exact"], ["--set", "exact_up_to=8"])):
        out = tiny / f"partial_exact_{i}"
        run_ok(*arguments(tiny, out, *more))
        assert list(summary(out)["before"]["kl"]) == [str(LENGTH)]
        assert summary(out)["before"]["kl"][str(LENGTH)] > 0
    line = refused(*arguments(tiny, tiny / "partial_never", "--set", f"exact_up_to={LENGTH}"))
    assert "exact_up_to" in line and str(LENGTH) in line


def test_back_to_softmax(tiny, tmp_path):  # noqa: F811
    """The teacher's length, not only the model's, limits what is verified."""
    out = tiny / "partial_first"
    run_ok(*arguments(tiny, out, *UNTRAINED))
    command = arguments(tiny, tmp_path / "softmax", *UNTRAINED)
    command[1], command[command.index("--to") + 1] = out, "softmax"
    run_ok(*command[: command.index("--set")])
    assert list(summary(tmp_path / "softmax")["before"]["kl"]) == [str(LENGTH)]


@pytest.mark.parametrize(
    "more",
    [[], ["--set", "positions=query"], ["--set", "positions=head", "--sharing", "head"]],
)
@pytest.mark.parametrize("wrong", [LENGTH, -1, 2])
def test_positions_of_a_checkpoint_are_checked(tiny, tmp_path, more, wrong):  # noqa: F811
    out = tmp_path / "partial"
    run_ok(*arguments(tiny, out, *UNTRAINED, *more))
    ours = weights(out)
    name = next(name for name in ours if name.endswith("1.attention.hedgerow.positions"))
    ours[name][..., -2:] = torch.tensor([2, wrong])
    with safetensors.safe_open(out / "model.safetensors", "pt") as file:
        metadata = file.metadata()
    safetensors.torch.save_file(ours, out / "model.safetensors", metadata=metadata)
    line = refused("info", out)
    assert "layer 1" in line and f"[0, {LENGTH})" in line and "partial" in line


def test_little_text_is_not_read_twice(tiny, tmp_path):  # noqa: F811
    """Windows of a short text do not repeat; one of them says nothing of held-out text."""
    words = (tiny / "text.txt").read_text().split()
    room = LENGTH - 2
    common = ["--set", "mean=common", "--set", "weighted=false"]
    for windows, known in ((1, False), (9, True)):
        text = tmp_path / f"{windows}.txt"
        text.write_text("\n".join(" ".join(words[i : i + 5]) for i in range(0, room * windows, 5)))
        out = tmp_path / f"out{windows}"
        command = arguments(tiny, out, *UNTRAINED, *common, "--heldout", tiny / "text.txt")
        command[command.index("--data") + 1] = text
        run_ok(*command)
        fit = json.loads((out / "analysis.json").read_text())["score_fit"]
        assert fit["windows"] == windows
        assert all(
            (left is not None) == known for layer in fit["heldout_residual"] for left in layer
        )


def test_one_row_of_linformer(tiny):  # noqa: F811
    run_ok(*arguments(tiny, tiny / "linformer_one", kind="linformer", budget=1))


def test_compared_texts_are_cut_to_what_both_take(tiny, tmp_path):  # noqa: F811
    out = tiny / "partial_compared"
    run_ok(*arguments(tiny, out, *UNTRAINED))
    (tmp_path / "long.txt").write_text("\n".join(["wa1 " * 60, "wb2 wc3"] * 20) + "\n")
    options = ["--data", tmp_path / "long.txt", "--kl-tokens", "100", "--json"]
    for pair in ((tiny / "model", out), (out, tiny / "model")):
        assert list(json.loads(run_ok("compare", *pair, *options))["kl"]) == [str(LENGTH)]
    assert str(LENGTH) in refused("compare", tiny / "model", out, *options, "--lengths", LENGTH + 1)
