#!/usr/bin/env bash
# One run on a machine with a GPU, in under 8 minutes: builds, checks, times, and leaves a report.
# Usage: tests/cuda/device.sh [PART ...]   parts: see `parts` below; all, the most important first
#        tests/cuda/device.sh --kit FILE   packs what the build takes from Debian's packages, where
#                                          gradcc builds, for a machine that has no such packages
#   KIT=FILE                 what --kit packed; unpacked into $BUILD/kit
#   RESULTS=$BUILD/device-report  where each part leaves NAME.txt, and NAME.done when it went well; a
#                            part that is done is not run again, so that a run that was cut goes on
#   OUT=FOLDER               gets report.md and device-report.tgz, which holds RESULTS, behind each part
#   LIMIT=470                seconds for all of it. Parts may take 1400 in all: they run in the order of
#                            their importance, one that does not end in time is cut and later ones are
#                            left out; a second call goes on with those that are not done
#   SLOWER=1                 so many times as long for each part and for all of it
#   DEVICE=cuda              simulator: a rehearsal without a GPU, at toy sizes, with more time
#   DEVICE_SMALL=1           toy sizes on a GPU
#   CUDA_ARCH=sm_90          what is compiled for, where nvidia-smi does not say it
# So for a machine without a network, and then there:
#   tests/cuda/device.sh --kit build/kit.tgz
#   KIT=build/kit.tgz OUT=$PWD/out tests/cuda/device.sh
set -u
cd "$(dirname "$0")/../.."
: "${DEVICE:=cuda}" "${BUILD:=build}" "${PYTHON:=python3}" "${CC:=gcc}"
: "${SLOWER:=$([ "$DEVICE" = simulator ] && echo 10 || echo 1)}"
: "${LIMIT:=$((470 * SLOWER))}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
: "${RESULTS:=$BUILD/device-report}"
kit=$BUILD/kit generated="parser.c parser.h lexer.c lexer.h"

# What make would generate by flex and bison, and the headers and static libraries that the compiler
# finds here.
pack() {
    local file=$1 made name path paths
    rm -rf "$kit"; mkdir -p "$kit/grammar" "$kit/include" "$kit/lib"
    made=$(for name in $generated; do echo "$BUILD/grammar/$name"; done)
    # shellcheck disable=SC2086
    make --no-print-directory BUILD="$BUILD" CUDA=0 $made >&2 && cp $made "$kit/grammar" || return 1
    paths=$(printf '#include <%s>\n' jansson.h xxhash.h zlib.h | $CC -x c -M - | tr ' ' '\n') || return 1
    for name in jansson.h jansson_config.h xxhash.h zlib.h zconf.h; do
        cp "$(grep "/$name\$" <<< "$paths")" "$kit/include" || return 1
    done
    for name in libjansson.a libz.a; do
        path=$($CC -print-file-name=$name)
        cp "$path" "$kit/lib" || return 1
    done
    mkdir -p "$(dirname "$file")"
    tar -C "$kit" -czf "$file" grammar include lib || return 1
    rm -rf "$kit"
    echo "$file: $(stat -c %s "$file") bytes"
}
if [ "${1:-}" = --kit ]; then pack "${2:?--kit FILE}"; exit; fi

if [ -n "${KIT:-}" ] && [ ! -e "$kit/unpacked" ]; then
    mkdir -p "$kit" "$BUILD/grammar"
    tar -C "$kit" -xzf "$KIT" || exit 1
    for name in $generated; do cp "$kit/grammar/$name" "$BUILD/grammar" || exit 1; done
    touch "$kit/unpacked"
fi
if [ -e "$kit/unpacked" ]; then                 # for make, gradcc's own links and the tests'
    (cd "$BUILD/grammar" && touch $generated)   # newer than the grammar, wherever that came from
    export CPATH=$kit/include${CPATH:+:$CPATH} LIBRARY_PATH=$kit/lib${LIBRARY_PATH:+:$LIBRARY_PATH}
fi
mkdir -p "$RESULTS"; RESULTS=$(cd "$RESULTS" && pwd)
export BUILD RESULTS DEVICE CC GRADCC=$BUILD/gradcc WORK=$BUILD/device LC_ALL=C
mkdir -p "$WORK"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
if [ "$DEVICE" = cuda ] && [ -z "${CUDA_ARCH:-}" ]; then
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -cd 0-9)
    [ -n "$capability" ] && export CUDA_ARCH=sm_$capability
fi
# By its file: a folder in LD_LIBRARY_PATH would shadow libraries of PyTorch, too.
if [ "$DEVICE" = cuda ] && [ -z "${RT_CUBLASLT:-}" ]; then
    library=$($PYTHON tests/cuda/device.py cublaslt)
    [ -n "$library" ] && export RT_CUBLASLT=$library
    headers=$($PYTHON tests/cuda/device.py headers)
    [ -n "$headers" ] && export CPATH=${CPATH:+$CPATH:}$headers
fi
if [ "$DEVICE" = cuda ]; then                   # for programs that ask for cuDNN alone
    CUDNN_FOLDERS=$($PYTHON tests/cuda/device.py cudnn)
    NCCL_LIBRARY=$($PYTHON tests/cuda/device.py nccl)
    export CUDNN_FOLDERS NCCL_LIBRARY
fi
started=$(date +%s)
left() { echo $((LIMIT - ($(date +%s) - started))); }

part_info() {
    date -u
    uname -rm; nproc; $CC --version | head -n 1
    git log -1 --format='gradcc %h' 2> /dev/null
    $PYTHON -c 'import torch; print("PyTorch", torch.__version__, torch.version.cuda)' || echo "no PyTorch"
    [ "$DEVICE" = simulator ] && return
    nvcc --version | tail -n 2
    echo "for ${CUDA_ARCH:-native}, cuBLASLt ${RT_CUBLASLT:-where programs look for it}"
    nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader
}
part_build() {
    local code=() pids=() pid
    [ -n "${CUDA_ARCH:-}" ] && code=("CU_CODE=-std=c++20 -arch=$CUDA_ARCH")
    make -j"$(nproc)" WERROR= "${code[@]}" all || return 1
    if [ "$DEVICE" = cuda ]; then
        if [ ! -e "$BUILD/libgradcc_rt_cuda.a" ]; then
            cat "$BUILD/cuda.txt" "$BUILD/nvcc.said" >&2
            echo "there is no libgradcc_rt_cuda.a" >&2; return 1
        fi
        tests/cuda/attention.sh build & pids+=($!)
        tests/cuda/sanitize.sh cuda build & pids+=($!)
    fi
    $PYTHON tests/cuda/device.py prepare & pids+=($!)
    for pid in "${pids[@]}"; do wait "$pid" || echo "a program was not made" >&2; done
}
part_speed-gpt2-124m() { $PYTHON tests/cuda/device.py speed gpt2-124m; }
part_speed-gpt2-350m() { $PYTHON tests/cuda/device.py speed gpt2-350m; }
part_speed-gpt2-b1() { $PYTHON tests/cuda/device.py speed gpt2-b1; }
part_speed-mlp() { $PYTHON tests/cuda/device.py speed mlp; }
part_kernels() { $PYTHON tests/cuda/device.py kernels gpt2-124m; }
part_attention() {
    local mode=simulator rc=0
    if [ "$DEVICE" = cuda ]; then
        mode=device
        tests/cuda/attention.sh time || rc=1
    fi
    tests/cuda/attention.sh $mode | tee "$WORK-attention"
    [ $rc -eq 0 ] && grep -q '^ok' "$WORK-attention" && ! grep -q '^not ok' "$WORK-attention"
}
part_nccl() {
    tests/cuda/nccl.sh "$DEVICE" | tee "$WORK-nccl"
    grep -q '^ok cuda/nccl/close' "$WORK-nccl" && ! grep -q '^not ok' "$WORK-nccl"
}
part_check() { tests/cuda/oracle.sh "$DEVICE" quick; }
part_sanitize() { tests/cuda/sanitize.sh "$DEVICE"; }
part_tests() { tests/cuda/oracle.sh "$DEVICE" all; }

# Name and the most seconds of each part.
parts="info:60 build:200 check:120 speed-gpt2-124m:170 kernels:70 attention:100 nccl:60 sanitize:110 speed-mlp:80
       speed-gpt2-350m:150 speed-gpt2-b1:80 tests:200"

# PyTorch's kernels are compiled once, into a folder that later parts read, beside the parts that
# time nothing.
warmer=
warm_begin() {
    [ -e "$RESULTS/check.done" ] && return
    rm -f "$WORK/warm.stop"
    setsid nice $PYTHON tests/cuda/device.py warm > "$RESULTS/warm.txt" 2>&1 &
    warmer=$!
}
warm_end() {                                    # it ends behind the case that it compiles now
    local seconds=$1
    [ -z "$warmer" ] && return
    touch "$WORK/warm.stop"
    while [ "$seconds" -gt 0 ] && kill -0 "$warmer" 2> /dev/null; do sleep 1; seconds=$((seconds - 1)); done
    kill -- "-$warmer" 2> /dev/null
    wait "$warmer" 2> /dev/null
    warmer=
}

report() {
    $PYTHON tests/cuda/device.py report "$RESULTS" > "$WORK/report.txt"
    tar -C "$(dirname "$RESULTS")" -czf "$WORK/device-report.tgz" "$(basename "$RESULTS")"
    [ -z "${OUT:-}" ] && return
    mkdir -p "$OUT"
    [ "$OUT" -ef "$RESULTS" ] || cp "$RESULTS/report.md" "$OUT"
    cp "$WORK/device-report.tgz" "$OUT"
}

run_part() {
    local name=$1 most=$(($2 * SLOWER)) rest rc=0
    [ -e "$RESULTS/$name.done" ] && { echo "$name: done before"; return; }
    case $name in info | build | check) ;; *) warm_end 90 ;; esac
    rest=$(left); [ "$rest" -lt "$most" ] && most=$rest
    [ "$most" -lt 10 ] && { echo "$name: no time is left"; return; }
    echo "$name: begins, $rest s are left"
    timeout -k 5 "$most" bash tests/cuda/device.sh --part "$name" > "$RESULTS/$name.txt" 2> "$RESULTS/$name.err" || rc=$?
    [ $rc -eq 0 ] && touch "$RESULTS/$name.done"
    echo "$name: ended with exit code $rc, $(left) s are left"
    [ $rc -eq 0 ] || tail -n 5 "$RESULTS/$name.err"
    report
}

if [ "${1:-}" = --part ]; then "part_$2"; exit; fi
trap 'warm_end 0; report; cat "$WORK/report.txt"' EXIT
[ $# -eq 0 ] && warm_begin
for entry in $parts; do
    name=${entry%%:*}
    [ $# -gt 0 ] && [[ " $* " != *" $name "* ]] && continue
    run_part "$name" "${entry##*:}"
done
