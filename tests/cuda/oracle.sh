#!/usr/bin/env bash
# Emitted CUDA C against the evaluator in fp64, as tests/run does it for C: in the simulator, or on a
# device. Usage: oracle.sh simulator|cuda [quick|all]; on a device the exit code is 1 if any is not ok.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
target=${1:-simulator} what=${2:-all}
case $target in
simulator) ;;
cuda) target=device ;;
*) echo "oracle.sh: simulator or cuda, not $target" >&2; exit 2 ;;
esac
export TARGET=$target BUILD NVCC=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}
[ "$target" = device ] && export JOBS=${JOBS:-$(nproc)}
run() {
    case $what in
    quick)
        AREA=cuda/$target VARIANTS="fp32 bf16" ../run/run.sh gpt.model shapes.model classes.model head.model ;;
    all)
        AREA=cuda/$target VARIANTS="${VARIANTS:-fp64 fp32 bf16 bf16-masterless fp16}" ../run/run.sh ;;
    *) echo "oracle.sh: quick or all, not $what" >&2; exit 2 ;;
    esac
}
if [ "$target" = simulator ]; then run; exit; fi
out=$(mktemp); trap 'rm -f "$out"' EXIT
run | tee "$out"                                # line by line, for a run that is cut
grep -q '^ok ' "$out" && ! grep -q '^not ok ' "$out"
