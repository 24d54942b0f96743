#!/usr/bin/env bash
# Emits every model with this compiler and with that of another commit, and compares the text: a
# commit called "refactor" must show no difference. Usage: tests/same.sh COMMIT
set -eu
cd "$(dirname "$0")/.."
base=${1:?usage: make same BASE=commit}
build=${BUILD:-build}; case $build in /*) ;; *) build=$PWD/$build ;; esac
tmp=$(mktemp -d); trap 'git worktree remove --force "$tmp/base" 2>/dev/null; rm -rf "$tmp"' EXIT
git worktree add --quiet --detach "$tmp/base" "$base"
make -s -j2 -C "$tmp/base" BUILD="$tmp/base/build" CUDA=0 all >&2
rc=0
for m in models/*.model tests/grad/*.model tests/emit/*.model; do
    [ "$m" = models/prelude.model ] && continue
    for flags in "" "-O0" "--precision=fp64"; do
        "$build/gradcc" $flags --emit=c -o "$tmp/new.c" "$m"
        "$tmp/base/build/gradcc" $flags --emit=c -o "$tmp/old.c" "$m" 2>/dev/null || { echo "$m is new"; break; }
        cmp -s "$tmp/old.c" "$tmp/new.c" || { echo "$m $flags: different"; diff "$tmp/old.c" "$tmp/new.c" | head -n 5; rc=1; }
    done
done
exit $rc
