#!/usr/bin/env bash
# long
# tests/cuda/device.sh from end to end without a GPU: the simulator, PyTorch on the CPU where it is
# installed, toy sizes. Each part must be done, and the report must have its numbers. What it packs
# for a machine without the packages of the build stands for flex and bison.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
: "${BUILD:=$root/build}"
out=$BUILD/rehearsal
rm -rf "$out" "$out.out"
DEVICE=simulator RESULTS=$out OUT=$out.out BUILD=$BUILD "$root/tests/cuda/device.sh" >&2
for part in $(sed -n '/^parts="/,/"$/p' "$root/tests/cuda/device.sh" | tr -d '"' | sed 's/^parts=//' | tr ' ' '\n' | sed -n 's/:.*//p'); do
    if [ -e "$out/$part.done" ]; then echo "ok rehearsal/$part"
    else echo "not ok rehearsal/$part: $(tail -n 1 "$out/$part.txt" 2> /dev/null || echo 'it did not begin')"; fi
done
kit=$out.kit
rm -rf "$kit"; mkdir -p "$kit/bin"
for name in flex bison; do ln -s /bin/false "$kit/bin/$name"; done
if BUILD=$BUILD "$root/tests/cuda/device.sh" --kit "$kit/kit.tgz" >&2 &&
   KIT=$kit/kit.tgz BUILD=$kit/build DEVICE=simulator "$root/tests/cuda/device.sh" none >&2 &&
   PATH=$kit/bin:$PATH make -C "$root" BUILD="$kit/build" CUDA=0 "$kit/build/grammar/"{parser,lexer}.o >&2 &&
   [ -e "$kit/build/kit/lib/libjansson.a" ] && [ -e "$kit/build/kit/include/jansson_config.h" ]
then echo "ok rehearsal/kit"
else echo "not ok rehearsal/kit: the grammar is not made of it"; fi
if tar -tzf "$out.out/device-report.tgz" | grep -q '/speed-mlp\.json$' && [ -s "$out.out/report.md" ]
then echo "ok rehearsal/archive"
else echo "not ok rehearsal/archive: it has no speed-mlp.json"; fi
for case in gpt2-124m gpt2-350m gpt2-b1 mlp; do
    if grep -qE "^\| $case \| (bf16|fp32) \| [0-9.]+ \([0-9.]+\) \| " "$out/report.md"; then echo "ok rehearsal/report-$case"
    else echo "not ok rehearsal/report-$case: no row with times"; fi
done
