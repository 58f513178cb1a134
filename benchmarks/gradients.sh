#!/bin/sh
# Records of gradients of arrays, ours and torch's, on the GPU that is here, each checked against float64: some 60 s.
# Usage: benchmarks/gradients.sh FOLDER GPU [PYTHON] writes FOLDER/GPU-gradients.json (the backward pass of five workloads)
# and FOLDER/GPU-training.json (both passes), and with SWEEP=1 FOLDER/GPU-gradients-sweep.json and .csv (N, d, element types,
# masks: some 3 min). Where there is no git history, HW4_COMMIT names the commit.
set -e
folder=$1 gpu=$2 python=${3:-python3}
bench() {
    "$python" -m hw4cli bench --peers cudnn,fa2,efficient --pause 0.03 "$@"
}
set -- --workload lm16k --workload heads64 --workload lm8k-causal --workload lm8k --workload "B=4 N=8192 d=64 dtype=fp32"
bench --pass bwd --samples 15 --output "$folder/$gpu-gradients.json" "$@"
bench --pass both --samples 15 --output "$folder/$gpu-training.json" "$@"
[ -n "$SWEEP" ] || exit 0
set --
for N in 1024 4096 16384; do for d in 64 128; do for dtype in fp16 bf16 fp32; do for mask in "" causal; do
    set -- "$@" --workload "B=$((32768 / N)) H=8 N=$N d=$d dtype=$dtype $mask"
done; done; done; done
bench --pass bwd --samples 10 --output "$folder/$gpu-gradients-sweep.json" --format csv "$@" \
    > "$folder/$gpu-gradients-sweep.csv"
