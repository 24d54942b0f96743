#!/usr/bin/env bash
# Updates of the CUDA target, in the simulator of tests/cudasim, against those of the CPU, in one
# program: what both have is renamed for the device (names.h).
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${BUILD:=$root/build}"
export BUILD
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cc=$root/tests/cudasim/cc.sh cuda=$root/runtime/cuda
objects=
for f in tables norm optim lamb adafactor muon; do
    "$cc" -include "$here/names.h" -c -o "$f.o" "$cuda/$f.cu" 2> log ||
        { echo "not ok updates/$f: $(grep -m 1 error log)"; exit 1; }
    objects="$objects $f.o"
done
if "$cc" -include "$here/names.h" -I"$here" -c -o gpu.o "$here/gpu.cu" 2> log &&
    "$cc" -I"$here" -fopenmp -Wno-unused-function -o updates "$here/cpu.c" "$here/test_updates.c" gpu.o $objects \
        "$BUILD/libgradcc_rt.a" $(cat "$BUILD/rt.libs") 2>> log; then
    ./updates 2> log || echo "not ok updates/program: exit code $?: $(head -n 1 log)"
    cat log >&2
    CUDASIM_ORDER=reverse ./updates > said 2> log && ! grep -q '^not ok' said &&
        echo "ok updates/reverse order" || echo "not ok updates/reverse order: $(cat said log | grep -v '^ok' | head -n 1)"
else
    echo "not ok updates/build: $(grep -m 1 -i error log)"
fi
