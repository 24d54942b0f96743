#!/usr/bin/env bash
# What can be wrong around a CUDA program, in the simulator: the machine (driver, GPU, memory,
# library), calls that fail, steps that are not finite. Each ends with one message and its exit code.
# Usage: faults.sh (from run.sh); prints ok and not ok lines.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1 OMP_NUM_THREADS=2 RT_CUDA_CACHE=none

ok() { echo "ok cuda/faults/$1"; }
bad() { echo "not ok cuda/faults/$1: $2"; }

# build NAME OPTIONS...: NAME.cpu and NAME.gpu of the digits model
build() {
    local name=$1; shift
    if "$GRADCC" "$@" "$root/models/digits_mlp.model" -o "$name.cpu" >&2 &&
       "$GRADCC" --target=cuda --emit=cuda "$@" "$root/models/digits_mlp.model" -o "$name.cu" >&2 &&
       "$root/tests/cudasim/cc.sh" --runtime -w -o "$name.gpu" "$name.cu" >&2; then return 0; fi
    bad "$name" "does not compile"
    return 1
}

data="--data $root/models/digits.csv.gz --batch 16 --eval 0"
build digits || exit 0

# refused NAME CODE WANTED VARIABLE=VALUE... [-- OPTIONS]: one message, this exit code, no hang
refused() {
    local name=$1 code=$2 wanted=$3 rc vars=(); shift 3
    while [ $# -gt 0 ] && [ "$1" != -- ]; do vars+=("$1"); shift; done
    [ $# -gt 0 ] && shift
    # shellcheck disable=SC2086
    env "${vars[@]}" timeout 60 ./digits.gpu $data --steps 6 --out none "$@" > "$name.out" 2> "$name.err"; rc=$?
    if [ $rc -ne "$code" ]; then bad "$name" "exit code $rc: $(tail -n 2 "$name.err" | tr '\n' ' ')"
    elif [ "$(grep -c '^error: ' "$name.err")" != 1 ]; then bad "$name" "wanted one message: $(tr '\n' ' ' < "$name.err")"
    elif ! grep -qF -- "$wanted" "$name.err"; then bad "$name" "wanted '$wanted': $(tr '\n' ' ' < "$name.err")"
    else ok "$name"; fi
}

# ---- the machine -------------------------------------------------------------------------------

refused no-driver 1 'no NVIDIA driver is loaded here' CUDASIM_DRIVER=none
refused old-driver 1 'the NVIDIA driver is too old: it knows CUDA 12.4, this program was compiled with 13.0' \
    CUDASIM_DRIVER=12040
refused old-driver-hint 1 'hint: a newer driver, or gradcc built and the model compiled with a CUDA toolkit of version 12' \
    CUDASIM_DRIVER=12040
refused older-driver 1 'it knows CUDA 11.8, programs of gradcc need 12.0 or later' CUDASIM_DRIVER=11080
refused older-driver-hint 1 'hint: a newer driver, that of CUDA 13.0' CUDASIM_DRIVER=11080
refused no-device 1 'the NVIDIA driver has no GPU for this program' CUDASIM_DEVICES=0
refused hidden-device 1 ': CUDA_VISIBLE_DEVICES is' CUDASIM_DEVICES=0 CUDA_VISIBLE_DEVICES=7
refused hidden-hint 1 'hint: unset it, or name a GPU that nvidia-smi lists' CUDASIM_DEVICES=0 CUDA_VISIBLE_DEVICES=7
refused no-device-hint 1 'hint: nvidia-smi lists those there are' CUDASIM_DEVICES=0
refused insufficient-driver 1 'the NVIDIA driver is too old for this program' \
    CUDASIM_FAIL=cudaGetDeviceCount:1:cudaErrorInsufficientDriver
refused which-device 2 '--device 3: there is 1 GPU, numbered from 0' X=1 -- --device 3
refused variable 2 'RT_CUDA_GRAPH=off is none of 0|1' RT_CUDA_GRAPH=off
refused old-device 1 'has compute capability 7.0; this program needs 8.0' CUDASIM_ARCH=70
refused runtime-code 1 'the runtime in this program holds no code for simulated device 9.0' \
    CUDASIM_FAIL=cudaFuncGetAttributes:1:cudaErrorUnsupportedPtxVersion
refused other-code 1 'digits_mlp.model was compiled without code for simulated device 9.0, cuda:0' \
    CUDASIM_FAIL=cudaFuncGetAttributes:2:cudaErrorNoKernelImageForDevice
refused other-code-hint 1 'hint: compile it again with gradcc --target=cuda --cuda-arch=sm_90' \
    CUDASIM_FAIL=cudaFuncGetAttributes:2:cudaErrorNoKernelImageForDevice
refused old-library 1 'cuBLASLt is too old' CUDASIM_CUBLASLT=old
refused out-of-memory 1 'gradient 37.8 KiB, optimizer 37.8 KiB, arena 28.8 KiB' CUDASIM_MEMORY=900000
refused smaller-steps 1 'hint: --accumulate 4 fits and gives the same update' CUDASIM_MEMORY=1190000
refused in-one-piece 1 'digits_mlp needs 1.2 MiB in one piece, 2.0 GiB of 2.0 GiB are free' \
    CUDASIM_FAIL=cudaMalloc:1:cudaErrorMemoryAllocation
refused pinned-memory 1 'of pinned host memory' CUDASIM_FAIL=cudaHostAlloc:2:cudaErrorMemoryAllocation
if ./digits.cpu --device 0 2>&1 | grep -q 'digits_mlp was compiled for processors'; then ok not-for-gpus
else bad not-for-gpus "no message"; fi

# Rows that are kept in more shared memory than the GPU has for a block.
cat > wide.model <<'EOF'
const V = 26000
batch B
model wide(x: [B, 2], y: int[B] in 0..V) {
    head: linear[2, V]
    loss = mean(cross_entropy(head(x), y))
}
train {
    data = csv("wide.csv", split: 0.5) { x = cols(0..2), y = col(2) }
    batch = 2, steps = 1, optimizer = sgd(lr: 0.1)
}
EOF
printf '%s\n' 1,2,3 4,5,25000 6,7,8 9,10,11 > wide.csv
if "$GRADCC" --target=cuda --emit=cuda wide.model -o wide.cu >&2 &&
   "$root/tests/cudasim/cc.sh" --runtime -w -o wide.gpu wide.cu >&2; then
    CUDASIM_ARCH=86 ./wide.gpu --out none > wide.out 2> wide.err; code=$?
    if [ $code -eq 1 ] && grep -qF 'wide.model:5: rows of this line take 104' wide.err &&
       grep -qF 'simulated device 8.6, cuda:0, has 101376 for a block' wide.err; then ok long-rows
    else bad long-rows "exit code $code: $(tail -n 2 wide.err | tr '\n' ' ')"; fi
    if ./wide.gpu --out none > wide.out 2>&1; then ok long-rows-fit
    else bad long-rows-fit "$(tail -n 1 wide.out)"; fi
    # and where the program is not asked at its start
    CUDASIM_FAIL=cudaFuncSetAttribute:1:cudaErrorInvalidValue ./wide.gpu --out none > wide.out 2> wide.err; code=$?
    if [ $code -eq 1 ] && grep -qF 'wide.model:5: rows of this line take 104' wide.err; then ok long-rows-launch
    else bad long-rows-launch "exit code $code: $(tail -n 2 wide.err | tr '\n' ' ')"; fi
else bad long-rows "does not compile"; fi

# ---- calls that fail ---------------------------------------------------------------------------

kernel=$(grep -om1 'g[0-9]*_d_fc1\b' digits.cu)
refused launch 1 "digits_mlp.model:12: cudaLaunchKernel($kernel): invalid configuration argument" \
    "CUDASIM_FAIL=launch:$kernel:1:cudaErrorInvalidConfiguration"
refused late-failure 1 'work on the GPU failed: an illegal memory access was encountered' \
    "CUDASIM_FAIL=launch:$kernel:1:cudaErrorIllegalAddress"
refused named-failure 1 "digits_mlp.model:12: cudaLaunchKernel($kernel): an illegal memory access" \
    "CUDASIM_FAIL=launch:$kernel:1:cudaErrorIllegalAddress" RT_CUDA_SYNC=1
# A fault that a later launch finds is not that launch's.
refused fault-at-launch 1 'work on the GPU failed: an illegal instruction was encountered' \
    "CUDASIM_FAIL=launch:$kernel:1:cudaErrorIllegalInstruction" CUDASIM_STREAMS=early
refused hint 1 'hint: run again with RT_CUDA_SYNC=1' CUDASIM_FAIL=cudaEventSynchronize:3:cudaErrorIllegalAddress
refused memory-fault 1 'hint: the memory of the GPU is faulty' \
    CUDASIM_FAIL=cudaEventSynchronize:3:cudaErrorECCUncorrectable
for call in cudaStreamBeginCapture cudaGraphInstantiate; do
    # shellcheck disable=SC2086
    CUDASIM_FAIL=$call:1:cudaErrorNotSupported ./digits.gpu $data --steps 6 --out "no-$call" > "$call.log" 2>&1 &&
        ./digits.gpu $data --steps 6 --out "with-$call" > /dev/null 2>&1
    if ! grep -q 'cannot be recorded as a CUDA graph' "$call.log"; then bad "$call" "$(tail -n 2 "$call.log" | tr '\n' ' ')"
    elif cmp -s "no-$call/step-00000006/model.safetensors" "with-$call/step-00000006/model.safetensors"; then ok "$call"
    else bad "$call" "other parameters without graphs"; fi
done

# ---- steps that are not finite -----------------------------------------------------------------

# both NAME OPTIONS...: the same run on a CPU and in the simulator; messages without numbers of bytes
both() {
    local name=$1 side; shift
    for side in cpu gpu; do
        # shellcheck disable=SC2086
        "./digits.$side" $data --out "$name-$side" "$@" > "$name-$side.out" 2> "$name-$side.err"
        echo "exit code $?" >> "$name-$side.err"
        # which of nan and inf a product of huge numbers becomes depends on the order of its sum
        sed -E "s/$name-$side|digits\.$side//g; /elements, the first/d" "$name-$side.err" > "$name-$side.said"
    done
    if cmp -s "$name-cpu.said" "$name-gpu.said"; then ok "$name"
    else bad "$name" "$(diff "$name-cpu.said" "$name-gpu.said" | head -n 4 | tr '\n' ' ')"; fi
}

both stop --steps 9 --lr 1e25
grep -q 'the parameters are as before the step' stop-gpu.err && grep -q 'exit code 1' stop-gpu.err ||
    bad stop-message "$(tail -n 3 stop-gpu.err | tr '\n' ' ')"
# shellcheck disable=SC2086
if ./digits.gpu --data "$root/models/digits.csv.gz" --replay stop-gpu > replay.out 2>&1 &&
   grep -q 'the gradient is that of the run, bit for bit' replay.out; then ok replay
else bad replay "$(tail -n 2 replay.out | tr '\n' ' ')"; fi
both skip --steps 9 --lr 1e25 --nonfinite skip --max-skips 4
# After a step that was skipped the run goes on as one whose host never is a step ahead: it saves
# after each.
if build half --precision=fp16; then
    # shellcheck disable=SC2086
    ./half.gpu $data --steps 2 --tf32 --out none > tf32.out 2> tf32.err; code=$?
    if [ $code -eq 2 ] && grep -qx 'error: --tf32: no product of this run is in fp32' tf32.err; then ok tf32-half
    else bad tf32-half "exit code $code: $(tail -n 1 tf32.err)"; fi
    # shellcheck disable=SC2086
    ./digits.gpu $data --steps 2 --tf32 --out none > tf32.out 2>&1
    if grep -q '^products .*, fp32 by TF32' tf32.out; then ok tf32; else bad tf32 "$(tail -n 1 tf32.out)"; fi
    for way in ahead waits; do
        every=0; [ $way = waits ] && every=1
        # shellcheck disable=SC2086
        ./half.gpu $data --steps 12 --save $every --loss-scale 1e9 --scale-interval 3 --out half-$way \
            > half-$way.out 2> half-$way.err
        sed -E 's/"(seconds|run_id)": [^,}]*//g' half-$way/metrics.jsonl > half-$way.said
    done
    # shellcheck disable=SC2086
    ./half.cpu $data --steps 12 --loss-scale 1e9 --scale-interval 3 --out half-cpu > half-cpu.out 2> half-cpu.err
    scales() { grep -o '"loss_scale": [0-9.]*\|"skipped": [0-9]*' "$1/metrics.jsonl"; }
    if ! cmp -s half-ahead.said half-waits.said; then bad skip-ahead "other records: $(diff half-ahead.said half-waits.said | head -n 2)"
    elif ! cmp -s half-{ahead,waits}/step-00000012/model.safetensors; then bad skip-ahead "other parameters"
    elif [ "$(grep -c 'is skipped' half-ahead.err)" -lt 2 ]; then bad skip-ahead "nothing was skipped"
    else ok skip-ahead; fi
    if [ "$(scales half-ahead)" = "$(scales half-cpu)" ]; then ok loss-scale
    else bad loss-scale "other scales than on a CPU: $(scales half-ahead | tail -n 2)"; fi
fi

# ---- a signal, while the next step is queued ---------------------------------------------------

more="--decay-steps 100000"
# shellcheck disable=SC2086
timeout 100 ./digits.gpu $data $more --steps 100000 --out signal > signal.out 2>&1 & running=$!
for _ in $(seq 50); do grep -q '"train/loss"' signal/metrics.jsonl 2> /dev/null && break; sleep 0.2; done
kill -TERM $running; wait $running; code=$?
at=$(find signal -name 'step-*' | sed 's/.*step-0*//')
if [ $code -eq 75 ] && [ -n "$at" ] && ./digits.gpu --data "$root/models/digits.csv.gz" --out signal \
        --resume auto --steps $((at + 2)) > signal-on.out 2>&1 &&
   # shellcheck disable=SC2086
   ./digits.gpu $data $more --steps $((at + 2)) --out straight > straight.out 2>&1 &&
   cmp -s {signal,straight}/step-"$(printf %08d $((at + 2)))"/model.safetensors; then ok signal
else bad signal "exit code $code, stopped at step '$at'"; fi

# ---- a program without main --------------------------------------------------------------------

if "$root/tests/cudasim/cc.sh" --runtime -w -DRT_LIBRARY -o two "$here/two_runs.cc" digits.cu >&2 &&
   ./two --data "$root/models/digits.csv.gz" --batch 16 --out none > two.out 2>&1 && grep -qx ok two.out; then ok two-runs
else bad two-runs "$(tail -n 2 two.out | tr '\n' ' ')"; fi

# ---- looked at ---------------------------------------------------------------------------------

for side in cpu gpu; do
    # shellcheck disable=SC2086
    "./digits.$side" $data --steps 2 --accumulate 2 --trace --out none 2>&1 | grep '^trace' |
        sed -E 's/(min|max|mean) +[^ ]+/\1/g' > trace.$side
done
if [ -s trace.cpu ] && cmp -s trace.cpu trace.gpu; then ok trace
else bad trace "$(diff trace.cpu trace.gpu | head -n 3 | tr '\n' ' ')"; fi
# shellcheck disable=SC2086
./digits.gpu $data --steps 4 --out planned > planned.out 2>&1
if grep -q '^device .*as planned$' planned.out && ! grep -q 'more than planned' planned.out; then ok memory-as-planned
else bad memory-as-planned "$(grep -E '^(memory|device) ' planned.out | tr '\n' ' ')"; fi
# A program for a CPU has no use for the plans of products that such a checkpoint holds.
./digits.cpu --data "$root/models/digits.csv.gz" --out planned --resume auto --steps 6 > planned.out 2>&1
if grep -Eq '^memory .* allocated, (as|within what was) planned$' planned.out; then ok memory-of-other-target
else bad memory-of-other-target "$(grep '^memory ' planned.out | tail -n 1)"; fi
# The table of a dry run adds up, on the GPU and on the host.
# shellcheck disable=SC2086
./digits.gpu $data --steps 4 --out none --dry-run > dry.out 2>&1
wrong=$(awk '/^  memory +bytes/ { on = 1; next } !NF { on = 0 } !on { next } { n = $0; sub(/^  [^0-9]* /, "", n);
    gsub(/,/, "", n); n += 0 } /^  on the/ { if (n != sum) print $0 ": " sum; sum = 0; seen++; next }
    !/^  before that/ { sum += n } END { if (seen != 2) print seen + 0 " sums" }' dry.out)
if [ -z "$wrong" ]; then ok table-adds-up; else bad table-adds-up "$wrong"; fi
# shellcheck disable=SC2086
RT_CUDA_PROFILE=$PWD/profile.txt ./digits.gpu $data --steps 4 --out none > profile.out 2>&1
if grep -q '^4 updates, the first left out' profile.txt && grep -q "$kernel, digits_mlp.model:12" profile.txt &&
   grep -q 'cublasLtMatmul, digits_mlp.model:13' profile.txt; then ok profile
else bad profile "$(head -n 3 profile.txt profile.out 2>&1 | tr '\n' ' ')"; fi
for other in RT_CUDA_GRAPH=0 RT_CUDA_SYNC=1; do
    # shellcheck disable=SC2086
    env $other RT_CUDA_PROFILE="$PWD/profile-$other.txt" ./digits.gpu $data --steps 4 --out none > profile.out 2>&1
    if cmp -s <(awk '{ print $2 }' profile.txt | sort) <(awk '{ print $2 }' "profile-$other.txt" | sort); then
        ok "profile-$other"
    else bad "profile-$other" "$(head -n 3 "profile-$other.txt" profile.out 2>&1 | tr '\n' ' ')"; fi
done
# An update needs no more of the host than a step that is queued: late streams find missing events.
for way in late early 3 11; do
    # shellcheck disable=SC2086
    CUDASIM_STREAMS=$way ./digits.gpu $data --steps 7 --accumulate 4 --save 3 --out "s-$way" > "s-$way.out" 2>&1
    if [ $way = late ]; then continue
    elif cmp -s s-late/step-00000007/model.safetensors "s-$way/step-00000007/model.safetensors"; then ok "streams-$way"
    else bad "streams-$way" "$(tail -n 1 "s-$way.out")"; fi
done
