#!/usr/bin/env bash
# NCCL by one rank: each call that exchange_nccl.cu makes, alone and in a CUDA graph; in the simulator,
# and the real library, where it is: that it loads and has all functions, for which no GPU is needed.
# Usage: nccl.sh [simulator|device] (from run.sh); prints ok, not ok and skip lines. device: all of it
# by the real library on a GPU, with libgradcc_rt_cuda.a, for CUDA_ARCH (native); NCCL_LIBRARY, if the
# loader does not find it.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
export BUILD
mode=${1:-simulator} library=$BUILD/libgradcc_rt_cuda.a
nvcc=${NVCC:-$(PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin command -v nvcc)}
work=$BUILD/tests-cuda/nccl
mkdir -p "$work"

bad() { echo "not ok cuda/nccl/$1: $2"; }

# real ARCHITECTURE: the program with the runtime of GPUs, by nvcc
real() {
    # shellcheck disable=SC2046
    "$nvcc" -std=c++20 -arch="$1" -diag-suppress 177 -I$root/runtime -I$root/runtime/cuda -I$root/runtime/cuda/ptx \
        -o "$work/real" test_nccl.cu "$library" $(cat "$BUILD/rt_cuda.libs") > "$work/real.log" 2>&1 && return
    bad link "$(grep -m1 -E 'error|undefined' "$work/real.log" || tail -n 1 "$work/real.log")"
    return 1
}
# load PROGRAM: by each NCCL that is here
load() {
    local file said tried=
    for file in "$(dirname "$(dirname "$(realpath "${nvcc:-/}")")")"/lib*/libnccl.so.2 \
        "$(python3 -c 'import nvidia.nccl as n; print(list(n.__path__)[0])' 2> /dev/null)/lib/libnccl.so.2"; do
        [ -e "$file" ] || continue
        case " $tried " in *" $(realpath "$file") "*) continue ;; esac
        tried+=" $(realpath "$file")"
        said=$(RT_NCCL=$file timeout 60 "$1" load 2>&1)
        case $said in "ok cuda/nccl/load-2."*) echo "$said" ;; *) bad load "$file: $(echo "$said" | tail -n 1)" ;; esac
    done
    [ -n "$tried" ] || echo "skip cuda/nccl/load: no NCCL here"
}

if [ "$mode" = device ]; then
    real "${CUDA_ARCH:-native}" || exit 1
    RT_NCCL=${RT_NCCL:-${NCCL_LIBRARY:-}} timeout 60 "$work/real"
    exit
fi
if ! ../cudasim/cc.sh --runtime -w -o "$work/simulated" test_nccl.cu > "$work/simulated.log" 2>&1; then
    bad simulated "$(grep -m1 -E 'error|undefined' "$work/simulated.log")"
    exit
fi
for way in CUDASIM_STREAMS=late CUDASIM_STREAMS=early NCCL_COMM_BLOCKING=1; do
    if ! env $way timeout 60 "$work/simulated" > "$work/$way" 2>&1 || [ "$(grep -c '^ok' "$work/$way")" -ne 5 ]; then
        bad "$way" "$(grep -v '^ok' "$work/$way" | tail -n 1)"
    fi
done
grep '^ok' "$work/CUDASIM_STREAMS=late"
if [ -e "$library" ] && [ -n "$nvcc" ]; then
    real sm_90 && echo "ok cuda/nccl/link" && load "$work/real"
else
    echo "skip cuda/nccl/link: no libgradcc_rt_cuda.a here"
    load "$work/simulated"
fi
exit 0
