#!/bin/sh
# Records of attention of arrays on the GPU that is here, ours and torch's, each answer checked against float64: some 2 min.
# Usage: benchmarks/arrays.sh FOLDER GPU [PYTHON] writes FOLDER/GPU-arrays.json (16 bits: what answers by itself, cuDNN,
# FA2), GPU-mma.json (half_mma and FA2, which use the same instructions), GPU-masks.json (float32, with and without a
# mask), GPU-shared.json (shared heads, short rows), GPU-decode.json (few rows and many keys, beside a copy),
# GPU-exactness.json (16 bits: errors; 10 s). WHAT="mma decode" makes those two; WHAT="schedules limits"
# FOLDER/figures/GPU-schedules.json (half's own tiling in each schedule; 30 s) and FOLDER/figures/GPU-limits.json (what
# Nsight Compute says of each kernel; a minute).
# Where there is no git history, HW4_COMMIT names the commit.
made="arrays mma masks shared decode exactness" more="schedules limits"
. "$(dirname "$(realpath "$0")")/records.sh"

# bench RECORD WORKLOADS OPTIONS...: workloads are separated by semicolons
bench() {
    wanted "$1" || return 0
    record=$folder/$gpu-$1.json workloads=$2
    shift 2
    while [ -n "$workloads" ]; do
        set -- "$@" "${workloads%%;*}"
        case $workloads in *\;*) workloads=${workloads#*;} ;; *) workloads= ;; esac
    done
    run -m hw4cli bench "$@" --output "$record"
}

bench arrays 'tilelang;tilelang-causal;lm8k;lm8k-causal;lm16k;lm16k-wide;heads64;t29-half;t12-half;t11-half' \
    --peers cudnn,fa2 --samples 10 --pause 0.03 --sustained
bench mma 't29-half;heads64;lm16k;lm8k;lm8k-causal' half_mma --peers fa2 --samples 10 --pause 0.01
words='dtype=fp32 dist=uniform'
masks=
for sizes in 'B=4 N=16384 d=64' 'B=2 N=32768 d=64' 'B=4 N=32768 d=32' 'B=16 N=8192 d=64' 'B=1 N=8192 d=64'; do
    masks="$masks;$sizes $words;$sizes $words causal"
done
bench masks "${masks#;}" split exact flash --samples 10
bench shared 'gqa;chunk;B=1 H=4800 N=128 d=128 dtype=fp16;B=1 H=19200 N=64 d=64 dtype=fp16' --peers cudnn,fa2 --samples 10
wanted decode && run -m benchmarks.decoding --output "$folder/$gpu-decode.json"
# The largest error of all elements of 1024 rows, and that of the norms.
numbers=
for sizes in 'd=64 dtype=fp16 dist=uniform' 'd=128 dtype=fp16 dist=uniform' 'd=64 dtype=bf16 dist=uniform' \
    'd=128 dtype=bf16 dist=uniform' 'd=64 dtype=fp16' 'd=128 dtype=fp16' 'd=64 dtype=bf16' 'd=128 dtype=bf16'; do
    numbers="$numbers;H=4 N=256 Nk=8192 $sizes"
done
bench exactness "${numbers#;}" half half_mma half_split half_cores --peers cudnn,fa2 --samples 3
for record in schedules limits; do
    wanted $record || continue
    mkdir -p "$folder/figures"
    run -m benchmarks.ofarrays $record --output "$folder/figures/$gpu-$record.json"
done
exit $failed
