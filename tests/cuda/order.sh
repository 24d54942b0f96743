#!/usr/bin/env bash
# A run has one result: a small GPT trained in the simulator ends in the same checkpoint, to the bit,
# in whatever order threads, warps, blocks and streams run. Usage: order.sh; prints ok and not ok.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1 OMP_NUM_THREADS=2 RT_CUDA_CACHE=none

head -c 20000 "$root/README.md" | LC_ALL=C tr -cd '\12\40-\176' > input.txt
sizes="-D V=96 -D C=32 -D H=2 -D L=2 -D Tmax=32"
options="--data input.txt --steps 3 --warmup 1 --batch 4 --accumulate 2 --eval 0"

for precision in fp32 bf16; do
    # shellcheck disable=SC2086
    if ! "$GRADCC" --target=cuda --emit=cuda $sizes --precision=$precision \
           "$root/models/chargpt.model" -o gpt.cu >&2 ||
       ! "$root/tests/cudasim/cc.sh" --runtime -w -o gpt gpt.cu >&2; then
        echo "not ok cuda/order/$precision: does not compile"
        continue
    fi
    want=
    for order in forward:late reverse:early 3:5; do
        # shellcheck disable=SC2086
        if ! CUDASIM_ORDER=${order%:*} CUDASIM_STREAMS=${order#*:} ./gpt $options \
               --out "run-$precision-$order" > out 2> err; then
            echo "not ok cuda/order/$precision-$order: $(tail -n 1 err)"
            continue
        fi
        got=$(cat "run-$precision-$order"/step-*/*.safetensors | sha1sum)
        : "${want:=$got}"
        if [ "$got" != "$want" ]; then echo "not ok cuda/order/$precision-$order: other bits"
        elif [ "$(cat "run-$precision-$order"/step-*/*.safetensors | wc -c)" -lt 100000 ]; then
            echo "not ok cuda/order/$precision-$order: no checkpoint"
        else echo "ok cuda/order/$precision-$order"; fi
    done
done
