#!/bin/sh
# Records of kernels of files on the GPU that is here, each answer checked against float64.
# Usage: benchmarks/files.sh FOLDER GPU [PYTHON] writes FOLDER/GPU-RECORD.json for each RECORD of split flash split-mma
# ladder rows threads halfwarp tiles, each in 15 to 40 s on an H200. WHAT="split ladder" makes those two. Only WHAT asks
# for heads, thirty (every case), end-to-end (whole programs: the cases' 5 GB in testcases/, and some 5 min) and seq (the
# programs that compute on one core); and for tuning, of which FOLDER/tuned gets GPU.json (tuned: every case, quick),
# GPU-full.json (tuned-full: every tile for the cases that count; what was cut off has the first of them) and
# GPU-flash.json (tuned-flash: of flash alone).
# Where there is no git history, HW4_COMMIT names the commit.
made="split flash split-mma ladder rows threads halfwarp tiles" more="heads thirty end-to-end seq tuned tuned-full tuned-flash"
. "$(dirname "$(realpath "$0")")/records.sh"
large="t11,t12,t21,t22,t24,t25,t27,t28,t29,t30 1,8192,64 1,8192,32"
heads=
for d in 96 128; do
    for sizes in 9600,128 500,2048 100,4096 4,16384 1,8192; do heads="$heads $sizes,$d"; done
done

bench() {
    run -m hw4cli bench "$@" --output "$folder/$gpu-$record.json"
}

tune() {
    mkdir -p "$folder/tuned"
    run -m hw4cli tune "$@" --no-keep --output "$folder/tuned/$gpu${record#tuned}.json"
}

for record in $what; do
    case $record in
    split) bench split split8 exact flash $large --peers torch --samples 20 ;;
    flash) bench flash $large --peers torch --samples 20 ;;
    split-mma)
        run -m benchmarks.without_warpgroups --output "$folder/$gpu-$record.json"
        ;;
    ladder) bench all t28 --samples 6 ;;
    rows) bench smallbr t28 --tile 1x32 --tile 2x32 --tile 4x32 --tile 8x32 --tile 16x32 --samples 10 ;;
    threads)
        bench global rowthread t28 --tile 32x4 --tile 32x8 --tile 32x16 --tile 32x32 --tile 128x8 --samples 10
        ;;
    halfwarp)
        bench halfwarp halfwarp_keys t28 --tile 128x16 --tile 128x32 --tile 128x64 --tile 64x32 --samples 10
        ;;
    tiles)
        bench float4 flash t28,t29 --tile 64x64 --tile 32x32 --tile 64x32 --tile 32x64 --tile 128x32 \
            --tile 128x64 --tile 128x16 --samples 10
        ;;
    heads) bench split exact flash $heads ;;
    thirty) bench split split8 exact flash t01-t30 ;;
    tuned) tune --quick t01-t30 ;;
    tuned-full) tune t12,t28,t29,t30 ;;
    tuned-flash) tune flash t28 ;;
    seq)
        make seq && run -m hw4cli gen t02,t06,t10 && bench t02,t06,t10 --samples 3 \
            --program ./seq-attention --program ./seq-flashattention || failed=1
        ;;
    end-to-end)
        make hw4 && run -m hw4cli gen t01-t30 && bench t01-t30 --program ./hw4 || failed=1
        ;;
    esac
done
exit $failed
