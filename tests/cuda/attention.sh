#!/usr/bin/env bash
# Attention on a device against the formula in double, in the simulator: all types and layouts; the
# same bits in whatever order threads and blocks run.
# Usage: attention.sh (from run.sh); prints ok, not ok and skip lines.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
export BUILD
work=$BUILD/tests-cuda/attention
rm -rf "$work"; mkdir -p "$work"

if ! ../cudasim/cc.sh -Wno-missing-field-initializers -o "$work/attention" test_attention.cu \
        "$root"/runtime/cuda/attention*.cu > "$work/cc.log" 2>&1; then
    grep -m5 error "$work/cc.log" >&2
    echo "not ok cuda/attention: does not compile for the simulator: $(grep -m1 error "$work/cc.log")"
    exit
fi

# run TYPE [CASE...]: these cases, or all; leaves their lines in $work/TYPE
run() {
    local type=$1 rc=0 case; shift
    if [ $# -eq 0 ]; then
        "$work/attention" "$type" > "$work/$type" 2> "$work/$type.err" || rc=$?
    else
        : > "$work/$type"
        for case in "$@"; do
            "$work/attention" "$type" "$case" >> "$work/$type" 2> "$work/$type.err" || { rc=$?; break; }
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
            if ! CUDASIM_ORDER=$order "$work/attention" "$type" "$case" 2>&1 |
                 cmp -s - <(grep "^ok $case " "$work/$type"); then
                echo "not ok cuda/attention/order-$type: other results for $case in order $order"
                return
            fi
        done
    done
    echo "ok cuda/attention/order-$type"
}

short="more-keys odd one long-heads grouped large negative no-keys"
# shellcheck disable=SC2086
{ run bf16; order bf16 packed fewer-keys narrow-values; run f64 $short; } &
# shellcheck disable=SC2086
{ run f32; order f32 odd; run f16 $short packed packed-128 wide-values; }
wait
