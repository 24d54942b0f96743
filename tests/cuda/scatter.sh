#!/usr/bin/env bash
# Rows added up by their ids on a device, against the plain loop, in the simulator: the same bits in
# whatever order threads and blocks run.
# Usage: scatter.sh (from run.sh); prints ok and not ok lines.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
export BUILD
work=$BUILD/tests-cuda/scatter
rm -rf "$work"; mkdir -p "$work"

if ! ../cudasim/cc.sh -Wno-missing-field-initializers -o "$work/scatter" test_scatter.cu \
        "$root/runtime/cuda/scatter.cu" > "$work/cc.log" 2>&1; then
    grep -m5 error "$work/cc.log" >&2
    echo "not ok cuda/scatter: does not compile for the simulator: $(grep -m1 error "$work/cc.log")"
    exit
fi
for order in forward reverse 3 8; do
    if ! CUDASIM_ORDER=$order "$work/scatter" > "$work/$order" 2>&1; then
        echo "not ok cuda/scatter/$order: $(grep -m1 -v '^ok ' "$work/$order")"
    elif cmp -s "$work/forward" "$work/$order"; then
        echo "ok cuda/scatter/$order"
    else
        echo "not ok cuda/scatter/$order: other results: $(diff "$work/forward" "$work/$order" | sed -n 2p)"
    fi
done
