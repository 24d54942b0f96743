#!/usr/bin/env bash
# Attention on a device against the formula in double: all types and layouts; the same bits in
# whatever order threads and blocks run.
# Usage: attention.sh [simulator|device] (from run.sh); prints ok and not ok lines. For a device, with
# kernels of libgradcc_rt_cuda.a and for CUDA_ARCH (native): attention.sh build compiles both programs,
# which attention.sh time, a line for each kernel with what it reaches, and device find.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
export BUILD
mode=${1:-simulator} short="more-keys odd one long-heads alike grouped grouped-odd grouped-none large negative no-keys"
work=$BUILD/tests-cuda/attention
[ "$mode" = simulator ] || work=$BUILD/device/attention
[ "$mode" = simulator ] && rm -rf "$work"
mkdir -p "$work"
library=$BUILD/libgradcc_rt_cuda.a

# compile PROGRAM: its file is FILE.cu here; on a device one that is newer than its parts stays
compile() {
    # shellcheck disable=SC2086
    if [ "$mode" = simulator ]; then
        ../cudasim/cc.sh -Wno-missing-field-initializers -o "$work/$1" "$1.cu" \
            $root/runtime/cuda/{attention*,scatter}.cu
    elif [ "$work/$1" -nt "$library" ] && [ "$work/$1" -nt "$1.cu" ]; then
        return
    else
        "${NVCC:-nvcc}" -std=c++20 -O3 --fmad=false -arch="${CUDA_ARCH:-native}" -diag-suppress 177 \
            -I$root/runtime -I$root/runtime/cuda -I$root/runtime/cuda/ptx -o "$work/$1" "$1.cu" \
            "$library"
    fi > "$work/$1.log" 2>&1 && return
    grep -m5 error "$work/$1.log" >&2
    echo "not ok cuda/attention: $1 does not compile: $(grep -m1 error "$work/$1.log" || tail -n 1 "$work/$1.log")"
    exit 1
}

if [ "$mode" = time ]; then
    compile time_attention
    "$work/time_attention" 64 1024
    exit
fi
compile test_attention & first=$!
compile time_attention; wait $first || exit 1
[ "$mode" = build ] && exit

# run TYPE [CASE...]: these cases, or all; leaves their lines in $work/TYPE
run() {
    local type=$1 rc=0 case; shift
    if [ $# -eq 0 ]; then
        "$work/test_attention" "$type" > "$work/$type" 2> "$work/$type.err" || rc=$?
    else
        : > "$work/$type"
        for case in "$@"; do
            "$work/test_attention" "$type" "$case" >> "$work/$type" 2> "$work/$type.err" || { rc=$?; break; }
        done
    fi
    if [ $rc -eq 0 ]; then
        echo "ok cuda/attention/$type"
    else
        cat "$work/$type.err" >&2
        echo "not ok cuda/attention/$type: $(cat "$work/$type" "$work/$type.err" | grep -m1 -v '^ok ')"
    fi
}

# order TYPE CASE...: the same lines in another order of threads and blocks
order() {
    local type=$1 order case; shift
    for order in reverse 7; do
        for case in "$@"; do
            if ! CUDASIM_ORDER=$order "$work/test_attention" "$type" "$case" 2>&1 |
                 cmp -s - <(grep "^ok $case " "$work/$type"); then
                echo "not ok cuda/attention/order-$type: other results for $case in order $order"
                return
            fi
        done
    done
    echo "ok cuda/attention/order-$type"
}

if "$work/time_attention" 1 64 > "$work/time" 2>&1; then # a rehearsal
    echo "ok cuda/attention/time"
else
    echo "not ok cuda/attention/time: $(tail -n 1 "$work/time")"
fi
if [ "$mode" = device ]; then
    for type in bf16 f16 f32 f64; do run $type & done # the host's formula takes the time
    wait
    exit
fi
# shellcheck disable=SC2086
{ run bf16; order bf16 packed fewer-keys narrow-values grouped; run f64 $short; } &
# shellcheck disable=SC2086
{ run f32; order f32 odd; run f16 $short packed packed-32 packed-128 wide-values grouped-long; }
wait
