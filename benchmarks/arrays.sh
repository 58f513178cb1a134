#!/bin/sh
# The record of attention of 16-bit arrays, ours and torch's, on the GPU that is here: some 100 s.
# Usage: benchmarks/arrays.sh OUTPUT.json [PYTHON]. Where there is no git history, HW4_COMMIT names the commit.
set -e
python=${2:-python3}
set -- --output "$1"
for workload in tilelang tilelang-causal lm8k lm8k-causal lm16k lm16k-wide heads64 t22-half t30-half t29-half t12-half t11-half \
    gqa chunk decode; do
    set -- "$@" --workload "$workload"
done
exec "$python" -m hw4cli bench --peers cudnn,fa2 --samples 15 --pause 0.03 --sustained "$@"
