#!/usr/bin/env bash
# The emitted text does not grow with the depth of a stack: 48 layers differ from 12 in numbers only.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
for layers in 12 48; do
    "$GRADCC" --emit=c -D L=$layers "$root/models/gpt2.model" -o "$tmp/$layers.c" >&2 || { echo "not ok depth: does not compile"; exit 1; }
    sed 's/[0-9][0-9.,]*//g; s/ \+/ /g; s/[KMG]iB/iB/g; s/ \*$//' "$tmp/$layers.c" > "$tmp/$layers.text"
done
if diff "$tmp/12.text" "$tmp/48.text" >&2; then echo "ok depth/gpt2"; else echo "not ok depth/gpt2: the text differs"; fi
