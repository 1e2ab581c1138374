"""The program: options, exit statuses, one line for every error."""

import json
import os
import resource
import signal
import subprocess
import time

import pytest
from program import program_path, refused, run, run_ok
from test_models import minilm_folder, tiny_folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny") / "model"
    tiny_folder(folder)
    return folder


@pytest.fixture
def ids(tmp_path):
    path = tmp_path / "ids.json"
    path.write_text('{"input_ids": [[1, 2, 3], [4, 5, 6]]}')
    return path


def test_help_and_version():
    text = run_ok("--help")
    for command in ["info", "embed", "forward", "tokenize"]:
        assert command in text
    assert run_ok("--version").startswith("hedgerow 0.")
    text = run_ok("forward", "--help")
    for option in ["--threads", "--seed", "--device", "--dtype", "--json", "--quiet"]:
        assert option in text


@pytest.mark.parametrize(
    "args",
    [
        [],
        ["fly"],
        ["forward"],
        ["forward", "model"],
        ["--nonsense"],
        ["forward", "m", "--input", "i", "--output", "o", "--nonsense"],
        ["forward", "m", "--input", "i", "--output", "o", "--threads", "many"],
    ],
)
def test_wrong_usage(args):
    assert "--help" in refused(*args)


@pytest.mark.parametrize(
    "option,value,word",
    [
        ("--threads", 0, "got 0"),
        ("--threads", -1, "got -1"),
        ("--seed", -1, "got -1"),
        ("--seed", "", "must be a whole number"),
        ("--seed", "99999999999999999999", "must be a whole number of 64 bits"),
        ("--device", "cuda", "cpu"),
        ("--dtype", "float8", "float32"),
    ],
)
def test_common_options_are_checked(tiny, ids, tmp_path, option, value, word):
    out = tmp_path / "out.safetensors"
    message = refused("forward", tiny, "--input", ids, "--output", out, option, value)
    assert option in message and word in message
    assert not out.exists()


@pytest.mark.parametrize("threads", [1, 2])
def test_same_threads_same_bytes(tiny, ids, tmp_path, threads):
    """Matrix products are libtorch's, whose rounding depends on the number of threads."""
    for out in ["a", "b"]:
        run_ok("forward", tiny, "--input", ids, "--output", tmp_path / out, "--threads", threads)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_json_and_quiet(tiny, ids, tmp_path):
    out = tmp_path / "out"
    assert json.loads(run_ok("forward", tiny, "--input", ids, "--output", out, "--json")) == {
        "last_hidden_state": [2, 3, 24]
    }
    assert run_ok("forward", tiny, "--input", ids, "--output", out, "--quiet") == ""


@pytest.mark.parametrize(
    "document,word",
    [
        ("", "ids.json"),
        ("[]", "object"),
        ("{", "ids.json"),
        ("{}", "input_ids"),
        ('{"input_ids": []}', "input_ids"),
        ('{"input_ids": [[]]}', "at least one"),
        ('{"input_ids": [1, 2]}', "array"),
        ('{"input_ids": [[1, 2], [3]]}', "one length"),
        ('{"input_ids": [[1, "2"]]}', "whole numbers"),
        ('{"input_ids": [[1, 2.5]]}', "whole numbers"),
        ('{"input_ids": [[1, 61]]}', "got 61"),
        ('{"input_ids": [[1, -1]]}', "got -1"),
        ('{"input_ids": [[1, 2]], "attention_mask": [[1]]}', "attention_mask"),
        ('{"input_ids": [[1, 2]], "attention_mask": [[1, 2]]}', "0 or 1"),
        ('{"input_ids": [[1, 2]], "token_type_ids": [[0, 3]]}', "token_type_ids"),
        ('{"input_ids": [[1, 2]], "labels": [[0, 3]]}', "labels"),
        (json.dumps({"input_ids": [[1] * 41]}), "40 tokens"),
    ],
)
def test_forward_refuses_wrong_ids(tiny, tmp_path, document, word):
    source, out = tmp_path / "ids.json", tmp_path / "out.safetensors"
    source.write_text(document)
    assert word in refused("forward", tiny, "--input", source, "--output", out)
    assert not out.exists()


def test_forward_refuses_bytes_that_are_not_utf8(tiny, tmp_path):
    source = tmp_path / "ids.json"
    source.write_bytes(b'{"input_ids": [[1]], "\xff": 1}')
    assert "UTF-8" in refused("forward", tiny, "--input", source, "--output", tmp_path / "o")


def test_missing_files_and_folders(tiny, ids, tmp_path):
    gone = tmp_path / "gone"
    assert "gone" in refused("forward", gone, "--input", ids, "--output", tmp_path / "o")
    assert "gone" in refused("forward", tiny, "--input", gone, "--output", tmp_path / "o")
    assert "gone" in refused("forward", tiny, "--input", ids, "--output", gone / "o")
    assert "file" in refused("forward", ids, "--input", ids, "--output", tmp_path / "o")


def test_disk_full_is_a_failure(tiny, ids):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full")
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [program_path(), "forward", "--help"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert done.stderr.splitlines() == ["error: cannot write to standard output"]


def files_of_at_most_100_bytes():
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def test_a_file_that_cannot_be_written_leaves_the_old_one(tiny, ids, tmp_path):
    """The write fails as on a full disk."""
    out = tmp_path / "out"
    out.write_text("old")
    line = refused(
        *("forward", tiny, "--input", ids, "--output", out),
        status=1,
        preexec_fn=files_of_at_most_100_bytes,
    )
    assert str(out) in line
    assert out.read_text() == "old"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ids.json", "out"]


def test_interrupt_while_embedding(tmp_path):
    texts, out = tmp_path / "texts.txt", tmp_path / "out.npy"
    texts.write_text("the quick brown fox jumps over the lazy dog again and again\n" * 20000)
    program = subprocess.Popen(
        [program_path(), "embed", minilm_folder(), "--input", texts, "--output", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    time.sleep(3)
    program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=60)
    assert program.returncode == 130
    assert errors.splitlines()[-1] == "error: interrupted"
    assert "Traceback" not in errors and not out.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["texts.txt"]


def test_unknown_subcommand_names_help():
    assert run("fly").stdout == ""
