#!/usr/bin/env bash
# What the backward pass computes again changes no bit: a few updates of each model with recompute =
# auto, none, blocks and budgets between. A model may begin with `# dims: T=4 B=2`.
# Usage: run.sh [MODEL ...]
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$BUILD/tests-recompute
rm -rf "$work"; mkdir -p "$work"
export OMP_NUM_THREADS=2
flags="-std=c11 -O3 -march=native -fopenmp -ffp-contract=off -I$root/runtime -I../run"
libs="$BUILD/libgradcc_rt.a $(cat "$BUILD/rt.libs")"

# steps BASE OPTIONS REAL DIMS < MODEL: emits, compiles, runs; the lines are in BASE.out
steps() {
    local base=$1 options=$2 real=$3 dims=$4 file=$5 model
    # shellcheck disable=SC2086
    "$GRADCC" --emit=c $options "$file" -o "$base.c" 2> "$base.err" || { grep -m1 error "$base.err"; return 1; }
    model=$(sed -n 's/^const RtModel \([A-Za-z0-9_]*\) = .*/\1/p' "$base.c")
    # shellcheck disable=SC2086
    $CC $flags -DEMITTED="\"$base.c\"" -DMODEL="$model" -DREAL="$real" -DTOLERANCE=0 -w \
        -o "$base" steps.c $libs 2> "$base.err" || { grep -m1 error "$base.err"; return 1; }
    # shellcheck disable=SC2086
    "$base" $dims > "$base.out" 2> "$base.err" || { echo "it ended with $?"; return 1; }
}

# check MODEL PRECISIONS OPTIONS CHOICES
check() {
    local file=$1 name dims precision real choice base why
    name=$(basename "$file" .model)
    dims=$(sed -n '1s/^# dims: //p' "$file")
    for precision in $2; do
        real=float; [ "$precision" = fp64 ] && real=double
        base=$work/$name-$precision
        why=$(steps "$base" "--precision=$precision $3" $real "$dims" "$file") ||
            { echo "not ok recompute/$name $precision: $why"; continue; }
        for choice in $4; do
            why=$(steps "$base-$choice" "--precision=$precision $3 --recompute=$choice" $real "$dims" "$file") ||
                { echo "not ok recompute/$name $precision $choice: $why"; continue; }
            if cmp -s <(grep -v arena "$base.out") <(grep -v arena "$base-$choice.out"); then
                echo "ok recompute/$name $precision $choice"
            else
                echo "not ok recompute/$name $precision $choice: other bits than auto," \
                    "first in the line $(diff "$base.out" "$base-$choice.out" | sed -n 's/^> //p' | head -n 1)"
            fi
        done
    done
}

if [ $# -gt 0 ]; then
    for file in "$@"; do check "$file" "fp64 fp32 bf16" "" "none blocks"; done
    exit
fi

small="-D V=40 -D C=32 -D H=2 -D L=3 -D Tmax=32 -D rate=0.1 -D dims=(T:16) -D batch=8"
check $root/models/chargpt.model "fp32" "$small" "budget:1.45MiB budget:1.3MiB"
small="$small -D rate=0"
check $root/models/chargpt.model "fp32" "$small" "none blocks budget:1200KiB"
check $root/models/chargpt.model "fp64 bf16" "$small" "blocks"
check scans.model "fp32" "" "none blocks"

# The numbers that are told: fewer bytes, more work.
explained() {
    # shellcheck disable=SC2086
    "$GRADCC" $small --explain=recompute --recompute="$1" $root/models/chargpt.model
}
arena() { sed -n 's/^arena //p' "$work/chargpt-fp32$1.out"; }
if [ "$(arena -none)" -gt "$(arena "")" ] && [ "$(arena "")" -gt "$(arena -budget:1.3MiB)" ] &&
    [ "$(arena -budget:1.3MiB)" -gt "$(arena -blocks)" ]; then
    echo "ok recompute/arenas"
else
    echo "not ok recompute/arenas: they do not shrink"
fi
told=$(explained budget:1.3MiB)
if echo "$told" | grep -q '^recompute = budget(1.30 MiB), at B = 8, T = 16$' &&
    echo "$told" | grep -Eq '^  h_ln_2 +prelude|^  h_ln_2 +chargpt.model:[0-9]+ +[0-9.]+ KiB' &&
    echo "$told" | grep -q '^predicted time of a micro-step: +' &&
    echo "$told" | grep -Eq '^memory: 1\.[23][0-9]? MiB, of which '; then
    echo "ok recompute/explained"
else
    echo "$told" >&2
    echo "not ok recompute/explained: it tells something else"
fi
if "$GRADCC" --emit=c $small --recompute=blocks $root/models/chargpt.model | grep -q '^ \* recompute = blocks: .* computed$\|recompute = blocks: '; then
    echo "ok recompute/emitted"
else
    echo "not ok recompute/emitted: the file does not tell it"
fi
for unit in 'budget(1.3 MiB)' 'budget(1363148)' 'budget(1331.2KiB)'; do
    if explained "$unit" | grep -q '^recompute = budget(1.30 MiB)'; then
        echo "ok recompute/unit $unit"
    else
        echo "not ok recompute/unit $unit: not read as 1.3 MiB"
    fi
done
