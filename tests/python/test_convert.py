"""Converting a tiny random BERT: files, resume, replacement, interruption, bad input."""

import json
import random
import resource
import signal
import subprocess
import time

import pytest
import safetensors.torch
import torch
import transformers
from program import program_path, refused, run_ok

import tokenizers

WORDS = [f"w{letter}{digit}" for letter in "abcdefgh" for digit in range(8)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """A model folder with its tokenizer, and a text file of 400 lines."""
    root = tmp_path_factory.mktemp("convert")
    vocab = {
        token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])
    }
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocab),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    model = transformers.BertModel(config)
    model.save_pretrained(root / "model")
    tokenizer.save(str(root / "model" / "tokenizer.json"))
    rng = random.Random(1)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(4, 24))) for _ in range(400)]
    (root / "text.txt").write_text("\n".join(lines) + "\n")
    return root


def arguments(tiny, out, *more):
    return [
        "convert", tiny / "model", "--to", "hedgehog", "--data", tiny / "text.txt", "--out", out,
        "--preset", "quick", "--threads", "1", "--quiet", "--length", "32", *more,
    ]  # fmt: skip


def weights(folder):
    return safetensors.torch.load_file(folder / "model.safetensors")


def assert_same_result(a, b):
    """Weights bit by bit, measures and logged losses."""
    ours, theirs = weights(a), weights(b)
    assert ours.keys() == theirs.keys()
    for name in ours:
        assert torch.equal(ours[name], theirs[name]), name
    for stage in ("before", "after_distil", "after"):
        assert summary(a)[stage] == summary(b)[stage]
    assert logged(a) == logged(b)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


def logged(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["stage"], line["split"], line["step"], line["loss"]) for line in lines]


@pytest.fixture(scope="module")
def converted(tiny):
    out = tiny / "converted"
    run_ok(*arguments(tiny, out))
    return out


def test_run_folder(tiny, converted):
    for name in (
        "config.json",
        "tokenizer.json",
        "run.toml",
        "analysis.json",
        "maps.json",
        "report.html",
    ):
        assert (converted / name).stat().st_size > 0, name
    assert not (converted / "training").exists()
    assert not (converted / "head_values.jsonl").exists(), "Hedgehog keeps no value for a head"
    assert not (tiny / "converted.partial").exists()
    config = json.loads((converted / "config.json").read_text())
    assert config["model_type"] == "hedgerow_bert"
    assert [layer["mixer"] for layer in config["hedgerow"]["layers"]] == ["hedgehog"] * 2
    result = summary(converted)
    assert result["kind"] == "hedgehog" and result["seed"] == 0 and "convert" in result["command"]
    assert set(result["before"]["kl"]) == {"64"}  # 128 is beyond the model's positions
    steps = [entry[:3] for entry in logged(converted)]
    assert steps == [("distil", "train", i + 1) for i in range(20)] + [
        ("recover", "train", i + 1) for i in range(20)
    ]


def test_quality_rises(converted):
    result = summary(converted)
    before, distilled, after = (result[s] for s in ("before", "after_distil", "after"))
    assert 0 <= distilled["kl"]["64"] < before["kl"]["64"]
    assert after["embedding_cosine"] > before["embedding_cosine"]
    assert before["embedding_cosine"] < 0.9999, (
        "the swap must change something for this to be a test"
    )
    losses = [loss for stage, _, _, loss in logged(converted) if stage == "distil"]
    assert sum(losses[-5:]) < sum(losses[:5])


def test_analysis_has_heads_of_layers(converted):
    analysis = json.loads((converted / "analysis.json").read_text())
    for table in (
        analysis["kl"]["before"],
        analysis["kl"]["after"],
        analysis["entropy"]["teacher"],
    ):
        assert [len(heads) for heads in table] == [4, 4]
        assert all(value >= 0 for heads in table for value in heads)
    mean = sum(sum(heads) / 4 for heads in analysis["kl"]["before"]) / 2
    assert mean == pytest.approx(summary(converted)["before"]["kl"]["64"], rel=1e-6)
    histogram = analysis["embedding"]["cosine_histogram"]
    assert sum(histogram["after"]) == sum(histogram["before"]) > 0


def test_compare_agrees_with_the_summary_and_with_itself(tiny, converted):
    itself = json.loads(
        run_ok(
            "compare",
            tiny / "model",
            tiny / "model",
            "--data",
            tiny / "text.txt",
            "--lengths",
            "64",
            "--json",
            "--quiet",
        )
    )
    assert itself["embedding_cosine"] == pytest.approx(1, abs=1e-6)
    assert itself["nn_agreement"] == itself["top10_overlap"] == 1
    assert itself["kl"]["64"] == pytest.approx(0, abs=1e-6)
    other = json.loads(
        run_ok(
            "compare",
            tiny / "model",
            converted,
            "--data",
            tiny / "text.txt",
            "--lengths",
            "64",
            "--json",
            "--quiet",
        )
    )
    assert 0.5 < other["embedding_cosine"] < 0.99999
    assert other["kl"]["64"] > 0


def test_teacher_is_untouched(tiny, converted):
    model = transformers.BertModel.from_pretrained(tiny / "model")
    assert summary(converted)["after"]["embedding_cosine"] < 1
    assert model.config.model_type == "bert"


def test_same_seed_same_numbers(tiny, converted):
    again = tiny / "again"
    run_ok(*arguments(tiny, again))
    assert_same_result(converted, again)
    other = tiny / "other_seed"
    run_ok(*arguments(tiny, other, "--seed", "5"))
    assert logged(other) != logged(converted)


def test_only_chosen_layers(tiny):
    out = tiny / "one_layer"
    run_ok(*arguments(tiny, out, "--layers", "1", "--map", "elu", "--recover-steps", "0"))
    config = json.loads((out / "config.json").read_text())
    assert [layer["mixer"] for layer in config["hedgerow"]["layers"]] == ["softmax", "hedgehog"]
    assert config["hedgerow"]["layers"][1]["map"] == "elu"
    names = [name for name in weights(out) if ".hedgerow." in name]
    assert names and all("layer.1." in name for name in names)
    teacher = weights(tiny / "model")
    for name, value in weights(out).items():
        if ".hedgerow." not in name:
            assert torch.equal(value, teacher[name]), f"{name} is frozen in distillation"


def test_lora_changes_only_the_projections(tiny):
    out = tiny / "lora"
    run_ok(*arguments(tiny, out, "--lora", "4"))
    teacher = weights(tiny / "model")
    changed = [
        n
        for n, v in weights(out).items()
        if ".hedgerow." not in n and not torch.equal(v, teacher[n])
    ]
    assert changed and all(
        n.endswith(
            (".query.weight", ".key.weight", ".value.weight", "attention.output.dense.weight")
        )
        for n in changed
    )


def test_held_out_text_is_watched_and_the_best_kept(tiny):
    """Ten evaluations a stage at most, on texts beyond the verified ones; best/ while it runs."""
    out = tiny / "watched"
    command = arguments(
        tiny, out, "--verify-texts", "12", "--distil-steps", "20", "--recover-steps", "30"
    )
    status, stderr = interrupt_after(command, out, 40)
    assert status == 130, stderr
    assert (tiny / "watched.partial" / "training" / "best" / "state.safetensors").exists()
    run_ok(*command, "--resume")
    held = [entry for entry in logged(out) if entry[1] == "heldout"]
    assert [entry[:3] for entry in held] == [
        (stage, "heldout", step)
        for stage, step in (
            ("distil", 10),
            ("distil", 20),
            ("recover", 10),
            ("recover", 20),
            ("recover", 30),
        )
    ]
    assert held[1][3] < held[0][3], "distillation must lower the held-out loss"
    whole = tiny / "watched_whole"
    run_ok(*[whole if part == out else part for part in command])
    assert_same_result(out, whole)


def test_two_runs_do_not_share_a_folder(tiny):
    out = tiny / "shared"
    command = arguments(tiny, out, "--recover-steps", "5000")
    process = subprocess.Popen([program_path(), *map(str, command)], stderr=subprocess.DEVNULL)
    try:
        log = tiny / "shared.partial" / "metrics.jsonl"
        deadline = time.time() + 120
        while (
            process.poll() is None
            and time.time() < deadline
            and not (log.exists() and log.stat().st_size)
        ):
            time.sleep(0.01)
        assert process.poll() is None
        for option in ("--force", "--resume"):
            assert "in use" in refused(*command, option)
        assert process.poll() is None and log.exists(), "the first run goes on"
    finally:
        process.terminate()
        process.wait(timeout=60)


@pytest.mark.parametrize("limit", [2_000, 20_000, 60_000])
def test_refused_bytes_lose_nothing(tiny, limit):
    """As on a full disk: no file may grow beyond `limit` bytes."""

    def few_bytes():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    out = tiny / f"full{limit}"
    out.mkdir()
    (out / "precious.txt").write_text("old")
    line = refused(*arguments(tiny, out, "--force"), status=1, preexec_fn=few_bytes)
    assert "too large" in line.lower() and f"full{limit}.partial" in line
    assert [path.name for path in out.iterdir()] == ["precious.txt"]
    run_ok(*arguments(tiny, out, "--force"))
    assert summary(out)["format"] == 1


def test_existing_output_is_refused_and_replaced_only_when_complete(tiny):
    out = tiny / "existing"
    out.mkdir()
    (out / "precious.txt").write_text("old")
    assert "exists" in refused(*arguments(tiny, out))
    assert "missing.txt" in refused(
        *arguments(tiny, out, "--force", "--heldout", tiny / "missing.txt")
    )
    assert (out / "precious.txt").read_text() == "old"
    assert not (tiny / "existing.partial").exists()
    run_ok(*arguments(tiny, out, "--force"))
    assert not (out / "precious.txt").exists()
    assert summary(out)["format"] == 1
    assert list(tiny.glob("existing.*")) == []


def test_resume_of_complete_does_nothing(tiny, converted):
    before = (converted / "summary.json").stat().st_mtime_ns
    run_ok(*arguments(tiny, converted, "--resume"))
    assert (converted / "summary.json").stat().st_mtime_ns == before


def interrupt_after(command, folder, num_lines, signal_number=signal.SIGINT):
    """Start the program, signal it when metrics.jsonl has so many lines; status and stderr."""
    process = subprocess.Popen(
        [program_path(), *map(str, command)], stderr=subprocess.PIPE, text=True
    )
    log = folder.with_name(folder.name + ".partial") / "metrics.jsonl"
    deadline = time.time() + 120
    while process.poll() is None and time.time() < deadline:
        if num_lines == 0 or (log.exists() and log.read_bytes().count(b"\n") >= num_lines):
            break
        time.sleep(0.002)
    process.send_signal(signal_number)
    _, stderr = process.communicate(timeout=120)
    return process.returncode, stderr


def test_recut_run_interrupted_and_resumed(tiny):
    """Beyond the second pass over the texts, of which some give way to running text."""
    more = ("--recut", "0.5", "--distil-steps", "2", "--recover-steps", "60", "--batch", "8")
    outs = [tiny / name for name in ("recut", "recut_whole", "recut_none")]
    status, stderr = interrupt_after(arguments(tiny, outs[0], *more), outs[0], 50)
    if status != 0:
        assert status == 130, stderr
        run_ok(*arguments(tiny, outs[0], *more, "--resume"))
    run_ok(*arguments(tiny, outs[1], *more))
    assert_same_result(outs[0], outs[1])
    run_ok(*arguments(tiny, outs[2], "--recut", "0", *more[2:]))
    assert logged(outs[2])[-1] != logged(outs[1])[-1]


@pytest.mark.parametrize("num_lines", [1, 9, 19, 27, 39])
def test_interrupted_and_resumed_equals_uninterrupted(tiny, converted, num_lines):
    out = tiny / f"interrupted{num_lines}"
    status, stderr = interrupt_after(arguments(tiny, out), out, num_lines)
    if status != 0:  # else it was done before the signal came
        assert status == 130, stderr
        assert stderr.splitlines()[-1].startswith("error: interrupted")
        assert not out.exists()
        assert "--resume" in refused(*arguments(tiny, out))
        assert "settings" in refused(*arguments(tiny, out, "--resume", "--seed", "7"))
        run_ok(*arguments(tiny, out, "--resume"))
    assert_same_result(converted, out)


def test_killed_and_resumed_equals_uninterrupted(tiny, converted):
    out = tiny / "killed"
    status, _ = interrupt_after(arguments(tiny, out), out, 23, signal.SIGKILL)
    assert status in (0, -signal.SIGKILL)
    run_ok(*arguments(tiny, out, "--resume"))
    assert_same_result(converted, out)


def test_resume_without_anything_starts(tiny, converted):
    out = tiny / "from_nothing"
    run_ok(*arguments(tiny, out, "--resume"))
    assert_same_result(converted, out)


def test_interrupted_force_keeps_the_old(tiny):
    out = tiny / "kept"
    run_ok(*arguments(tiny, out, "--recover-steps", "0"))
    old = (out / "summary.json").read_text()
    status, _ = interrupt_after(arguments(tiny, out, "--force", "--recover-steps", "2000"), out, 30)
    assert status == 130
    assert (out / "summary.json").read_text() == old


@pytest.mark.parametrize(
    "content,needle",
    [
        (b"", "text"),
        (b"\n\n  \n", "text"),
        (b"wa1 wb2\nwa1 \xff wb2\n", "UTF-8"),
    ],
)
def test_bad_data(tiny, tmp_path, content, needle):
    data = tmp_path / "bad.txt"
    data.write_bytes(content)
    command = [
        "convert",
        tiny / "model",
        "--to",
        "hedgehog",
        "--data",
        data,
        "--out",
        tmp_path / "out",
        "--quiet",
    ]
    message = refused(*command)
    assert needle in message and "bad.txt" in message
    assert list(tmp_path.iterdir()) == [data], "nothing is left behind"


def test_thorough_options_are_the_mechanisms(tiny, tmp_path):
    untrained = ["--preset", "thorough", "--distil-steps", "0", "--recover-steps", "0"]

    def options(name, *more):
        command = arguments(tiny, tmp_path / name, *untrained, *more)
        at = command.index("--preset")
        del command[at : at + 2]
        run_ok(*command)
        config = json.loads((tmp_path / name / "config.json").read_text())["hedgerow"]["layers"][0]
        width = next(v.shape[2] for k, v in weights(tmp_path / name).items() if k.endswith(".wq"))
        return config, width

    config, width = options("wide")
    assert config["expansion"] == 2 and width == 16
    config, width = options("given", "--set", "expansion=1")
    assert config["expansion"] == 1 and width == 8
    command = arguments(tiny, tmp_path / "entmax", *untrained)
    command[command.index("hedgehog")] = "entmax"
    run_ok(*command[: command.index("--preset")], *command[command.index("--preset") + 2 :])


def test_long_lines(tiny, tmp_path):
    data = tmp_path / "long.txt"
    rng = random.Random(3)
    lines = [" ".join(rng.choices(WORDS, k=12)) for _ in range(100)]
    lines.insert(7, " ".join(rng.choices(WORDS, k=250_000)))  # 1 MB
    data.write_text("\n".join(lines))
    command = arguments(tiny, tmp_path / "out", "--distil-steps", "2", "--recover-steps", "2")
    command[command.index("--data") + 1] = data
    run_ok(*command)


@pytest.mark.parametrize(
    "more,needle",
    [
        (["--to", "nothing"], "hedgehog"),
        (["--map", "nothing"], "softmax_joint"),
        (["--set", "colour=red"], "map"),
        (["--set", "bias"], "NAME=VALUE"),
        (["--set", "width=99999999999"], "65536"),
        (["--set", "expansion=0"], "expansion"),
        (["--layers", "0,9"], "--layers"),
        (["--layers", "x"], "--layers"),
        (["--layers", "0-99999999999"], "10000"),
        (["--preset", "slow"], "thorough"),
        (["--length", "65"], "64"),
        (["--batch", "0"], "--batch"),
        (["--distil-lr", "-1"], "--distil-lr"),
        (["--recut", "1.5"], "--recut"),
        (["--recut", "nan"], "--recut"),
        (["--distil-lr", ""], "must be a number"),
        (["--key-heads", ""], "must be a whole number"),
        (["--threads", "0"], "--threads"),
        (["--out", "/no/such/folder/out"], "--out"),
    ],
)
def test_bad_arguments(tiny, tmp_path, more, needle):
    base = arguments(tiny, tmp_path / "out")
    if more[0] in base:
        at = base.index(more[0])
        base = base[:at] + base[at + 2 :]
    assert needle in refused(*base, *more)
    assert list(tmp_path.iterdir()) == []


def test_missing_model(tiny, tmp_path):
    command = arguments(tiny, tmp_path / "out")
    command[1] = tmp_path / "nowhere"
    assert "nowhere" in refused(*command)


def test_output_may_not_hold_the_input(tiny):
    assert "contain" in refused(*arguments(tiny, tiny, "--force"))
    assert (tiny / "text.txt").exists()
