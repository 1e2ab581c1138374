#!/usr/bin/env bash
# Installs a build into an empty folder, builds examples/find_package against it and runs both the
# example and the installed program.
#
#   tools/check_install.sh BUILD_FOLDER
set -euo pipefail
build=$(realpath "$1")
source=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --install "$build" --prefix "$scratch/prefix" >/dev/null
"$scratch/prefix/bin/hedgerow" --help >/dev/null
cmake -S "$source/examples/find_package" -B "$scratch/build" -G Ninja \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" -DHEDGEROW_PYTHON="$source/.venv/bin/python" >/dev/null
cmake --build "$scratch/build"
# From another folder, with nothing in the environment that would help to find libraries.
(cd / && env -u LD_LIBRARY_PATH "$scratch/build/attention")
