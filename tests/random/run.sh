#!/usr/bin/env bash
# long: random models, emitted C against the evaluator. COUNT=40 models from seed FIRST=1.
set -u
cd "$(dirname "$0")"
: "${BUILD:=../../build}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
first=${FIRST:-1} count=${COUNT:-40}
for seed in $(seq "$first" $((first + count - 1))); do
    python3 model.py "$seed" | sed '1i # dims: B=3 T=5' > "$work/seed_$seed.model"
done
../run/run.sh "$work"/seed_*.model | sed 's|run/|random/|'
