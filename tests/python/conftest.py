"""The package of the source tree is the one that is tested, whether or not another is installed."""

import pathlib
import sys

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))
