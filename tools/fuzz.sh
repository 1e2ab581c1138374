#!/usr/bin/env bash
# Runs every libFuzzer program of a build for a number of seconds.
#
#   tools/fuzz.sh BUILD_FOLDER SECONDS
#
# A fuzzer starts from what tools/make_fuzz_corpus.py makes for it and from what earlier runs found
# (BUILD_FOLDER/corpus/<name>). A crash leaves its input in BUILD_FOLDER/crashes and fails the run.
set -euo pipefail
build=$1
seconds=$2

mapfile -t fuzzers < <(find "$build/src" -type f -name '*_fuzz' -perm -u+x | sort)
if [[ ${#fuzzers[@]} == 0 ]]; then
  echo "error: fuzz: no fuzzers in $build" >&2
  exit 1
fi
"$(dirname "${BASH_SOURCE[0]}")/../.venv/bin/python" "$(dirname "${BASH_SOURCE[0]}")/make_fuzz_corpus.py" "$build/seeds"
mkdir -p "$build/crashes"
for fuzzer in "${fuzzers[@]}"; do
  name=$(basename "$fuzzer")
  log=$build/$name.log
  if [[ ! -d $build/seeds/$name ]]; then
    echo "error: fuzz: tools/make_fuzz_corpus.py has no inputs for $name" >&2
    exit 1
  fi
  mkdir -p "$build/corpus/$name"
  if ! "$fuzzer" -max_total_time="$seconds" -max_len=65536 -timeout=20 -rss_limit_mb=2048 \
    -artifact_prefix="$build/crashes/$name-" -print_final_stats=1 \
    "$build/corpus/$name" "$build/seeds/$name" >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "error: fuzz: $name failed; the input is in $build/crashes" >&2
    exit 1
  fi
  printf 'fuzz: %-36s %s runs in %s s, no fault\n' "$name" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$seconds"
done
