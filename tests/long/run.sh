#!/usr/bin/env bash
# long: trainings of minutes, on real data. The character GPT with the settings of nanoGPT's CPU
# example reaches its loss; the digits, that GPT and a GPT-2 of eight layers over the bytes of the
# text reach in bf16 and fp16 the validation loss of fp32 within 1 %.
# TEXT=file names tinyshakespeare.txt (1,115,394 characters); without it only the digits train.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
text=${TEXT:-}
case $text in ''|/*) ;; *) text=$PWD/$text ;; esac
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
if [ -n "$text" ] && [ ! -r "$text" ]; then echo "not ok long: $text cannot be read"; exit 0; fi

compile() { # NAME PRECISION OPTIONS...: makes NAME-PRECISION
    "$GRADCC" --precision="$2" "${@:3}" -o "$1-$2" >&2 || echo "not ok $1-$2: does not compile"
}

loss() { # RUN PROGRAM OPTIONS...: trains; the last validation loss
    "./$2" --out "$1.run" "${@:3}" >&2
    local value; value=$(sed -n 's|.*"val/loss": *\([0-9.]*\).*|\1|p' "$1.run/metrics.jsonl" | tail -n 1)
    echo "$1: validation loss ${value:-none}" >&2
    echo "${value:-99}"     # 99: it did not train
}

near() { # NAME FP32 OTHER: reached within 1 %
    if awk "BEGIN { exit !($2 < 99 && $3 <= 1.01 * $2) }"; then echo "ok $1"
    else echo "not ok $1: validation loss $3, that of fp32 is $2"; fi
}

sixteen() { # NAME FP32 OPTIONS...: the 16-bit programs of NAME against the loss of fp32
    for p in bf16 fp16; do near "$1-$p" "$2" "$(loss "$1-$p" "$1-$p" "${@:3}")"; done
}

for p in fp32 bf16 fp16; do compile digits $p "$root/models/digits_mlp.model"; done
three() { # PROGRAM: mean over seeds 1, 2, 3; its last digits differ from seed to seed
    local total=0
    for seed in 1 2 3; do
        total="$total + $(loss "$1-$seed" "$1" --data "$root/models/digits.csv.gz" --seed $seed)"
    done
    awk "BEGIN { printf \"%.5f\", ($total) / 3 }"
}
reference=$(three digits-fp32)
for p in bf16 fp16; do near digits-$p "$reference" "$(three digits-$p)"; done
if [ -z "$text" ]; then
    for t in chargpt-loss chargpt-bf16 chargpt-fp16 gpt2-bf16 gpt2-fp16; do
        echo "skip $t: no text; give TEXT=tinyshakespeare.txt"
    done
    exit 0
fi

for p in fp32 bf16 fp16; do compile chargpt $p -D bias=false -D Tmax=64 "$root/models/chargpt.model"; done
total=0
data="--batch 12 --steps 2000 --eval 500"
for seed in 1 2 3; do
    value=$(loss chargpt-$seed chargpt-fp32 --data "$text" $data --seed $seed)
    [ $seed = 1 ] && first=$value
    total=$(awk "BEGIN { print $total + $value }")
done
mean=$(awk "BEGIN { printf \"%.4f\", $total / 3 }")
echo "chargpt: mean validation loss $mean" >&2
if awk "BEGIN { exit !($mean <= 1.92) }"; then echo "ok chargpt-loss"; else echo "not ok chargpt-loss: $mean, wanted 1.92"; fi
sixteen chargpt "$first" --data "$text" $data --seed 1

python3 - "$text" <<'PY'
import array, sys
text = open(sys.argv[1], 'rb').read()
cut = len(text) * 9 // 10
for name, part in (('train.bin', text[:cut]), ('val.bin', text[cut:])):
    with open(name, 'wb') as out:
        array.array('i', [20240520, 1, len(part)] + [0] * 253).tofile(out)
        array.array('H', list(part)).tofile(out)
PY
for p in fp32 bf16 fp16; do
    compile gpt2 $p -D V=256 -D C=256 -D H=8 -D L=8 -D Tmax=128 "$root/models/gpt2.model"
done
data="--batch 8 --accumulate 1 --steps 600 --warmup 50 --lr 1e-3 --eval 200 --seed 1"
sixteen gpt2 "$(loss gpt2-fp32 gpt2-fp32 $data)" $data
