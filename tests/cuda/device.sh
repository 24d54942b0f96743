#!/usr/bin/env bash
# One run on a machine with a GPU, in under 8 minutes: builds, checks, times, and leaves a report.
# Usage: tests/cuda/device.sh [PART ...]   parts: see `parts` below; all, the most important first
#   OUT=device-report   where each part leaves NAME.txt, and NAME.done when it went well; a part that
#                       is done is not run again, so a run that was cut goes on
#   LIMIT=470           seconds for all of it; a part that does not fit is cut or left out
#   DEVICE=cuda         simulator: a rehearsal without a GPU, at toy sizes, with more time
#   DEVICE_SMALL=1      toy sizes on a GPU
#   PACKAGES=folder     .deb files that are unpacked first, for a machine without a network: those of
#                       flex, bison, libjansson-dev, libxxhash-dev, zlib1g-dev and what they need
set -u
cd "$(dirname "$0")/../.."
: "${OUT:=device-report}" "${DEVICE:=cuda}" "${BUILD:=build}" "${PYTHON:=python3}"
slower=1; [ "$DEVICE" = simulator ] && slower=10
: "${LIMIT:=$((470 * slower))}"
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
mkdir -p "$OUT"; OUT=$(cd "$OUT" && pwd)
export BUILD OUT DEVICE GRADCC=$BUILD/gradcc WORK=$BUILD/device LC_ALL=C
PATH=$PATH:/usr/local/cuda/bin
started=$(date +%s)
left() { echo $((LIMIT - ($(date +%s) - started))); }

part_info() {
    date -u
    if [ "$DEVICE" = cuda ]; then
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader || return 1
        nvcc --version | tail -n 2
    fi
    $PYTHON -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda)' || echo "no PyTorch"
    git log -1 --format='gradcc %h' 2>/dev/null
    nproc
}
part_build() {
    if [ -n "${PACKAGES:-}" ]; then
        for file in "$PACKAGES"/*.deb; do dpkg -x "$file" / || return 1; done
        ldconfig
    fi
    make -j"$(nproc)" all
}
part_speed-gpt2-124m() { $PYTHON tests/cuda/device.py speed gpt2-124m; }
part_speed-gpt2-350m() { $PYTHON tests/cuda/device.py speed gpt2-350m; }
part_speed-gpt2-b1() { $PYTHON tests/cuda/device.py speed gpt2-b1; }
part_speed-mlp() { $PYTHON tests/cuda/device.py speed mlp; }
part_kernels() { $PYTHON tests/cuda/device.py kernels gpt2-124m; }
part_attention() {
    local mode=simulator
    [ "$DEVICE" = cuda ] && { mode=device; tests/cuda/attention.sh time || return 1; }
    tests/cuda/attention.sh $mode | tee "$WORK-attention"
    ! grep -q '^not ok' "$WORK-attention"
}
part_check() { tests/cuda/oracle.sh "$DEVICE" quick; }
part_sanitize() { tests/cuda/sanitize.sh "$DEVICE"; }
part_tests() { tests/cuda/oracle.sh "$DEVICE" all; }

# Name and the most seconds of each part.
parts="info:20 build:150 check:120 speed-gpt2-124m:150 kernels:60 attention:80 sanitize:110 speed-mlp:80
       speed-gpt2-350m:150 speed-gpt2-b1:80 tests:200"

run_part() {
    local name=$1 most=$(($2 * slower)) rest rc=0
    [ -e "$OUT/$name.done" ] && { echo "$name: done before"; return; }
    rest=$(left); [ "$rest" -lt "$most" ] && most=$rest
    [ "$most" -lt 10 ] && { echo "$name: no time is left"; return; }
    echo "$name: begins, $rest s are left"
    timeout -k 5 "$most" bash tests/cuda/device.sh --part "$name" > "$OUT/$name.txt" 2> "$OUT/$name.err" || rc=$?
    [ $rc -eq 0 ] && touch "$OUT/$name.done" && echo "$name: done" && return
    echo "$name: ended with exit code $rc"
    tail -n 5 "$OUT/$name.err"
    cat "$OUT/$name.err" >> "$OUT/$name.txt"
}

if [ "${1:-}" = --part ]; then "part_$2"; exit; fi
trap '$PYTHON tests/cuda/device.py report "$OUT"' EXIT
for entry in $parts; do
    name=${entry%%:*}
    [ $# -gt 0 ] && [[ " $* " != *" $name "* ]] && continue
    run_part "$name" "${entry##*:}"
done
