#!/usr/bin/env bash
# long: trainings of minutes. The character GPT with the settings of nanoGPT's CPU example.
# TEXT=file names tinyshakespeare.txt (1,115,394 characters); without it the training is skipped.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
text=${TEXT:-}
case $text in ''|/*) ;; *) text=$PWD/$text ;; esac
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
if [ -z "$text" ]; then echo "skip chargpt-loss: no text; give TEXT=tinyshakespeare.txt"; exit 0; fi
if [ ! -r "$text" ]; then echo "not ok chargpt-loss: $text cannot be read"; exit 0; fi
"$GRADCC" -D bias=false -D Tmax=64 "$root/models/chargpt.model" -o gpt >&2 || { echo "not ok chargpt-loss: does not compile"; exit 1; }
total=0
for seed in 1 2 3; do
    ./gpt --data "$text" --batch 12 --steps 2000 --eval 500 --seed $seed --out run.$seed >&2
    value=$(sed -n 's|.*"val/loss": *\([0-9.]*\).*|\1|p' run.$seed/metrics.jsonl | tail -n 1)
    echo "chargpt seed $seed: validation loss ${value:-none}" >&2
    total=$(awk "BEGIN { print $total + ${value:-99} }")
done
mean=$(awk "BEGIN { printf \"%.4f\", $total / 3 }")
echo "chargpt: mean validation loss $mean" >&2
if awk "BEGIN { exit !($mean <= 1.92) }"; then echo "ok chargpt-loss"; else echo "not ok chargpt-loss: $mean, wanted 1.92"; fi
