#!/usr/bin/env bash
# The CUDA target: compiled by nvcc for two architectures, and run in the simulator (tests/cudasim)
# against the evaluator, the C target and plain loops. Parts: *.sh beside this file, but those for a
# machine with a GPU (device.sh, sanitize.sh).
set -u
cd "$(dirname "$0")"
for part in nvcc products epilogue attention cudnn scatter faults oracle train alike order nccl ranks; do
    ./$part.sh
done
