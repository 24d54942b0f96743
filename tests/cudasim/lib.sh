#!/usr/bin/env bash
# The libraries of the simulator: cuBLASLt, cuDNN, machine instructions, NCCL between processes. Called by
# run.sh, which sets BUILD. Programs lie in lib/; those that have a fault planted must report it.
set -u
cd "$(dirname "$0")"
work=$BUILD/cudasim/tests
mkdir -p "$work"

# build NAME [SOURCE...]: lib/NAME.cu as a program
build() {
    ./cc.sh -Wno-missing-field-initializers -o "$work/$1" "lib/$1.cu" "${@:2}" 2> "$work/$1.err" && return
    cat "$work/$1.err" >&2
    echo "not ok cudasim/$1: does not compile"
    return 1
}

# passes NAME COMMAND...: it prints nothing and its exit code is 0
passes() {
    local name=$1 rc=0
    shift
    timeout 60 env "$@" > "$work/out" 2>&1 || rc=$?
    if [ $rc -eq 0 ] && [ ! -s "$work/out" ]; then echo "ok cudasim/$name"
    else echo "not ok cudasim/$name: exit code $rc, $(head -n 1 "$work/out")"; fi
}

# reports NAME TEXT COMMAND...: exit code 99 with TEXT; 0 where TEXT is "status N", 1 where a call
# "gives N"
reports() {
    local name=$1 text=$2 rc=0 want=99
    shift 2
    timeout 60 env "$@" > "$work/out" 2>&1 || rc=$?
    case $text in status*) want=0 ;; *gives*) want=1 ;; esac
    if [ $rc -ne $want ]; then echo "not ok cudasim/$name: exit code $rc, $(head -n 1 "$work/out")"
    elif grep -qF -e "$text" "$work/out"; then echo "ok cudasim/$name"
    else echo "not ok cudasim/$name: not '$text' but $(head -n 1 "$work/out")"; fi
}

# orders NAME: the program prints lines `ok ...`, the same under several orders
orders() {
    local order
    for order in CUDASIM_ORDER=1 CUDASIM_ORDER=reverse CUDASIM_STREAMS=early CUDASIM_STREAMS=5; do
        env "$order" "$work/$1" > "$work/out" 2>&1 ||
            echo "not ok lib/$1: $order: exit code $?" >> "$work/out"
        if grep -v '^ok ' "$work/out"; then return; fi
    done
    sed 's|^ok |ok cudasim/|' "$work/out"
}

# without ENVIRONMENT COUNT: so many of the cases have no algorithm, the others are right
without() {
    local found
    env "$1" "$work/lt" > "$work/out"
    found=$(grep -c 'there is no algorithm' "$work/out")
    if [ "$found" -eq "$2" ] && [ "$(grep -c '^not ok' "$work/out")" -eq "$2" ]; then
        echo "ok cudasim/lt/$1"
    else
        echo "not ok cudasim/lt/$1: $found cases without an algorithm, not $2"
    fi
}

if build lt; then
    orders lt
    without CUDASIM_CUBLASLT=plain 10
    without CUDASIM_ARCH=70 8
fi
if build lt_faults; then
    while read -r name text; do
        reports "lt/$name" "$text" "$work/lt_faults" "$name"
    done < <("$work/lt_faults")
    reports lt/injected 'ends with a CUBLAS_STATUS_' \
        CUDASIM_FAIL=cublasLtMatmulAlgoGetHeuristic:1:cudaErrorUnknown "$work/lt_faults" misaligned
    reports lt/failing 'gives 13' CUDASIM_FAIL=cublasLtMatmul:1:CUBLAS_STATUS_EXECUTION_FAILED \
        "$work/lt_faults" no-event
    reports lt/missing 'cublasLtCreate(&w.handle) gives 1' CUDASIM_CUBLASLT=missing \
        "$work/lt_faults" misaligned
    reports lt/unknown-setting 'CUDASIM_CUBLASLT is' CUDASIM_CUBLASLT=no "$work/lt_faults" freed
fi

if build dnn_faults ../../runtime/cuda/cudnn_graph.cu; then
    while read -r name text; do
        reports "dnn/$name" "$text" "$work/dnn_faults" "$name"
    done < <("$work/dnn_faults")
    reports dnn/injected 'CUDASIM_FAIL: cudnnCreate ends with a CUDNN_STATUS_' \
        CUDASIM_FAIL=cudnnCreate:1:cudaErrorUnknown "$work/dnn_faults" unwritten
    reports dnn/unknown-setting 'CUDASIM_CUDNN is' CUDASIM_CUDNN=no "$work/dnn_faults" unwritten
fi

if build ptx; then
    orders ptx
    while read -r name text; do
        reports "ptx/$name" "$text" "$work/ptx" "$name"
    done < <("$work/ptx" faults)
    # Each byte of a late copy counts once; ldmatrix of rows of 32 bytes has conflicts of two banks.
    CUDASIM_TRAFFIC=$work/ptx.txt "$work/ptx" > /dev/null
    found=$(awk '$1 == "from_shared" { print $3, $4, $9 }' "$work/ptx.txt")
    if [ "$found" = '2048 1024 1.50' ]; then echo "ok cudasim/ptx/traffic"
    else echo "not ok cudasim/ptx/traffic: $found"; fi
fi

if build nccl; then
    for ranks in 2 3 4; do
        for streams in late early 7; do
            passes "nccl/$ranks-ranks-$streams" CUDASIM_STREAMS=$streams "$work/nccl" $ranks all
        done
    done
    for name in missing watchdog not-waited dead idle not-blocking too-soon; do passes "nccl/$name" "$work/nccl" 3 $name; done
    for name in devices same-device; do
        passes "nccl/$name" CUDASIM_DEVICES=3 "$work/nccl" 3 $name
    done
    passes nccl/injected CUDASIM_FAIL=ncclAllReduce:2:ncclSystemError "$work/nccl" 2 injected
    reports nccl/count '20 float32, sum, rank 0 ncclAllReduce of 19' "$work/nccl" 2 count
    reports nccl/kind 'rank 0 ncclBroadcast of 20' "$work/nccl" 2 kind
    reports nccl/pair-count 'rank 1 ncclRecv of 20 float32 from rank 0' \
        CUDASIM_NCCL_TIMEOUT=1 "$work/nccl" 2 pair-count
    reports nccl/no-group 'has waited 1 s for the others' CUDASIM_NCCL_TIMEOUT=1 \
        "$work/nccl" 2 no-group
    reports nccl/hang 'has waited 1 s for the others' CUDASIM_NCCL_TIMEOUT=1 "$work/nccl" 2 hang
    reports nccl/host-pointer 'not in one allocation of the device' "$work/nccl" 2 host-pointer
    reports nccl/overlap 'overlaps the send buffer' "$work/nccl" 2 overlap
    reports nccl/after-end 'was destroyed or aborted before' "$work/nccl" 2 after-end
    reports nccl/no-event 'no event orders the two' "$work/nccl" 2 no-event
    reports nccl/in-progress 'the call before on this communicator is in progress' "$work/nccl" 2 in-progress
    reports nccl/graph-left 'graphs hold 1 operations of this communicator' "$work/nccl" 2 graph-left
    reports nccl/graph-of-one 'ncclAllReduce of 20 float32, sum, in a graph' "$work/nccl" 2 graph-of-one
    reports nccl/unwritten 'reads send buffer' "$work/nccl" 2 unwritten
fi

# The headers say the same as those of CUDA, and the programs compile and link with the real ones.
nvcc=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}
if [ -z "$nvcc" ]; then
    echo "skip cudasim/real: no CUDA toolkit here (nvcc)"
    exit 0
fi
cuda=$(dirname "$(dirname "$(realpath "$nvcc")")")
grep -ohE '\b(cuda[A-Z]|CUBLAS|CUDA_R|nccl[A-Z])[A-Za-z0-9_]+ = ' include/*.h ../../runtime/cuda/nccl_api.h |
    sed 's/\(.*\) = /SHOW(\1)/' | sort -u > "$work/numbers.h"
# numbers SIDE HEADERS: the list of one side
numbers() {
    "${CXX:-g++}" -std=c++20 $2 -I"$work" -o "$work/numbers-$1" lib/numbers.cc \
        2> "$work/numbers.err" &&
        "$work/numbers-$1" > "$work/numbers.$1" && return
    echo "not ok cudasim/real/numbers: $1: $(grep -m1 error "$work/numbers.err")"
    return 1
}
if numbers ours "-Iinclude -I../../runtime" && numbers real "-isystem $cuda/include"; then
    if [ "$(wc -l < "$work/numbers.ours")" -lt 200 ]; then
        echo "not ok cudasim/real/numbers: only $(wc -l < "$work/numbers.ours") names"
    elif diff "$work/numbers.ours" "$work/numbers.real" > "$work/numbers.diff"; then
        echo "ok cudasim/real/numbers"
    else
        echo "not ok cudasim/real/numbers: $(grep -m1 '^[<>]' "$work/numbers.diff")"
    fi
fi
# real NAME LIBRARY
real() {
    if "$nvcc" -std=c++20 -arch=sm_80 -I../../runtime -I../../runtime/cuda/ptx \
        -o "$work/$1-real" "lib/$1.cu" ${2:-} \
        2> "$work/$1-real.err"; then echo "ok cudasim/real/$1"
    else echo "not ok cudasim/real/$1: $(grep -m1 -E 'error|undefined' "$work/$1-real.err")"; fi
}
# Names of the functions in both headers of machine instructions.
functions() { grep -ohE '^(RT_DEVICE|template) .*\brt_[a-z0-9_]+\(' "$1" | sed 's/.*\b\(rt_.*\)(/\1/' | sort; }
if [ "$(functions include/rt_ptx.h)" = "$(functions ../../runtime/cuda/ptx/rt_ptx.h)" ]; then
    echo "ok cudasim/real/rt_ptx.h"
else
    echo "not ok cudasim/real/rt_ptx.h: $(diff <(functions include/rt_ptx.h) \
        <(functions ../../runtime/cuda/ptx/rt_ptx.h) | grep -m1 '^[<>]')"
fi
real lt -lcublasLt
real ptx
if [ -e "$cuda/include/nccl.h" ]; then real nccl -lnccl
else echo "skip cudasim/real/nccl: no NCCL here"; fi
exit 0
