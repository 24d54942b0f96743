#!/usr/bin/env bash
# The tests of products once more on the plain path: what a build without oneDNN runs.
set -u
if [ -x "$work/matmul" ] && (cd "$work" && RT_MATMUL=plain ./matmul) > "$work/matmul_plain.log" 2>&1; then
    echo "ok runtime/matmul_plain"
else
    echo "not ok runtime/matmul_plain: RT_MATMUL=plain $work/matmul"
    tail -5 "$work/matmul_plain.log" >&2
fi
