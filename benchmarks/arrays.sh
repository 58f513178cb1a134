#!/bin/sh
# The records of attention of arrays on the GPU that is here, ours and torch's, each answer checked against float64: some 100 s.
# Usage: benchmarks/arrays.sh FOLDER GPU [PYTHON] writes FOLDER/GPU-arrays.json (16 bits: what answers by itself, cuDNN, FA2),
# GPU-mma.json (half_mma and FA2, which use the same instructions) and GPU-masks.json (float32, with and without a mask).
# Where there is no git history, HW4_COMMIT names the commit.
set -e
folder=$1 gpu=$2 python=${3:-python3}

# bench RECORD WORKLOADS OPTIONS...: workloads are separated by semicolons
bench() {
    record=$folder/$gpu-$1.json workloads=$2
    shift 2
    while [ -n "$workloads" ]; do
        set -- "$@" --workload "${workloads%%;*}"
        case $workloads in *\;*) workloads=${workloads#*;} ;; *) workloads= ;; esac
    done
    "$python" -m hw4cli bench "$@" --output "$record"
}

few='B=1 H=32 KVH=8 N=1 Nk=32768 d=128 dtype=bf16;B=4 H=32 KVH=8 N=1 Nk=32768 d=128 dtype=bf16'
bench arrays "tilelang;tilelang-causal;lm8k;lm8k-causal;lm16k;lm16k-wide;heads64;t22-half;t30-half;t29-half;t12-half;t11-half;\
gqa;chunk;decode;$few" --peers cudnn,fa2 --samples 15 --pause 0.03 --sustained
bench mma 't29-half;heads64;lm16k;lm8k;lm8k-causal' half_mma --peers fa2 --samples 15 --pause 0.01
words='dtype=fp32 dist=uniform'
masks=
for sizes in 'B=4 N=16384 d=64' 'B=2 N=32768 d=64' 'B=4 N=32768 d=32' 'B=16 N=8192 d=64' 'B=1 N=8192 d=64'; do
    masks="$masks;$sizes $words;$sizes $words causal"
done
bench masks "${masks#;}" split exact flash --samples 10
