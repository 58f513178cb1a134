#!/bin/sh
# Records of gradients of arrays, ours and torch's, on the GPU that is here, each checked against float64: some 2 min.
# Usage: benchmarks/gradients.sh FOLDER GPU [PYTHON] writes what WHAT names, all but the sweep unless it is set:
#   gradients  FOLDER/GPU-gradients.json: the backward pass of seven workloads, two of them with shared heads
#   training   FOLDER/GPU-training.json: both passes of the same
#   designs    FOLDER/GPU-designs.json: the backward pass by each design of ours, of four workloads
#   errors     FOLDER/errors/GPU.json: errors of gradients against float64, also of ill-conditioned inputs
#   sweep      FOLDER/GPU-gradients-sweep.json: N, d, element types, masks (some 60 s)
# Where there is no git history, HW4_COMMIT names the commit.
made="gradients training designs errors" more=sweep
. "$(dirname "$(realpath "$0")")/records.sh"
bench() {
    run -m hw4cli bench --pause 0.03 "$@"
}
all=cudnn,fa2,efficient
large="lm16k heads64 lm8k-causal lm8k"
set -- "B=4 N=8192 d=64 dtype=fp32"
set -- "$@" "H=32 KVH=8 N=8192 d=64 dtype=bf16 causal" "H=32 KVH=8 N=8192 d=128 dtype=bf16 causal"
if wanted gradients; then
    bench --pass bwd --peers $all --samples 15 --output "$folder/$gpu-gradients.json" $large "$@"
fi
if wanted training; then
    bench --pass both --peers $all --samples 15 --output "$folder/$gpu-training.json" $large "$@"
fi
if wanted designs; then
    bench backward_once backward_atomic backward_wgmma backward_mma --pass bwd --peers cudnn,fa2 --samples 15 \
        --output "$folder/$gpu-designs.json" $large
fi
if wanted errors; then
    mkdir -p "$folder/errors"
    run -m benchmarks.gradient_errors --output "$folder/errors/$gpu.json"
fi
wanted sweep || exit $failed
set --
for N in 1024 16384; do for d in 64 128; do for dtype in fp16 bf16 fp32; do for mask in "" causal; do
    set -- "$@" "B=$((16384 / N)) H=4 N=$N d=$d dtype=$dtype $mask"
done; done; done; done
bench --pass bwd --peers $all --samples 6 --output "$folder/$gpu-gradients-sweep.json" "$@"
exit $failed
