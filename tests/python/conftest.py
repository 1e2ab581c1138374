"""The package of the source tree is the one that is tested, whether or not another is installed."""

import pathlib
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))


@pytest.fixture(params=["automatic", "composite_only"])
def path(request):
    """Runs a test on both implementations of the operators."""
    import hedgerow

    hedgerow.set_path(request.param)
    yield request.param
    hedgerow.set_path("automatic")
