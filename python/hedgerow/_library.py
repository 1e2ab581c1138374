"""Finds and loads libhedgerow.so, whose operators register with torch when it is loaded."""

from __future__ import annotations

import ctypes
import os
import pathlib

import torch

_NAME = "libhedgerow.so"
_PATHS = ("automatic", "fast_only", "composite_only")
_library: ctypes.CDLL | None = None


def _candidates() -> list[pathlib.Path]:
    """Where the library may be: HEDGEROW_LIBRARY alone if set; the package; the source tree."""
    chosen = os.environ.get("HEDGEROW_LIBRARY")
    if chosen:
        return [pathlib.Path(chosen)]
    package = pathlib.Path(__file__).resolve().parent
    return [package / _NAME, package.parents[1] / "build" / "release" / "lib" / _NAME]


def _refuse_other_torch(library: pathlib.Path) -> None:
    """Raises ImportError unless torch is the version that the library was built against."""
    note = library.with_name("torch_version.txt")
    if not note.exists():
        return
    built = note.read_text().strip().split("+")[0]
    running = torch.__version__.split("+")[0]
    if built != running:
        raise ImportError(
            f"hedgerow: was built against torch {built} and works with no other; got torch {running}. "
            "Reinstall it: pip install --no-build-isolation --force-reinstall ."
        )


def load() -> ctypes.CDLL:
    """Loads the library once and returns it."""
    global _library
    if _library is not None:
        return _library
    tried = _candidates()
    found = next((path for path in tried if path.exists()), None)
    if found is None:
        places = ", ".join(map(str, tried))
        raise ImportError(
            f"hedgerow: {_NAME} must exist (make build, or pip install .); got none at {places}"
        )
    _refuse_other_torch(found)
    torch.ops.load_library(str(found))
    _library = ctypes.CDLL(str(found))
    return _library


def version() -> str:
    """Version of the loaded library, "major.minor.patch"."""
    function = load().hedgerow_version
    function.restype = ctypes.c_char_p
    return function().decode()


def set_path(path: str) -> None:
    """Chooses the implementation of all operators in this process.

    Parameters
    ----------
    path : {"automatic", "fast_only", "composite_only"}
        "automatic": the fused kernel where it applies, else the composite form made of ATen
        operators. "fast_only": an error where the fused kernel does not apply. "composite_only":
        never the fused kernel.
    """
    if path not in _PATHS:
        raise ValueError(f"set_path: path must be one of {', '.join(_PATHS)}; got {path!r}")
    load().hedgerow_set_path(_PATHS.index(path))


def get_path() -> str:
    """The implementation in use; see `set_path`."""
    return _PATHS[load().hedgerow_path()]


def run_program(arguments: list[str]) -> int:
    """Runs the program `hedgerow` in this process and returns its exit status."""
    encoded = [os.fsencode(a) for a in ["hedgerow", *arguments]]
    argv = (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)
    return load().hedgerow_main(len(encoded), argv)
