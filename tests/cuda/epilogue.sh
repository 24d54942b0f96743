#!/usr/bin/env bash
# GELU and its gradient in the kernels of products: which formulas are known to be them; values
# against the evaluator with all epilogues on; that the probe refuses two kernels; that a choice is
# kept in checkpoints and on disk, and changes nothing but roundings.
# Usage: epilogue.sh (from run.sh); prints ok and not ok lines.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
BUILD=$(cd "$BUILD" && pwd) GRADCC=$(realpath "$GRADCC")
export BUILD GRADCC CI=1 OMP_NUM_THREADS=2 RT_CUDA_CACHE=none
work=$BUILD/tests-cuda/epilogue
rm -rf "$work"; mkdir -p "$work"; cd "$work" || exit 1
ok() { echo "ok cuda/epilogue/$1"; }
bad() { echo "not ok cuda/epilogue/$1: $2"; }

# ---- what is known to be GELU -----------------------------------------------------------------

# known NAME GELUS SLOPES FUNCTION [OPTION...]: so many epilogues; the forward pass and the evaluation
# have a GELU each, the backward pass its slope
known() {
    local name=$1 wanted="$2 $3" function=$4 got; shift 4
    cat > "$name.model" <<EOF
const D = 16, S = 64, L = 2
batch B
func act(x) { return $function }
layer block[D, S](x: [B, D]) -> [B, D] {
    up   : linear[D, S]
    down : linear[S, D]
    return x + down(act(up(x)))
}
model m(x: [B, D], y: [B, D]) {
    h : block[D, S] * L
    z = x
    for i in 0..L { z = h[i](z) }
    loss = mean((z - y)^2)
}
EOF
    if ! "$GRADCC" -w --target=cuda --emit=cuda "$@" "$name.model" -o "$name.cu" 2> "$name.err"; then
        bad "known-$name" "$(head -n 1 "$name.err")"; return
    fi
    got="$(grep -c 'rt_epilogue_gelu(' "$name.cu") $(grep -c 'rt_epilogue_gelu_grad(' "$name.cu")"
    if [ "$got" = "$wanted" ]; then ok "known-$name"
    else bad "known-$name" "epilogues: $got, wanted $wanted"; fi
}
known prelude 2 1 'gelu(x)'
known sixteen 2 1 'gelu(x)' --precision=bf16
known factored 2 1 '0.5 * x + x * tanh(0.7978845608 * x * (1 + 0.044715 * x * x)) / 2'
known sigmoid 2 1 'x * sigmoid(1.5957691216057308 * (x + 0.044715 * x^3))'
known tanh-kept 1 0 'gelu(x)' --recompute=none # its kernel reads the product's result in any case
known recomputed 2 0 'gelu(x)' --recompute=blocks
known exact 0 0 'gelu_erf(x)'
known nearly 0 0 '0.5 * x * (1 + tanh(0.7978845608 * (x + 0.0447 * x^3)))'
known bent 0 0 'max(gelu(x), -0.1)'
known scaled 0 0 '2 * gelu(x)'
known dropped 1 0 'dropout(gelu(x), 0.1)' # there is no dropout in the evaluation
known sixty-four 0 0 'gelu(x)' --precision=fp64
# The last step that writes its argument is a loop.
printf '%s\n' 'const D = 16, L = 2' 'batch B' 'model m(x: [B, D], y: [B, D]) {' '    h : linear[D, D] * L' '    z = x' \
    '    for i in 0..L { z = h[i](z) }' '    loss = mean((gelu(z) - y)^2)' '}' > looped.model
if "$GRADCC" -w --target=cuda --emit=cuda looped.model -o looped.cu 2> looped.err && ! grep -q 'rt_epilogue_gelu' looped.cu
then ok known-looped
else bad known-looped "$(head -n 1 looped.err) $(grep -c rt_epilogue_gelu looped.cu)"; fi

# ---- values ------------------------------------------------------------------------------------

RT_CUDA_EPILOGUE=on TARGET=simulator AREA=cuda/epilogue/oracle VARIANTS="fp32 bf16 bf16-masterless fp16" \
    bash "$root/tests/run/run.sh" gelu.model gpt.model

# ---- choices -----------------------------------------------------------------------------------

cat "$root/LICENSE" "$root/README.md" > text.txt
small="-D V=160 -D C=32 -D H=2 -D L=2 -D Tmax=16 -D rate=0.1"
common="--data text.txt --dims T=12 --batch 6 --accumulate 2 --seed 5 --decay-steps 4 --eval 4"
gelu='epilogue GELU, beside its input, of bf16 -> bf16, a\[36,32\] @ b\[128,32\]'\'': '
slope='epilogue gradient of GELU of bf16 -> bf16, a\[36,32\] @ b\[32,128\]: '

# run NAME STEPS [VARIABLE=VALUE...]: a run, or more of it, into the folder NAME
run() {
    local name=$1 steps=$2; shift 2
    # shellcheck disable=SC2086
    env "$@" ./gpt $common --steps "$steps" --save "$steps" --out "$name" --resume auto > "$name.log" 2>&1 ||
        { bad "$name" "exit code $?: $(tail -n 1 "$name.log")"; return 1; }
}
# says NAME REASON: of both, in the log of that run
says() {
    local name=$1
    if grep -q "^$gelu$2" "$name.log" && grep -q "^$slope$2" "$name.log"; then ok "$name"
    else bad "$name" "wanted '$2', got: $(grep '^epilogue' "$name.log" | head -n 1)"; fi
}
# same NAME A B: the same bits behind the last update
same() {
    if cmp -s "$2/step-00000004/model.safetensors" "$3/step-00000004/model.safetensors"; then ok "$1"
    else bad "$1" "other parameters after 4 updates"; fi
}
# shellcheck disable=SC2086
if ! "$GRADCC" --target=cuda --emit=cuda $small --precision=bf16 "$root/models/chargpt.model" -o gpt.cu >&2 ||
   ! "$root/tests/cudasim/cc.sh" --runtime -w -o gpt gpt.cu >&2; then
    bad gpt "it does not compile"; exit
fi
run on 4 RT_CUDA_EPILOGUE=on && says on "in the product, RT_CUDA_EPILOGUE=on"
run off 4 RT_CUDA_EPILOGUE=off CUDASIM_TRAFFIC=off.txt && says off "a kernel of its own, RT_CUDA_EPILOGUE=off"
run one-kernel 4 CUDASIM_TRAFFIC=on.txt && says one-kernel "in the product, one kernel"
run two-kernels 4 CUDASIM_CUBLASLT=twice && says two-kernels "a kernel of its own, it would be 2 kernels"
run none 4 CUDASIM_CUBLASLT=plain && says none "a kernel of its own, cuBLASLt has none"
same probed-as-on on one-kernel
same probed-as-off off two-kernels
if cmp -s on/step-00000004/model.safetensors off/step-00000004/model.safetensors; then
    bad other-bits "with epilogues and without there are the same bits: were they used?"
elif why=$(python3 "$here/curves.py" 2e-3 on/metrics.jsonl off/metrics.jsonl 2>&1); then ok alike
else bad alike "$why"; fi
if grep -q '^g[0-9]*_h_mlp_hidden ' off.txt && ! grep -q '^g[0-9]*_h_mlp_hidden ' on.txt &&
   grep -q '^g[0-9]*_d_h_mlp_c_fc_bias ' on.txt; then ok left-out
else bad left-out "the kernels that run are not those wanted"; fi
run no-graph 4 RT_CUDA_EPILOGUE=on RT_CUDA_GRAPH=0 CUDASIM_STREAMS=early && same graphs on no-graph

# A run goes on as it began, whatever the library would do now.
run kept 2 && run kept 4 CUDASIM_CUBLASLT=twice && says kept "in the product, as before" && same kept-bits on kept
run kept-off 2 RT_CUDA_EPILOGUE=off && run kept-off 4 && says kept-off "a kernel of its own, as before" &&
    same kept-off-bits off kept-off
run told 2 && run told 4 RT_CUDA_EPILOGUE=off && says told "a kernel of its own, RT_CUDA_EPILOGUE=off"
other='computed otherwise than before: results agree to rounding, not bit for bit'
if grep -q "^note     [0-9]* products are $other" told.log && ! grep -q "$other" kept.log kept-off.log on.log; then ok told-otherwise
else bad told-otherwise "$(grep -h '^note' told.log kept.log kept-off.log on.log)"; fi
run plain 2 && run plain 4 RT_MATMUL=plain && cp plain.log to-plain.log && run plain 5
own="gradcc's own code" library='cuBLASLt [0-9.]*'
if grep -q "^note     products were computed by $library and are by $own now (RT_MATMUL=plain): results agree" to-plain.log &&
   grep -q "^note     products were computed by $own and are by $library now: results agree" plain.log; then ok plain-and-back
else bad plain-and-back "$(grep -h '^note' to-plain.log plain.log)"; fi

# Two products of the same sizes, the parameters of one of them at an odd place.
cat > alike.model <<'EOF'
const D = 32, S = 64
batch B
model alike(x: [B, D], y: [B, D]) {
    a : linear[D, S]
    b : linear[S, D]
    odd : linear[D, 1]
    c : linear[D, S]
    d : linear[S, D]
    z = b(gelu(a(x)))
    loss = mean((d(gelu(c(z))) + odd(z) - y)^2)
}
train {
    data = csv("alike.csv", split: 0.5) { x = cols(0..32), y = cols(32..64) }
    batch = 4, steps = 1, eval = every 1
}
EOF
awk 'BEGIN { for (i = 0; i < 9; i++) for (k = 0; k < 64; k++) printf "0.%d%s", i + k, k < 63 ? "," : "\n" }' > alike.csv
name="epilogue GELU of fp32 -> fp32, a\[4,32\] @ b\[64,32\]'"
if "$GRADCC" -w --target=cuda --emit=cuda alike.model -o alike.cu && "$root/tests/cudasim/cc.sh" --runtime -w -o alike alike.cu &&
   ./alike --out none > alike.log && grep -q "^$name (b at 16 bytes, bias at 16 bytes): in the product, one kernel" alike.log &&
   grep -q "^$name (b at 4 bytes, bias at 4 bytes): a kernel of its own, cuBLASLt has none" alike.log
then ok told-apart; else bad told-apart "$(grep '^epilogue' alike.log | head -n 2)"; fi

# By a measurement, which the file on disk keeps.
mkdir cache; measured="RT_CUDA_TUNE=on RT_CUDA_CACHE=$work/cache"
# shellcheck disable=SC2086
{
run timed 1 $measured && says timed '[a-z ]*, one kernel, [0-9.]* us, without [0-9.]* us'
rm -rf timed; run from-disk 1 $measured && says from-disk '[a-z ]*, from the cache'
run on-beside-cache 1 $measured RT_CUDA_EPILOGUE=on && says on-beside-cache "in the product, RT_CUDA_EPILOGUE=on"
run from-disk-again 1 $measured && says from-disk-again '[a-z ]*, from the cache'
}
RT_CUDA_EPILOGUE=maybe ./gpt --data text.txt --steps 1 --out none > maybe.log 2>&1; code=$?
if [ $code -eq 2 ] && grep -q "RT_CUDA_EPILOGUE=maybe is none of on|off|probe" maybe.log; then ok maybe
else bad maybe "exit code $code: $(tail -n 1 maybe.log)"; fi
