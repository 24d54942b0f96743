#!/usr/bin/env bash
# long
# tests/cuda/device.sh from end to end without a GPU: the simulator, PyTorch on the CPU where it is
# installed, toy sizes. Each part must be done, and the report must have its numbers.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${BUILD:=$root/build}"
out=$BUILD/rehearsal
rm -rf "$out"
DEVICE=simulator OUT=$out BUILD=$BUILD "$root/tests/cuda/device.sh" >&2
for part in $(sed -n '/^parts="/,/"$/p' "$root/tests/cuda/device.sh" | tr -d '"' | sed 's/^parts=//' | tr ' ' '\n' | sed -n 's/:.*//p'); do
    if [ -e "$out/$part.done" ]; then echo "ok rehearsal/$part"
    else echo "not ok rehearsal/$part: $(tail -n 1 "$out/$part.txt" 2> /dev/null || echo 'it did not begin')"; fi
done
for case in gpt2-124m gpt2-350m gpt2-b1 mlp; do
    if grep -qE "^\| $case \| (bf16|fp32) \| [0-9.]+ \([0-9.]+\) \| " "$out/report.md"; then echo "ok rehearsal/report-$case"
    else echo "not ok rehearsal/report-$case: no row with times"; fi
done
