#!/usr/bin/env bash
# Whole trainings of CUDA programs in the simulator beside those of the C target: the same data,
# order, initial weights and random numbers, so the same curves up to rounding; checkpoints of one
# resume in the other; graphs, orders of threads and streams change no bit.
# Usage: train.sh (from run.sh); prints ok and not ok lines.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1 OMP_NUM_THREADS=2

ok() { echo "ok cuda/train/$1"; }
bad() { echo "not ok cuda/train/$1: $2"; }
# build NAME MODEL OPTIONS...: NAME.cpu and NAME.gpu
build() {
    local name=$1 model=$2; shift 2
    "$GRADCC" "$@" "$model" -o "$name.cpu" >&2 || { bad "$name" "the C target does not compile"; return 1; }
    "$GRADCC" --target=cuda --emit=cuda "$@" "$model" -o "$name.cu" >&2 &&
        "$root/tests/cudasim/cc.sh" --runtime -o "$name.gpu" "$name.cu" >&2 ||
        { bad "$name" "the CUDA target does not compile"; return 1; }
}
# run NAME PROGRAM ARGUMENTS...: a run into the directory NAME
run() {
    local name=$1 program=$2; shift 2
    "./$program" "$@" --out "$name" > "$name.log" 2>&1 || { bad "$name" "exit code $?: $(tail -n 2 "$name.log" | tr '\n' ' ')"; return 1; }
}
# curves NAME TOLERANCE A B
curves() {
    local why
    if why=$(python3 "$here/curves.py" "$2" "$3/metrics.jsonl" "$4/metrics.jsonl" 2>&1); then
        echo "$1: $why" >&2; ok "$1"
    else bad "$1" "$why"; fi
}
# same NAME A B: byte for byte the same tensors in the last checkpoint
same() {
    local name=$1 a b f
    a=$(ls -d "$2"/step-* | tail -n 1); b=$(ls -d "$3"/step-* | tail -n 1)
    for f in model.safetensors optimizer.safetensors; do
        cmp -s "$a/$f" "$b/$f" || { bad "$name" "$f differs"; return; }
    done
    ok "$name"
}

# ---- digits ------------------------------------------------------------------------------------

digits="--data $root/models/digits.csv.gz --batch 32 --steps 12 --eval 12 --save 12 --seed 3"
if build digits "$root/models/digits_mlp.model"; then
    # shellcheck disable=SC2086
    run d-cpu digits.cpu $digits && run d-gpu digits.gpu $digits && curves digits-fp32 1e-4 d-cpu d-gpu
fi

# ---- a small character GPT: dropout, micro-steps, clipping, an average of the weights ------------

cat "$root/LICENSE" "$root/README.md" > text.txt
small="-D V=160 -D C=32 -D H=2 -D L=2 -D Tmax=16 -D rate=0.1"
common="--data text.txt --dims T=12 --batch 6 --accumulate 2 --seed 5 --ema 0.9 --eval 0"
# shellcheck disable=SC2086
if build gpt64 "$root/models/chargpt.model" $small --precision=fp64; then
    run c64 gpt64.cpu $common --steps 8 --save 4
    run g64 gpt64.gpu $common --steps 8 --save 4 && curves gpt-fp64 1e-9 c64 g64
    cp -r g64 g64-cpu; rm -rf g64-cpu/step-00000008
    run g64-cpu gpt64.cpu $common --steps 8 --save 4 --resume auto && curves resume-on-cpu 1e-9 c64 g64-cpu
    cp -r c64 c64-gpu; rm -rf c64-gpu/step-00000008
    run c64-gpu gpt64.gpu $common --steps 8 --save 4 --resume auto && curves resume-on-gpu 1e-9 g64 c64-gpu
    cp -r g64 g64-again; rm -rf g64-again/step-00000008
    run g64-again gpt64.gpu $common --steps 8 --save 4 --resume auto && same resume-exact g64 g64-again
    run g64-split gpt64.gpu ${common/--accumulate 2/--accumulate 6} --steps 8 --save 4 &&
        curves split-invariance 1e-9 g64 g64-split
    RT_CUDA_GRAPH=0 run g64-plain gpt64.gpu $common --steps 8 --save 4 && same no-graphs g64 g64-plain
    RT_CUDA_SYNC=1 run g64-sync gpt64.gpu $common --steps 8 --save 4 && same waiting g64 g64-sync
    CUDASIM_ORDER=reverse CUDASIM_STREAMS=early run g64-early gpt64.gpu $common --steps 8 --save 4 &&
        same other-orders g64 g64-early
    for side in cpu gpu; do
        ./gpt64.$side eval --data text.txt --dims T=12 --batch 6 --out g64 2>&1 | grep '^loss' > "eval.$side"
        ./gpt64.$side generate --prompt 'The ' --tokens 12 --temperature 0 --out g64 > "text.$side" 2>&1
    done
    if [ -s eval.cpu ] && cmp -s eval.cpu eval.gpu; then ok eval; else bad eval "$(cat eval.cpu) on a CPU, $(cat eval.gpu)"; fi
    if [ -s text.cpu ] && cmp -s text.cpu text.gpu; then ok generate; else bad generate "$(tail -n 2 text.gpu | tr '\n' ' ')"; fi
fi
for precision in bf16 fp16; do
    tolerance=2e-2
    # shellcheck disable=SC2086
    if build gpt-$precision "$root/models/chargpt.model" $small --precision=$precision; then
        run c-$precision gpt-$precision.cpu $common --steps 6 --save 6
        run g-$precision gpt-$precision.gpu $common --steps 6 --save 6 && curves gpt-$precision $tolerance c-$precision g-$precision
    fi
done
