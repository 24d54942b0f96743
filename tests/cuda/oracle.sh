#!/usr/bin/env bash
# Emitted CUDA C against the evaluator in fp64, as tests/run does it for C: in the simulator, or on a
# device. Usage: oracle.sh simulator|device [quick|all]
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
target=${1:-simulator} what=${2:-all}
export TARGET=$target BUILD NVCC=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}
[ "$target" = device ] && export JOBS=${JOBS:-$(nproc)}
case $what in
quick)
    AREA=cuda/$target VARIANTS="fp32 bf16" ../run/run.sh gpt.model shapes.model classes.model head.model ;;
all)
    AREA=cuda/$target VARIANTS="${VARIANTS:-fp64 fp32 bf16 bf16-masterless fp16}" ../run/run.sh ;;
esac
