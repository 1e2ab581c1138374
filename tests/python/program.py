"""Running the built program, as a user does."""

import json
import os
import pathlib
import subprocess

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def program_path() -> str:
    """The program under test: $HEDGEROW_PROGRAM, else the release build's."""
    path = os.environ.get(
        "HEDGEROW_PROGRAM", str(SOURCE / "build" / "release" / "bin" / "hedgerow")
    )
    if not pathlib.Path(path).exists():
        pytest.skip(f"no program at {path}; build it or set HEDGEROW_PROGRAM")
    return path


def run(*args, stdin=None, **kwargs) -> subprocess.CompletedProcess:
    """Run `hedgerow args...` to its end; text in and out."""
    command = [program_path(), *map(str, args)]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=300, check=False, **kwargs
    )


def run_ok(*args, **kwargs) -> str:
    """Run it, require status 0, return stdout."""
    done = run(*args, **kwargs)
    assert done.returncode == 0, done.stderr
    return done.stdout


def refused(*args, status=2, **kwargs) -> str:
    """Run it, require the status and exactly one line `error: ...` on stderr; return the line."""
    done = run(*args, **kwargs)
    assert done.returncode == status, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: "), done.stderr
    return lines[0]


def forward(model, tmp_path, inputs: dict, *args) -> dict:
    """Tensors that `hedgerow forward` writes for inputs of lists."""
    import safetensors.torch

    source, target = tmp_path / "ids.json", tmp_path / "out.safetensors"
    source.write_text(json.dumps(inputs))
    run_ok("forward", model, "--input", source, "--output", target, *args)
    return safetensors.torch.load_file(target)
