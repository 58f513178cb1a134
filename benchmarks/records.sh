# What the scripts that make records share. From FOLDER GPU [PYTHON], the environment's WHAT, and `made` and `more`, the names
# of the records that are made by default or only if WHAT names them, it sets folder, gpu, python, what and failed.
known="$made $more" what=${WHAT:-$made} failed=0
if [ $# -lt 2 ] || [ $# -gt 3 ]; then
    echo "usage: $0 FOLDER GPU [PYTHON], as in: $0 benchmarks h200" >&2
    exit 2
fi
gpu=$2 python=${3:-python3}
for record in $what; do
    case " $known " in *" $record "*) ;; *)
        echo "$0: there is no record $record: WHAT names some of: $known" >&2
        exit 2
        ;;
    esac
done
if ! command -v "$python" >/dev/null; then
    echo "$0: there is no $python: name a Python that has hw4cli" >&2
    exit 2
fi
mkdir -p "$1" && folder=$(realpath "$1") && python=$(command -v "$python") || exit
case $python in /*) ;; *) python=$PWD/$python ;; esac
cd "$(dirname "$(realpath "$0")")/.." || exit

# Whether a record is to be made.
wanted() {
    case " $what " in *" $1 "*) ;; *) return 1 ;; esac
}
# Python with these arguments. What the machine lacks, no other record will find: that is the end.
run() {
    "$python" "$@"
    case $? in
    0) ;;
    3) exit 3 ;;
    *) failed=1 ;;
    esac
}
