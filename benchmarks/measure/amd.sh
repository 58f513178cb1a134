#!/usr/bin/env bash
# Section 4 of the report, on a machine with an MI210: benchmarks/measure/amd.sh DIR
#
# Answers first, then times, then counters, then the report (DIR/report.md). DIR may hold records of a GTX 1080 already
# (hw4 bench flash t01-t30 --output DIR/gtx1080-flash.json there): the report compares the two.
# On a cluster: srun -p amd -N1 -n1 --gres=gpu:1 benchmarks/measure/amd.sh DIR
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: $0 DIR" >&2
    exit 2
fi
dir=$1
here=$(cd "$(dirname "$0")/../.." && pwd)
matrix=$here/kernels/hip/matrix.cu
cases=${CASES:-t01-t30}
mkdir -p "$dir/switches"

run() {  # a command, kept with what it prints
    printf '$ %s\n' "$*" | tee -a "$dir/commands.txt"
    "$@" 2>&1 | tee -a "$dir/commands.txt"
}

run hw4 doctor
run hw4 explain
run hw4 selftest flash --minutes 0.5

# The same kernel as on the GTX 1080; the optimisation for AMD alone; and that without each of its parts.
for switch in SWIZZLED LAZY; do
    sed "s/^#define $switch .*/#define $switch 0/" "$matrix" > "$dir/switches/without_${switch,,}.cu"
    sed -i "s/^matrix(const Params/without_${switch,,}(const Params/" "$dir/switches/without_${switch,,}.cu"
done
cp "$here/kernels/hip/matrix.cuh" "$dir/switches/"
run hw4 bench flash "$matrix" "$cases" --output "$dir/mi210-kernels.json"
run hw4 bench "$matrix" "$dir"/switches/without_*.cu t28,t29 --output "$dir/mi210-switches.json"

# rocprofv3 counts in passes: what does not fit into one is another run. Times are from a run without counters.
if command -v rocprofv3 > /dev/null; then
    hw4 gen t28 --dir "$dir"
    counters="OccupancyPercent:SQ_LDS_IDX_ACTIVE SQ_LDS_BANK_CONFLICT:"
    counters+="TCP_TCC_READ_REQ_sum TCP_TCC_WRITE_REQ_sum:FETCH_SIZE WRITE_SIZE:VALUUtilization"
    for kernel in flash "$matrix"; do
        name=$(basename "$kernel" .cu)
        pass=0
        IFS=: read -ra passes <<< "$counters"
        for group in "${passes[@]}"; do
            pass=$((pass + 1))
            # shellcheck disable=SC2086 - a group is several words
            run rocprofv3 --pmc $group --output-format csv -d "$dir" -o "$name-$pass" -- \
                hw4 run "$dir/t28" "$dir/t28.$name" --device cuda --kernel "$kernel"
        done
        rm -f "$dir/t28.$name"
    done
else
    echo "rocprofv3 is not installed: no counters" | tee -a "$dir/commands.txt"
fi
if command -v rocprof-compute > /dev/null; then
    run rocprof-compute profile -n matrix -p "$dir/rocprof-compute" -- \
        hw4 run "$dir/t28" "$dir/t28.out.own" --device cuda --kernel "$matrix"
    rm -f "$dir/t28.out.own"
fi

run hw4 report "$dir"
