#!/usr/bin/env bash
# Benchmarks: tests/bench/run.sh [gpt2|gpt2-bf16|gpt2-1024|gpt2-head|nanogpt|ranks]; all of them without a name.
# Budgets of memory: python3 tests/bench/recompute.py
set -eu
cd "$(dirname "$0")"
for name in ${1:-gpt2 gpt2-bf16 gpt2-1024 gpt2-head nanogpt ranks}; do
    if [ "$name" = ranks ]; then python3 ranks.py; else python3 bench.py "$name"; fi
done
