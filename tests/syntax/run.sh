#!/usr/bin/env bash
# Trees of correct files: gradcc --emit=ast FILE.model prints FILE.ast. BLESS=1 rewrites the .ast.
set -u
cd "$(dirname "$0")"
out=$(mktemp); trap 'rm -f "$out"' EXIT

for model in *.model; do
    name=syntax/${model%.model}
    golden=${model%.model}.ast
    if ! "$GRADCC" --emit=ast "$model" > "$out" 2>&1; then
        echo "not ok $name: $(head -n 1 "$out")"
        continue
    fi
    [ -n "${BLESS:-}" ] && cat "$out" > "$golden"
    if difference=$(diff "$golden" "$out"); then
        echo "ok $name"
    else
        echo "$difference" >&2
        echo "not ok $name: the tree differs from $golden"
    fi
done
