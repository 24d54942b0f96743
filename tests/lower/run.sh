#!/usr/bin/env bash
# Models and the IR they are lowered to: what `--dump-after=lower` prints is FILE.ir.
# BLESS=1 rewrites the .ir files.
set -u
cd "$(dirname "$0")"
out=$(mktemp); trap 'rm -f "$out"' EXIT

for model in *.model; do
    name=lower/${model%.model}
    golden=${model%.model}.ir
    if ! "$GRADCC" --dump-after lower --stop-after lower "$model" > "$out" 2>&1; then
        cat "$out" >&2
        echo "not ok $name: $(head -n 1 "$out")"
        continue
    fi
    [ -n "${BLESS:-}" ] && cp "$out" "$golden"
    if difference=$(diff "$golden" "$out" 2>&1); then
        echo "ok $name"
    else
        echo "$difference" >&2
        echo "not ok $name: the IR differs from $golden"
    fi
done
