#!/bin/sh
# Records of gradients of arrays, ours and torch's, on the GPU that is here. Usage: benchmarks/gradients.sh NAME [PYTHON]
# writes NAME-bwd.json and NAME-both.json (five workloads, the backward pass and both passes: some 60 s), and with SWEEP=1
# NAME-sweep.csv and NAME-sweep.json (N, d, element types, masks: some 3 min). HW4_COMMIT names the commit where there is
# no git history.
set -e
name=$1 python=${2:-python3}
bench() {
    "$python" -m hw4cli bench --peers cudnn,fa2,efficient --pause 0.03 "$@"
}
set -- --workload lm16k --workload heads64 --workload lm8k-causal --workload lm8k --workload "B=4 N=8192 d=64 dtype=fp32"
for pass in bwd both; do
    bench --pass $pass --samples 15 --output "$name-$pass.json" "$@"
done
[ -n "$SWEEP" ] || exit 0
set --
for N in 1024 4096 16384; do for d in 64 128; do for dtype in fp16 bf16 fp32; do for mask in "" causal; do
    set -- "$@" --workload "B=$((32768 / N)) H=8 N=$N d=$d dtype=$dtype $mask"
done; done; done; done
bench --pass bwd --samples 10 --output "$name-sweep.json" --format csv "$@" > "$name-sweep.csv"
