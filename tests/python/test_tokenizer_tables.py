"""The committed Unicode tables are what the package tokenizers does, over every code point."""

import pathlib
import subprocess
import sys

import pytest

import tokenizers

SOURCE = pathlib.Path(__file__).resolve().parents[2]


def test_tables_are_current():
    if tokenizers.__version__ != "0.23.3":
        pytest.skip(
            f"the tables were made with tokenizers 0.23.3; this is {tokenizers.__version__}"
        )
    tool = SOURCE / "tools" / "make_unicode_tables.py"
    done = subprocess.run(
        [sys.executable, tool, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
