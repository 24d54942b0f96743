#!/usr/bin/env bash
# Products on a device: values in the simulator, on every path; choices of algorithms, measured and
# kept on disk; what is wrong with the library; and the real library, where it is.
# Usage: products.sh (from run.sh); prints ok, not ok and skip lines.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}"
BUILD=$(cd "$BUILD" && pwd)
export BUILD RT_CUDA_CACHE=none
work=$BUILD/tests-cuda/products
rm -rf "$work"; mkdir -p "$work"
NVCC=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}

if ! ../cudasim/cc.sh --runtime -Wno-missing-field-initializers -o "$work/products" \
        test_products.cu > "$work/cc.log" 2>&1; then
    grep -m5 error "$work/cc.log" >&2
    echo "not ok cuda/products: does not compile for the simulator: $(grep -m1 error "$work/cc.log")"
    exit
fi

# run NAME WANTED TEST [VARIABLE=VALUE...]: the test passes, and what it says has WANTED in it.
run() {
    local name=$1 wanted=$2 test=$3; shift 3
    if env "$@" timeout 300 "$work/products" "$test" > "$work/$name.txt" 2>&1 &&
       grep -qF -- "$wanted" "$work/$name.txt"; then
        echo "ok cuda/products/$name"
    else
        tail -n 5 "$work/$name.txt" >&2
        echo "not ok cuda/products/$name: wanted '$wanted', got '$(tail -n 1 "$work/$name.txt")'"
    fi
}

# refused NAME WANTED TEST [VARIABLE=VALUE...]: ends with exit code 1 and this message.
refused() {
    local name=$1 wanted=$2 test=$3 code; shift 3
    env "$@" timeout 300 "$work/products" "$test" > "$work/$name.txt" 2>&1; code=$?
    if [ $code -eq 1 ] && grep -qF -- "$wanted" "$work/$name.txt"; then
        echo "ok cuda/products/$name"
    else
        tail -n 5 "$work/$name.txt" >&2
        echo "not ok cuda/products/$name: wanted '$wanted' and exit code 1, got $code: $(tail -n 1 "$work/$name.txt")"
    fi
}

for test in sizes batches defaults; do
    run "$test" "ok $test" "$test"
    run "$test-plain" "ok $test" "$test" RT_MATMUL=plain
done
run no-library "by plain kernels" sizes RT_MATMUL=plain RT_CUBLASLT=/nowhere/libcublasLt.so
run tf32 "fp32 by TF32" sizes RT_TEST_TF32=1
run streams "ok sizes" sizes CUDASIM_STREAMS=early
run stored "ok stored" stored
run copied "ok copied" copied
run epilogue-uncounted "its kernels cannot be counted" defaults \
    CUDASIM_FAIL="$(printf 'cudaGraphGetNodes:%d:cudaErrorUnknown,' {1..16} | sed 's/,$//')"
run wide-bias "ok wide_bias" wide_bias RT_CUDA_EPILOGUE=on

# Measured at start, kept on disk, and found there by the next start.
tune="RT_CUDA_TUNE=on RT_TEST_SCRATCH=1000000 RT_CUDA_CACHE=$work/cache"
# shellcheck disable=SC2086
{
run cache-empty "3 shapes, 3 timed" sizes $tune
run cache-hit "3 shapes, 3 from the cache" sizes $tune
file=$(echo "$work"/cache/products-*)
sed -i 's/ 64 48 32 / 64 48 33 /' "$file"
run cache-damaged "damaged; products are timed again" sizes $tune
run cache-again "3 shapes, 3 from the cache" sizes $tune
cp "$file" "$work/other"
run cache-other-gpu "3 shapes, 3 timed" sizes $tune CUDASIM_ARCH=80
for copy in "$work"/cache/products-*; do cp "$work/other" "$copy"; done
run cache-foreign "of another GPU or library; products are timed again" sizes $tune CUDASIM_ARCH=80
run cache-none "3 shapes, 3 timed" sizes $tune RT_CUDA_CACHE=none
: > "$work/blocked"
run cache-no-folder "will be timed at the next start again" sizes $tune RT_CUDA_CACHE="$work/blocked/x"
run scratch-small "cuBLASLt 13" sizes $tune RT_TEST_SCRATCH=9000 RT_CUDA_CACHE=none
run epilogue-no-scratch "in the product, one kernel; no memory to time it in" defaults $tune RT_TEST_SCRATCH=9000 RT_CUDA_CACHE=none
}
# Two starts at once leave a whole file.
rm -rf "$work/cache"
# shellcheck disable=SC2086
for i in 1 2 3; do env $tune timeout 300 "$work/products" defaults > "$work/many-$i.txt" 2>&1 & done; wait
# shellcheck disable=SC2086
run cache-together "3 shapes, 3 from the cache" sizes $tune

refused missing "cuBLASLt, which computes products, is missing" sizes RT_CUBLASLT=/nowhere/libcublasLt.so
refused install "hint: install " sizes RT_CUBLASLT=/nowhere/libcublasLt.so
refused folder ", or let LD_LIBRARY_PATH name the folder of libcublasLt.so." sizes RT_CUBLASLT=/nowhere/libcublasLt.so
refused where ", or CUDA_HOME that of the toolkit, with lib64 in it" sizes RT_CUBLASLT=/nowhere/libcublasLt.so
refused no-cublaslt "it has no cublasLtCreate" sizes RT_CUBLASLT=libm.so.6
refused old "cuBLASLt is too old: version 1.12.0" sizes CUDASIM_CUBLASLT=old
refused not-initialized "cublasLtCreate: CUBLAS_STATUS_NOT_INITIALIZED" sizes CUDASIM_CUBLASLT=missing
refused failure "cublasLtMatmul: CUBLAS_STATUS_EXECUTION_FAILED" sizes RT_CUDA_EPILOGUE=off \
    CUDASIM_FAIL=cublasLtMatmul:2:CUBLAS_STATUS_EXECUTION_FAILED
refused heuristic "cublasLtMatmulAlgoGetHeuristic: CUBLAS_STATUS_INTERNAL_ERROR" sizes \
    CUDASIM_FAIL=cublasLtMatmulAlgoGetHeuristic:2:CUBLAS_STATUS_INTERNAL_ERROR
refused launch "cudaErrorLaunchFailure" sizes RT_MATMUL=plain CUDASIM_FAIL=launch:3:cudaErrorLaunchFailure

# A run that was stopped goes on with the algorithms of its checkpoint, to the same bits.
resume() {
    local program=$work/digits out changed
    local options="--data $root/models/digits.csv.gz --batch 16 --eval 0 --decay-steps 6"
    export CI=1 RT_CUDA_TUNE=on RT_CUDA_CACHE=none
    if ! "${GRADCC:-$BUILD/gradcc}" --target=cuda --emit=cuda --precision=bf16 \
             $root/models/digits_mlp.model -o "$program.cu" > "$program.log" 2>&1 ||
       ! ../cudasim/cc.sh --runtime -w -o "$program" "$program.cu" >> "$program.log" 2>&1; then
        echo "not ok cuda/products/resume: digits_mlp does not compile: $(grep -m1 error "$program.log")"
        return
    fi
    # shellcheck disable=SC2086
    "$program" $options --steps 6 --out "$work/whole" > "$work/whole.txt" 2>&1 &&
        "$program" $options --steps 3 --out "$work/parts" > "$work/parts.txt" 2>&1 &&
        out=$("$program" $options --steps 6 --out "$work/parts" --resume auto 2>&1) &&
        changed=$(CUDASIM_ARCH=80 "$program" $options --steps 7 --out "$work/parts" --resume auto 2>&1)
    if ! cmp -s "$work"/{whole,parts}/step-00000006/model.safetensors; then
        echo "not ok cuda/products/resume: other parameters after 6 updates"
    elif [ "$(grep -c '^products cuBLASLt [0-9.]*: 5 shapes, 5 as before' <<< "$out")" != 1 ]; then
        echo "not ok cuda/products/resume: $(grep '^products' <<< "$out")"
    else echo "ok cuda/products/resume"; fi
    if grep -q "products of the checkpoint are of another GPU or library" <<< "$changed"
    then echo "ok cuda/products/resume-other-gpu"
    else echo "not ok cuda/products/resume-other-gpu: $(tail -n 1 <<< "$changed")"; fi
}
(resume)

# Operands that begin at odd places, as parameters of odd sizes do, are planned at the start too: the
# run meets no product that it did not expect.
cat > "$work/odd.model" <<'EOF'
const D = 5, S = 7, L = 3
batch B
layer block(x: [B, S]) {
    one : linear[S, S]
    gain = 1 + tanh(one(x))
    return x * gain
}
model odd(x: [B, D], y: [B]) {
    pre : linear[D, 3]
    first : linear[3, S, bias: false]
    h : block * L
    out : linear[S, 1]
    a = tanh(first(pre(x)))
    for i in 0..L { a = h[i](a) }
    loss = mean((reshape(out(a), [B]) - y)^2)
}
train {
    data = csv("odd.csv", split: 0.6) { x = cols(0..D), y = col(5) }
    batch = 5, steps = 4, eval = every 2, ema = 0.9, optimizer = adamw(lr: 0.01)
}
EOF
awk 'BEGIN { srand(2); for (i = 0; i < 40; i++) { for (j = 0; j < 6; j++) printf "%s%.3f", j ? "," : "", rand(); print "" } }' > "$work/odd.csv"
expected() { # expected PRECISION
    local name=odd-$1 shapes plans
    if ! "${GRADCC:-$BUILD/gradcc}" --emit=cuda --precision="$1" "$work/odd.model" -o "$work/$name.cu" > "$work/$name.log" 2>&1 ||
       ! ../cudasim/cc.sh --runtime -w -o "$work/$name" "$work/$name.cu" >> "$work/$name.log" 2>&1 ||
       ! (cd "$work" && CI=1 "./$name" --out "$name.run") >> "$work/$name.log" 2>&1; then
        echo "not ok cuda/products/$name: $(tail -n 1 "$work/$name.log")"; return
    fi
    shapes=$(sed -n 's/^products .*: \([0-9]*\) shapes.*/\1/p' "$work/$name.log")
    plans=$(grep -o 'u000a\(fp32\|fp64\|bf16\|fp16\) ' "$work/$name.run/step-00000004/manifest.json" | wc -l)
    if [ -n "$shapes" ] && [ "$shapes" = "$plans" ]; then echo "ok cuda/products/$name"
    else echo "not ok cuda/products/$name: $shapes shapes are planned, $plans were met"; fi
}
for precision in fp32 fp64 bf16; do expected $precision; done

if [ -z "$NVCC" ]; then
    echo "skip cuda/products/real: no CUDA toolkit here (nvcc)"
elif [ ! -e "$BUILD/libgradcc_rt_cuda.a" ]; then
    echo "skip cuda/products/real: this build has no libgradcc_rt_cuda.a"
# shellcheck disable=SC2086
elif "$NVCC" -std=c++20 -arch=sm_80 --fmad=false -I$root/runtime -I$root/runtime/cuda -o "$work/real" \
        test_products.cu "$BUILD/libgradcc_rt_cuda.a" $(cat "$BUILD/rt_cuda.libs") \
        > "$work/real.log" 2>&1 &&
     "$work/real" library > "$work/real.txt" 2>&1 && grep -q '^cuBLASLt [0-9]' "$work/real.txt"; then
    echo "ok cuda/products/real"
else
    echo "not ok cuda/products/real: $(cat "$work/real.log" "$work/real.txt" 2> /dev/null | head -n 1)"
fi
