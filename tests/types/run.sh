#!/usr/bin/env bash
# --emit=types: FILE-PRECISION.types is what gradcc prints for FILE.model in that precision.
# BLESS=1 rewrites the golden files.
set -u
cd "$(dirname "$0")"
: "${BUILD:=../../build}" "${GRADCC:=$BUILD/gradcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

for golden in *-*.types; do
    precision=${golden##*-}; precision=${precision%.types}
    model=${golden%-*}.model name=types/${golden%.types}
    if ! "$GRADCC" --emit=types --precision="$precision" "$model" > "$work/out" 2> "$work/err"; then
        cat "$work/err" >&2; echo "not ok $name: $(head -n 1 "$work/err")"; continue
    fi
    [ -n "${BLESS:-}" ] && cp "$work/out" "$golden"
    if difference=$(diff "$golden" "$work/out"); then echo "ok $name"
    else echo "$difference" | head -n 40 >&2; echo "not ok $name: the table differs from $golden"; fi
done
