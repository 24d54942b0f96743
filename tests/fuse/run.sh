#!/usr/bin/env bash
# The fuse pass: what its kernels compute is what the evaluator says, fused and unfused.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
test=$BUILD/test_fuse
objects=$(find "$BUILD/compiler" "$BUILD/grammar" -name '*.o' ! -name main.o | sort)
$CC -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wshadow -Werror -I"$root/compiler" \
    -o "$test" "$here/test_fuse.c" "$here/machine.c" "$here/random.c" $objects -lm >&2 || exit 1

run() {             # run NAME FILE [CONST=value ...] [-- DIM=value ...]
    "$test" "$root/models/prelude.model" "$@" || echo "not ok $1: exit code $?"
}

small_gpt="V=11 C=8 H=2 L=3"          # the longest window stays, as the train block needs it
run digits_mlp "$root/models/digits_mlp.model"
run chargpt "$root/models/chargpt.model" $small_gpt rate=0.0 -- T=5 B=3
run chargpt-dropout "$root/models/chargpt.model" $small_gpt rate=0.25 bias=false -- T=5 B=3
run gpt2 "$root/models/gpt2.model" $small_gpt -- T=5 B=2
for f in "$here"/*.model; do
    [ -e "$f" ] || continue
    run "$(basename "$f" .model)" "$f" $(sed -n 's/^# consts //p' "$f") -- $(sed -n 's/^# dims //p' "$f")
done
for f in "$here"/*.ir $(ls "$root"/tests/ops/*.ir | grep -v /mean.ir) "$root"/tests/pass/*/*.ir "$root"/tests/ir/gpt.ir; do
    [ -e "$f" ] || continue
    run "$(basename "$f" .ir)" "$f"
done
"$test" random 1 500 || echo "not ok random: exit code $?"
# Infinite scores; scores of 1e5, where lse has lost digits; a gradient that is exactly 0.
for seed in 15927 21620 23175 34430 59639; do
    "$test" random $seed $seed || echo "not ok random-$seed: exit code $?"
done
