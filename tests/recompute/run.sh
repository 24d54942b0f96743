#!/usr/bin/env bash
# What the backward pass computes again changes no bit: a few updates of each model with recompute =
# auto, none, blocks and budgets of 75, 50 and 35 % of the arena of auto (or the least that can be had).
# A model may begin with `# dims: T=4 B=2`: these are its training dims too.
# Usage: run.sh [MODEL ...]
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$BUILD/tests-recompute
rm -rf "$work"; mkdir -p "$work"
export OMP_NUM_THREADS=2
flags="-std=c11 -march=native -fopenmp -ffp-contract=off -I$root/runtime -I../run -w -DTOLERANCE=0"
libs="$BUILD/libgradcc_rt.a $(cat "$BUILD/rt.libs")"

# emit BASE FILE [OPTION ...]: the program, in BASE.c
emit() {
    "$GRADCC" --emit=c "${@:3}" "$2" -o "$1.c" 2> "$1.err" || { head -n 1 "$1.err"; return 1; }
}

# steps BASE REAL DIMS OPTIMISATION: compiles BASE.c and runs it; the lines are in BASE.out. Programs
# that differ in what they tell only run once.
steps() {
    local base=$1 real=$2 dims=$3 model text
    text=$work/$(basename "${base%%-[^-]*-*}")-$(sed '/^ \*/d; /\.recompute = "/d; /\.recompute =$/,/",$/d' "$base.c" | md5sum | cut -c1-16).out
    if [ -e "$text" ]; then cp "$text" "$base.out"; return; fi
    model=$(sed -n 's/^const RtModel \([A-Za-z0-9_]*\) = .*/\1/p' "$base.c")
    # shellcheck disable=SC2086
    $CC $flags $4 -DEMITTED="\"$base.c\"" -DMODEL="$model" -DREAL="$real" -o "$base" steps.c $libs \
        2> "$base.err" || { grep -m1 error "$base.err"; return 1; }
    # shellcheck disable=SC2086
    "$base" $dims > "$base.out" 2> "$base.err" || { echo "it ended with $?"; return 1; }
    cp "$base.out" "$text"
}

# row NAME < explained: the bytes in this row
row() { awk -v n="$1" '$1 == n { gsub(",", "", $2); print $2; exit }'; }
arena() { sed -n 's/^arena //p' "$work/$1.out"; }

# budget_of FILE OPTIONS PERCENT: bytes, for this part of the arena of auto; the least if that is more
budget_of() {
    local memory total arena bytes least
    memory=$("$GRADCC" --explain=memory "${@:3}" "$1") || return 1
    total=$(row total <<< "$memory") arena=$(row arena <<< "$memory")
    bytes=$((total - arena + arena * $2 / 100))
    least=$("$GRADCC" --emit=c "${@:3}" --recompute=budget:$bytes "$1" -o /dev/null 2>&1 |
        sed -n 's/^hint: the least that can be reached is \([0-9.]*\) \(.\).*/\1 \2/p')
    # told in three figures
    [ -z "$least" ] || bytes=$(awk '{ u["B"] = 1; u["K"] = 1024; u["M"] = 1048576
        print int($1 * u[$2] * 1.006) }' <<< "$least")
    echo "$bytes $((total - arena))"
}

# same NAME BASE CHOICE: the numbers of the choice are those of auto
same() {
    if cmp -s <(grep -v arena "$2.out") <(grep -v arena "$2-$3.out"); then
        echo "ok recompute/$1 $3"
    else
        echo "not ok recompute/$1 $3: other bits than auto, first in the line" \
            "$(diff "$2.out" "$2-$3.out" | sed -n 's/^> //p' | head -n 1)"
    fi
}

# check FILE NAME PRECISIONS OPTIMISATION [OPTION ...]
check() {
    local file=$1 name=$2 precisions=$3 level=$4 dims batch others precision real base why choice budget fixed told given
    shift 4
    dims=$(sed -n '1s/^# dims: //p' "$file")
    dims=${dims:-B=4 T=16}
    batch=$(sed 's/.*B=\([0-9]*\).*/\1/' <<< "$dims")
    others=$(sed 's/ *B=[0-9]* */ /; s/^ //; s/=/:/g; s/ *$//; s/ /, /g' <<< "$dims")
    for precision in $precisions; do
        real=float; [ "$precision" = fp64 ] && real=double
        base=$work/$name-$precision
        told=("--precision=$precision" -D "batch=$batch" -D accumulate=1 ${others:+-D "dims=($others)"} "$@")
        why=$(emit "$base" "$file" "${told[@]}" && steps "$base" $real "$dims" "$level") ||
            { echo "not ok recompute/$name $precision: $why"; continue; }
        for choice in none blocks 75% 50% 35%; do
            budget= given=$choice
            if [[ $choice = *% ]]; then
                read -r budget fixed < <(budget_of "$file" "${choice%\%}" "${told[@]}")
                given=budget:$budget
            fi
            why=$(emit "$base-$choice" "$file" "${told[@]}" "--recompute=$given" &&
                steps "$base-$choice" $real "$dims" "$level") ||
                { echo "not ok recompute/$name $precision $choice: $why"; continue; }
            if [ -n "$budget" ] && [ $((fixed + $(arena "$name-$precision-$choice"))) -gt "$budget" ]; then
                echo "not ok recompute/$name $precision $choice: more than the budget of $budget bytes"
            else
                same "$name $precision" "$base" "$choice"
            fi
        done
    done
}

both() {                                        # two at a time
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    check "$@" &
}

if [ $# -gt 0 ]; then
    for file in "$@"; do check "$file" "$(basename "$file" .model)" "fp64 fp32 bf16" -O1; done
    exit
fi

gpt=(-D V=40 -D C=32 -D H=2 -D L=8 -D Tmax=32 -D rate=0.1)
both $root/models/chargpt.model chargpt "fp64 bf16" -O1 "${gpt[@]}"
both $root/models/chargpt.model chargpt fp32 "-O3 -fno-math-errno -fno-trapping-math" "${gpt[@]}"
both $root/models/gpt2.model gpt2-head fp32 -O1 "${gpt[@]}" --head-rows=24
both scans.model scans "fp32 bf16" -O1
both ../run/gpt.model gpt "fp64 bf16" -O1
both ../run/regions.model regions bf16 -O1
both ../run/nested.model nested fp32 -O1
both ../run/scan.model scan fp64 -O1
both ../grad/stacked_scan.model stacked_scan fp64 -O1
wait

# The numbers that are told: fewer bytes, more work.
arenas() { local c; for c in "" -none -75% -50% -35% -blocks; do arena "chargpt-fp32$c"; done; }
# shellcheck disable=SC2046
if arenas | awk '{ a[NR] = $1 }
    END { exit !(a[2] > a[1] && a[3] <= 0.75*a[1] && a[4] <= 0.5*a[1] && a[5] <= 0.35*a[1] && a[6] > 0) }'; then
    echo "ok recompute/arenas"
else
    echo "not ok recompute/arenas: they do not shrink as asked for:" $(arenas)
fi
explained() {
    "$GRADCC" "${gpt[@]}" -D rate=0 -D batch=8 -D "dims=(T:16)" --explain=recompute --recompute="$1" \
        $root/models/chargpt.model
}
told=$(explained budget:2.9MiB)
if echo "$told" | grep -q '^recompute = budget(2.90 MiB), at B = 8, T = 16$' &&
    echo "$told" | grep -Eq '^  h_ln_2 +prelude|^  h_ln_2 +chargpt.model:[0-9]+ +[0-9.]+ KiB' &&
    echo "$told" | grep -q '^predicted time of a micro-step: +' &&
    echo "$told" | grep -Eq '^memory: 2\.[78][0-9]? MiB, of which '; then
    echo "ok recompute/explained"
else
    echo "$told" >&2
    echo "not ok recompute/explained: it tells something else"
fi
if grep -q '^ \* recompute = blocks: ' "$work/chargpt-fp32-blocks.c"; then
    echo "ok recompute/emitted"
else
    echo "not ok recompute/emitted: the file does not tell it"
fi
for unit in 'budget(2.9 MiB)' 'budget(3040871)' 'budget(2969.6KiB)'; do
    if explained "$unit" | grep -q '^recompute = budget(2.90 MiB)'; then
        echo "ok recompute/unit $unit"
    else
        echo "not ok recompute/unit $unit: not read as 2.9 MiB"
    fi
done
if explained 'budget(1 GiB)' | grep -q '^the budget is no limit: recompute = auto meets it$' &&
    ! grep -q 'no limit' <<< "$told"; then
    echo "ok recompute/no-limit"
else
    echo "not ok recompute/no-limit: a budget above what auto needs is not called so"
fi
