#!/usr/bin/env bash
# Emitted C against the evaluator: sums, counts, gradients and outputs of each model, over two
# micro-steps, in fp64, fp32, bf16 (with fp32 masters and without) and fp16, optimised and not. Also
# every complete example of LANGUAGE.md. A model may begin with `# dims: T=4 B=2`.
# Usage: run.sh [MODEL ...]
# TARGET=simulator and TARGET=device do the same with emitted CUDA C (tests/cuda/oracle.sh; on a
# device for CUDA_ARCH), in the VARIANTS given; AREA is how the tests are called.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
: "${TARGET:=c}" "${AREA:=run}" "${JOBS:=2}"
work=$BUILD/tests-$AREA
rm -rf "$work"; mkdir -p "$work"

objects=$(find "$BUILD/compiler" "$BUILD/grammar" -name '*.o' |
          grep -vE 'compiler/(main|pipeline|options|build)\.o$')
# shellcheck disable=SC2086
$CC -std=c11 -D_GNU_SOURCE -O1 -g ${SANFLAGS:-} -I$root/compiler -I. -o "$work/oracle" oracle.c $objects -lm ||
    { echo "not ok run/oracle: it does not compile"; exit 1; }
flags="-std=c11 -O1 -march=native -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion
       -Werror -Wno-shadow -Wno-unused-function -I$root/runtime -I."
libs="$BUILD/libgradcc_rt.a $(cat "$BUILD/rt.libs")"

# compile BASE MODEL REAL TOLERANCE: BASE.c or BASE.cu and the harness, for the target
compile() {
    local base=$1 defines="-DMODEL=$2 -DREAL=$3 -DTOLERANCE=$4"
    # shellcheck disable=SC2086
    case $TARGET in
    c) $CC $flags $defines -DEMITTED="\"$base.c\"" -o "$base" harness.c $libs ;;
    simulator) ../cudasim/cc.sh --runtime -o "$base" $defines -DEMITTED="\"$base.cu\"" -I"$PWD" harness.cu ;;
    device) "$NVCC" -std=c++20 -O2 --fmad=false -arch="${CUDA_ARCH:-native}" -I$root/runtime -I$root/runtime/cuda -I. $defines \
                -DEMITTED="\"$base.cu\"" -o "$base" harness.cu "$BUILD/libgradcc_rt_cuda.a" \
                $(cat "$BUILD/rt_cuda.libs") ;;
    *) echo "error: TARGET is c, simulator or device, not $TARGET" >&2; return 1 ;;
    esac
}

# try MODEL NAME VARIANT OPTIONS REAL TOLERANCE DIMS
try() {
    local file=$1 name=$2 variant=$3 options=$4 real=$5 tolerance=$6 dims=$7 base why model text emit=c
    base=$work/$name-$variant
    text=$base.c
    [ "$TARGET" = c ] || { text=$base.cu; emit=cuda; }
    # shellcheck disable=SC2086
    if ! "$GRADCC" --emit=$emit $options "$file" -o "$text" 2> "$base.err"; then
        echo "not ok $AREA/$name $variant: $(grep -m1 error "$base.err" || tail -n1 "$base.err")"; return
    fi
    model=$(sed -n 's/^.*const RtModel \([A-Za-z0-9_]*\) = .*/\1/p' "$text")
    if ! compile "$base" "$model" "$real" "$tolerance" 2> "$base.err"; then
        cat "$base.err" >&2
        echo "not ok $AREA/$name $variant: $(grep -m1 error "$base.err")"; return
    fi
    # shellcheck disable=SC2086
    if why=$("$base" "$work/$name.txt" $dims 2>&1); then
        echo "ok $AREA/$name $variant"
    else
        echo "$why" >&2
        echo "not ok $AREA/$name $variant: $(echo "$why" | head -n 1)"
    fi
    rm -f "$base"
}

check() {
    local file=$1 name=$2 variants=$3 dims
    dims=$(sed -n '1s/^# dims: //p' "$file")
    # shellcheck disable=SC2086
    if ! "$work/oracle" "$file" $root/models/prelude.model $dims > "$work/$name.txt" 2> "$work/$name.err"; then
        cat "$work/$name.err" >&2
        echo "not ok $AREA/$name oracle: $(head -n 1 "$work/$name.err")"; return
    fi
    for variant in $variants; do
        case $variant in
        fp64)    try "$file" "$name" fp64 "--precision=fp64 --masters=fp32" double 1e-11 "$dims" ;;
        fp64-O0) try "$file" "$name" fp64-O0 "--precision=fp64 -O0" double 1e-11 "$dims" ;;
        fp32)    try "$file" "$name" fp32 "" float 2e-5 "$dims" ;;
        bf16)    try "$file" "$name" bf16 "--precision=bf16" float 3e-2 "$dims" ;;
        bf16-O0) try "$file" "$name" bf16-O0 "--precision=bf16 -O0" float 3e-2 "$dims" ;;
        bf16-masterless) try "$file" "$name" "$variant" "--precision=bf16 --masters=none" float 3e-2 "$dims" ;;
        bf16-as-fp32) try "$file" "$name" "$variant" "--precision=bf16" float 2e-5 "$dims" ;;
        fp32-as-bf16) try "$file" "$name" "$variant" "" float 3e-2 "$dims" ;;
        fp16)    try "$file" "$name" fp16 "--precision=fp16" float 4e-3 "$dims" ;;
        esac
    done
}

both() {                                        # JOBS at a time
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n; done
    check "$@" &
}

all=${VARIANTS:-fp64 fp64-O0 fp32 bf16 bf16-O0 bf16-masterless fp16}
if [ $# -gt 0 ]; then
    for file in "$@"; do both "$file" "$(basename "$file" .model)" "$all"; done
    wait
    exit
fi
export OMP_NUM_THREADS=1
for file in *.model; do both "$file" "${file%.model}" "$all"; done
if [ "$TARGET" = device ]; then wait; exit; fi
# With each layer in fp32 a bf16 program is as exact as one in fp32; and layers in bf16 alone.
sed '/^    \(wte\|below\|above\) .*:/s/$/ in fp32/' regions.model > "$work/regions_fp32.model"
sed 's/ in fp32/ in bf16/' regions.model > "$work/regions_bf16.model"
both "$work/regions_fp32.model" regions_fp32 bf16-as-fp32
both "$work/regions_bf16.model" regions_bf16 "fp64 fp32-as-bf16"
sed "s/ in fp32/ in bf16/" borders.model > "$work/borders_bf16.model"
both "$work/borders_bf16.model" borders_bf16 "fp64 fp32-as-bf16"

# Rows of an odd length at the sizes where kernels for a GPU are made otherwise: a warp, a block, 1024
# threads, rows in shared memory and rows that are read again; with 1 and 7 elements behind vectors.
if [ "$TARGET" = simulator ]; then
    for sizes in 2047,1281,1279 9001,8193,4097 41001,20001,1031; do
        IFS=, read -r V K M <<< "$sizes"
        sed "s/^const V = .*/const V = $V, K = $K, M = $M, C = 4/" long_rows.model > "$work/long_rows_$V.model"
        both "$work/long_rows_$V.model" "long_rows_$V" "fp32 bf16"
    done
fi

# The examples of the reference that are whole programs.
awk -v dir="$work" '
    /^```file /  { out = dir "/" $2; n = 0; print "" > out; next }
    /^```model$/ { count++; out = sprintf("%s/language_%02d.model", dir, count); next }
    /^```/       { out = ""; next }
    out != ""    { print > out }' $root/grammar/LANGUAGE.md
for file in "$work"/language_*.model; do both "$file" "$(basename "$file" .model)" fp64; done
wait
