"""The program: `python -m hedgerow ARGS`, also under torchrun, and the console script `hedgerow`."""

import sys

from hedgerow import _library


def main() -> None:
    sys.stdout.flush()
    sys.exit(_library.run_program(sys.argv[1:]))


if __name__ == "__main__":
    main()
