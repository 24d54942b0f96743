#!/usr/bin/env bash
# Every emitted .cu and every runtime/cuda/*.cu compiles with nvcc for sm_80 and sm_90, warnings as
# errors. No kernel of GPT, nor of the runtime's products and attention, keeps registers in local
# memory; no other one more than a few: those are named. Leaves
# $BUILD/tests-cuda/registers.txt: per kernel and architecture registers, stack, spill stores and
# loads, shared memory.
# Usage: nvcc.sh (from run.sh); prints ok, not ok and skip lines.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${NVCC:=$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}"
work=$BUILD/tests-cuda/nvcc
rm -rf "$work"; mkdir -p "$work"
if [ -z "$NVCC" ]; then echo "skip cuda/nvcc: no CUDA toolkit here (nvcc)"; exit; fi
flags="-std=c++20 -O3 --fmad=false -I$root/runtime -I$root/runtime/cuda -I$root/runtime/cuda/ptx
       -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90 --threads 2
       -Werror all-warnings -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,-Wno-unused-function
       -diag-suppress 177 -Xptxas -v"                    # 177: a function that is not used

# compile NAME FILE.cu
compile() {
    # shellcheck disable=SC2086
    if "$NVCC" $flags -c -o "$work/$1.o" "$2" 2> "$work/$1.err"; then
        echo "ok cuda/nvcc/$1"
    else
        grep -E 'error|warning' "$work/$1.err" >&2
        echo "not ok cuda/nvcc/$1: $(grep -m1 -E 'error|warning' "$work/$1.err" || tail -n 1 "$work/$1.err")"
    fi
}

# emit NAME MODEL OPTIONS...
emit() {
    local name=$1 model=$2; shift 2
    if ! "$GRADCC" --target=cuda --emit=cuda "$@" "$model" -o "$work/$name.cu" 2> "$work/$name.err"; then
        echo "not ok cuda/nvcc/$name: $(grep -m1 error "$work/$name.err" || tail -n 1 "$work/$name.err")"
        return 1
    fi
}

# Several models in one file, each in a namespace of its own: the headers are read once.
# together NAME PRECISION MODEL...
together() {
    local name=$1 precision=$2 model base own; shift 2
    printf '#define RT_LIBRARY\n#include "rt_cuda.h"\n' > "$work/$name.cu"
    for model in "$@"; do
        base=$(basename "$model" .model)
        own=$precision
        grep -q '^ *masters *= *none' "$model" && own=bf16
        emit "$name-$base" "$model" --precision="$own" || continue
        printf 'namespace %s_ {\n#include "%s"\n}\n' "$base" "$name-$base.cu" >> "$work/$name.cu"
    done
    compile "$name" "$work/$name.cu"
}

both() { while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done; "$@" & }

# What make has compiled for both already, with the same warnings, left what ptxas said of it.
runtime() {
    local name said
    name=$(basename "$1" .cu); said=$BUILD/runtime/cuda/$name.o.ptxas
    if [ "$said" -nt "$1" ] && [ -e "$BUILD/libgradcc_rt_cuda.a" ]; then
        cp "$said" "$work/runtime-$name.err"; echo "ok cuda/nvcc/runtime-$name"
    else compile "runtime-$name" "$1"; fi
}
for file in "$root"/runtime/cuda/*.cu; do both runtime "$file"; done
for file in test_*.cu time_*.cu; do both compile "${file%.cu}" "$file"; done # for a GPU, too
both together models-fp32 fp32 $root/models/{digits_mlp,chargpt,gpt2}.model
both together models-bf16 bf16 $root/models/{digits_mlp,chargpt,gpt2}.model
both together models-fp16 fp16 $root/models/{chargpt,gpt2}.model
both together models-fp64 fp64 $root/models/{digits_mlp,chargpt}.model
both together emit fp32 $root/tests/emit/*.model
both together updates fp32 $root/tests/{schedule,masters,optimizers}/*.model
both together run-fp32 fp32 $root/tests/run/*.model
both together run-bf16 bf16 $root/tests/run/*.model
wait

# "NAME sm_90 kernel registers stack stores loads shared", from the lines of ptxas.
awk '
    FNR == 1 { n = split(FILENAME, part, "/"); file = part[n]; sub(/\.err$/, "", file) }
    /Compiling entry function/ { split($0, q, "\047"); kernel = q[2]; arch = q[4]; hot = 1 }
    /bytes stack frame/ && hot { stack = $1; stores = $5; loads = $9 }
    /Used [0-9]+ registers/ && hot {
        regs = 0; shared = 0
        for (i = 1; i <= NF; i++) { if ($i == "Used") regs = $(i + 1); if ($i ~ /^smem,?$/) shared = $(i - 2) }
        print file, arch, kernel, regs, stack, stores, loads, shared; hot = 0
    }' "$work"/*.err | sort > "$BUILD/tests-cuda/registers.txt"
# A division, of 64 bits or of floats with all their digits, is a call, around which a few registers go
# to the stack: at most 32 bytes, and no more of a stack frame: what kernels keep of rows are registers.
# (One thread begins an update; it has a list of rates there.) Hot kernels have none.
kernels=$(wc -l < "$BUILD/tests-cuda/registers.txt")
spilled=$(awk '($5 > 32 && $3 !~ /g_begin_step/) || $6 > 32 || $7 > 32' "$BUILD/tests-cuda/registers.txt")
hot='$1 ~ /^(models-(bf16|fp16|fp32)|runtime-(attention_.*|matmul_plain))$/'
hot_spilled=$(awk "$hot"' && $5 + $6 + $7 > 0' "$BUILD/tests-cuda/registers.txt")
few=$(awk '$6 + $7 > 0' "$BUILD/tests-cuda/registers.txt")
if [ "$kernels" -eq 0 ]; then echo "not ok cuda/spills: ptxas named no kernel"
elif [ -n "$spilled" ]; then
    echo "$spilled" >&2
    echo "not ok cuda/spills: $(echo "$spilled" | wc -l) of $kernels kernels spill or have a stack, as $(echo "$spilled" | head -n 1)"
else
    echo "$(echo "$few" | grep -c .) of $kernels kernels keep registers on the stack:" >&2
    echo "$few" >&2
    echo "ok cuda/spills"
fi
for file in models-bf16 models-fp16 models-fp32 runtime-attention_forward runtime-attention_grad runtime-matmul_plain; do
    grep -q "^$file sm_90 " "$BUILD/tests-cuda/registers.txt" || hot_spilled+="$file: ptxas named no kernel of it"
done
if [ -z "$hot_spilled" ]; then echo "ok cuda/hot-spills"
else
    echo "$hot_spilled" >&2
    echo "not ok cuda/hot-spills: $(echo "$hot_spilled" | head -n 1)"
fi
