"""Hedgerow: attention surgery for transformers.

`hedgerow.ops` holds the operators (also `torch.ops.hedgerow.*`); `python -m hedgerow` is the program.
"""

from . import _library

_library.load()

from . import ops  # noqa: E402
from ._library import get_path, set_path, version  # noqa: E402

__version__ = version()
__all__ = ["get_path", "ops", "set_path", "version"]
