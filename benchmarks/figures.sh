#!/bin/sh
# The records behind figures over N, by tile, and of energy: benchmarks/figures.sh DIR PREFIX [PARTS]
# DIR/PREFIX-sweep-d64.json and three more, PREFIX-rows.json, PREFIX-tiles.json, PREFIX-energy.json, PREFIX-energy-half.json.
# PARTS: of sweep64, sweep32, tiles, energy; all by default. Each takes 20 to 70 seconds on an H200.
set -u
failed=0
if [ $# -lt 2 ]; then
    echo "usage: $0 DIR PREFIX [PARTS], as in: $0 benchmarks/figures h200" >&2
    exit 2
fi
folder=$1 prefix=$2
shift 2
[ $# -gt 0 ] || set -- sweep64 sweep32 tiles energy
root=$(dirname "$(dirname "$(realpath "$0")")")
mkdir -p "$folder" && folder=$(realpath "$folder") || exit
# What the machine lacks, no other record will find: that is the end.
hw4() {
    (cd "$root" && ${PYTHON:-python3} -m hw4cli "$@" >&2)
    case $? in
    0) ;;
    3) exit 3 ;;
    *) failed=1 ;;
    esac
}
# 32768 rows in all: as many bytes for each N.
sweep() {
    shapes=
    for N in 128 256 512 1024 2048 4096 8192 16384 32768; do
        shapes="$shapes --shape $((32768 / N)),$N,$1"
    done
    ladder="naive smallbr shared warp float4 flash exact split float64"
    hw4 bench $ladder $shapes --samples 5 --output "$folder/$prefix-sweep-d$1.json"
    hw4 bench $ladder $shapes --causal --samples 5 --output "$folder/$prefix-sweep-d$1-causal.json"
}
for part in "$@"; do
    case $part in
    sweep64) sweep 64 ;;
    sweep32) sweep 32 ;;
    tiles)
        hw4 bench smallbr --cases t28 --tile 1x32 --tile 2x32 --tile 4x32 --tile 8x32 --tile 16x32 --tile 32x32 \
            --samples 5 --output "$folder/$prefix-rows.json"
        hw4 bench float4 flash --cases t28,t29 --tile 64x64 --tile 32x32 --tile 64x32 --tile 32x64 --tile 128x32 \
            --tile 128x64 --tile 128x16 --samples 10 --output "$folder/$prefix-tiles.json"
        ;;
    energy)
        hw4 bench naive smallbr shared warp float4 flash exact split --cases t28 --sustained --samples 5 \
            --output "$folder/$prefix-energy.json"
        hw4 bench half half_mma --workload heads64 --workload lm8k --sustained --samples 10 --peers cudnn,fa2 \
            --output "$folder/$prefix-energy-half.json"
        ;;
    *)
        echo "$0: $part is none of sweep64, sweep32, tiles, energy" >&2
        exit 2
        ;;
    esac
done
exit $failed
