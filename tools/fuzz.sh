#!/usr/bin/env bash
# Runs every libFuzzer program of a build for a number of seconds.
#
#   tools/fuzz.sh BUILD_FOLDER SECONDS
#
# A fuzzer starts from the inputs that tools/make_fuzz_corpus.py makes and what earlier runs found
# (BUILD_FOLDER/corpus/<name>), and from the folder <name>_corpus beside its source, where there is
# one. A crash leaves its input in BUILD_FOLDER/crashes and fails the run.
set -euo pipefail
build=$1
seconds=$2

mapfile -t fuzzers < <(find "$build/src" -type f -name '*_fuzz' -perm -u+x | sort)
if [[ ${#fuzzers[@]} == 0 ]]; then
  echo "error: fuzz: no fuzzers in $build" >&2
  exit 1
fi
mkdir -p "$build/crashes"
python3 tools/make_fuzz_corpus.py "$build/corpus"
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  source=src/$(realpath --relative-to="$build/src" "$(dirname "$fuzzer")")
  corpus=$build/corpus/$name
  mkdir -p "$corpus"
  # The program is <folder>_<source>: formats_safetensors_fuzz belongs to safetensors_fuzz.cc.
  seeds=()
  for folder in "$source"/*_corpus; do
    [[ -d $folder && $name == *_$(basename "$folder" _corpus)_fuzz ]] && seeds+=("$folder")
  done
  echo "fuzz: $name for $seconds s"
  "$fuzzer" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="$build/crashes/$name-" -print_final_stats=1 -verbosity=0 \
    "$corpus" ${seeds[@]+"${seeds[@]}"}
done
