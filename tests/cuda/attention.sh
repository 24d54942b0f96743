#!/usr/bin/env bash
# Attention on a device against the formula in double: all types and layouts; the same bits in
# whatever order threads and blocks run.
# Usage: attention.sh [simulator|device] (from run.sh); prints ok and not ok lines. For a device, with
# kernels of libgradcc_rt_cuda.a and for CUDA_ARCH (native): attention.sh build compiles both programs,
# which attention.sh time, a line for each kernel with what it reaches, and the same by cuDNN where it
# is (CUDNN_FOLDERS, if the loader does not find it), and device find.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
export BUILD
mode=${1:-simulator}
cudnn="packed tiles packed-32 all-keys packed-128 wide-values grouped-tiles grouped-32 large large-all"
short="more-keys odd one long-heads alike grouped grouped-odd grouped-none large negative no-keys"
work=$BUILD/tests-cuda/attention
[ "$mode" = simulator ] || work=$BUILD/device/attention
[ "$mode" = simulator ] && rm -rf "$work"
mkdir -p "$work"
library=$BUILD/libgradcc_rt_cuda.a

# by PROGRAM...: with the attention of cuDNN
by() {
    RT_ATTENTION=cudnn LD_LIBRARY_PATH=${CUDNN_FOLDERS:+$CUDNN_FOLDERS:}${LD_LIBRARY_PATH:-} "$@"
}

# compile PROGRAM: its file is FILE.cu here; on a device one that is newer than its parts stays
compile() {
    # shellcheck disable=SC2086
    if [ "$mode" = simulator ]; then
        ../cudasim/cc.sh -Wno-missing-field-initializers -o "$work/$1" "$1.cu" \
            $root/runtime/cuda/{attention*,cudnn*,library,scatter}.cu
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
    "$work/time_attention" 64 1024 || exit 1
    echo "by cuDNN:"
    by "$work/time_attention" 64 1024 || echo "not measured"
    exit 0
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

# by_cudnn TYPE CASE...: these are its, and right
by_cudnn() {
    local type=$1 case found; shift
    for case in "$@"; do
        found=$(by "$work/test_attention" "$type" "$case" 2>&1)
        case $found in
        "ok $case "*", cuDNN "*": 2 shapes") ;;
        *) echo "not ok cuda/attention/cudnn-$type: $case: $found"; return ;;
        esac
    done
    echo "ok cuda/attention/cudnn-$type"
}

# falls_back CASE WHY [ENVIRONMENT]: own kernels do it, and it is told why
falls_back() {
    local found
    found=$(env ${3:-} RT_ATTENTION=cudnn "$work/test_attention" bf16 "$1" 2>&1)
    case $found in
    "ok $1 "*" shapes; own kernels for "[12]": $2"*) echo "ok cuda/attention/own-$1${3:+-$3}" ;;
    *) echo "not ok cuda/attention/own-$1${3:+-$3}: $found" ;;
    esac
}

if "$work/time_attention" 1 64 > "$work/time" 2>&1; then # a rehearsal
    echo "ok cuda/attention/time"
else
    echo "not ok cuda/attention/time: $(tail -n 1 "$work/time")"
fi
if [ "$mode" = device ]; then
    for type in bf16 f16 f32 f64; do run $type & done # the host's formula takes the time
    wait
    if by "$work/test_attention" bf16 packed 2>&1 | grep -q 'cuDNN.* is missing'; then
        echo "skip cuda/attention/cudnn: no cuDNN here"
    else
        # shellcheck disable=SC2086
        for type in bf16 f16; do by_cudnn $type $cudnn & done
        wait
    fi
    exit
fi
# shellcheck disable=SC2086
{ run bf16; order bf16 packed fewer-keys narrow-values grouped; run f64 $short; } &
# shellcheck disable=SC2086
{ run f32; order f32 odd; run f16 $short packed packed-32 packed-128 wide-values grouped-long; }
wait
# shellcheck disable=SC2086
{ by_cudnn bf16 $cudnn; by_cudnn f16 packed grouped-tiles wide-values; }
falls_back more-keys 'queries and keys differ in number under a causal mask'
falls_back long-heads 'heads are no multiple of 8 up to 128'
falls_back apart 'rows do not start at multiples of 16 bytes'
falls_back negative 'the scale is not above 0'
said=$(RT_ATTENTION=cudnn "$work/test_attention" bf16 shifted 2>&1)
case $said in
'test.model:1: attention does not start at a multiple of 16 bytes, as cuDNN wants it: own kernels compute it'*"
ok shifted "*) echo "ok cuda/attention/own-shifted" ;;
*) echo "not ok cuda/attention/own-shifted: $said" ;;
esac
said=$(RT_ATTENTION=cudnn "$work/test_attention" bf16 plans 2>&1 | tr '\n' ' ')
if [ "$said" = 'attention comes in more than 64 shapes: own kernels compute the others 64 plans of 70, 64 kept ' ]; then
    echo "ok cuda/attention/many-plans"
else echo "not ok cuda/attention/many-plans: $said"; fi
falls_back no-keys 'there is nothing to compute'
falls_back packed 'cuDNN has no engine for it' CUDASIM_CUDNN=none
falls_back packed 'no engine of cuDNN gives the same bits each time' CUDASIM_CUDNN=atomic
falls_back packed 'no engine of cuDNN gives the same bits each time' CUDASIM_CUDNN=many
falls_back packed 'cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED' \
    CUDASIM_FAIL=cudnnBackendFinalize:9:CUDNN_STATUS_NOT_SUPPORTED
