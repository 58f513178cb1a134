#!/bin/sh
# Records behind figures over N and of energy on the GPU that is here, each answer checked against float64.
# Usage: benchmarks/figures.sh FOLDER GPU [PYTHON] writes FOLDER/GPU-RECORD.json for each RECORD: sweep-d64, sweep-d32 and
# the same with -causal behind (kernels on the way up, N = 128 to 32768), rungs-d64 and so on (the other rungs), paper
# (up to N = 8192: it takes seconds beyond), energy, energy-half, rungs-profile. Each takes 15 to 40 s on an H200. Only WHAT
# asks for program-profile, of ./hw4 on t28, and for assignment, of every rung and of a homework's first version on t20.
# WHAT="sweep-d32 energy" makes those two.
# Where there is no git history, HW4_COMMIT names the commit.
made="sweep-d64 sweep-d64-causal sweep-d32 sweep-d32-causal rungs-d64 rungs-d64-causal rungs-d32 rungs-d32-causal paper"
made="$made energy energy-half rungs-profile" more="program-profile assignment"
. "$(dirname "$(realpath "$0")")/records.sh"

bench() {
    run -m hw4cli bench "$@" --samples 5 --output "$folder/$gpu-$record.json"
}
profile() {
    run -m hw4cli profile "$@" --set assignment --set memory --output "$folder/$gpu-$record.json"
}
rungs="naive paper global rowthread smallbr shared fp16qk warp halfwarp halfwarp_strided halfwarp_local halfwarp_keys"
rungs="$rungs halfwarp_unpadded float4 flash split split8 exact"
# over D KERNELS...: on 32768 rows in all, as many bytes for each N
over() {
    d=$1 shapes=
    shift
    for N in 128 256 512 1024 2048 4096 8192 $longest; do shapes="$shapes $((32768 / N)),$N,$d"; done
    bench "$@" $shapes $mask
}

for record in $what; do
    longest="16384 32768" mask=
    case $record in *-causal) mask=--causal ;; esac
    case $record in *d32*) size=32 ;; *) size=64 ;; esac
    case $record in
    rungs-profile) profile $rungs 16,4096,64 ;;
    assignment)
        make students && run -m hw4cli gen t20 --no-answers &&
            profile $rungs --program ./student --program ./student-padded t20 || failed=1
        ;;
    program-profile) make hw4 && run -m hw4cli gen t28 --no-answers && profile --program ./hw4 t28 || failed=1 ;;
    sweep-*) over $size naive smallbr shared warp float4 flash exact split split8 float64 ;;
    rungs-*)
        over $size global rowthread fp16qk halfwarp halfwarp_strided halfwarp_local halfwarp_keys halfwarp_unpadded
        ;;
    paper) longest= && over $size paper ;;
    energy) bench naive smallbr shared warp float4 flash exact split split8 t28 --sustained ;;
    energy-half) bench half half_mma heads64 lm8k --sustained --peers cudnn,fa2 ;;
    esac
done
exit $failed
