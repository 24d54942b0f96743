#!/usr/bin/env bash
# MAP kernels of the CUDA target, one by one: in the simulator, against the same kernels in C; and
# what --explain=traffic says they move, against what the simulator counts.
set -u
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
export BUILD
root=$PWD g=$(realpath "$GRADCC")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
ok()  { echo "ok kernels/$1"; }
bad() { echo "not ok kernels/$1: $2"; }

# ---- what is said of their traffic ---------------------------------------------------------------

traffic="$g --target=cuda --explain=traffic models/gpt2.model"

# ratio PRECISION MOST: what GPT-2 moves at B=64, T=1024 is at most so many times the least. A row of
# logits in 32 bits has 196 KiB, more than a block may keep on sm_80: it is read twice. With the
# epilogues of products, of which the least is less, a seventh less is moved.
ratio() {
    local all said then
    all=$($traffic --precision="$1" --dims B=64 --dims T=1024)
    said=$(sed -n 's/^Of an update: \(.*\) MB moved.* \(.*\) times\.$/\1 \2/p' <<< "$all")
    then=$(sed -n 's/^An update then: \(.*\) MB moved.* \(.*\) times\.$/\1 \2/p' <<< "$all")
    if awk -v most="$2" '{ r[NR] = $2; b[NR] = $1 }
            END { exit !(NR == 2 && r[1] >= 1 && r[1] <= most && r[2] >= 1 && r[2] <= most &&
                         b[2] < 0.88 * b[1] && b[2] > 0.84 * b[1]) }' <<< "$said
$then"; then
        ok "traffic-$1"
    else
        bad "traffic-$1" "moves '$said' MB and times the least, with epilogues '$then'"
    fi
}
ratio fp32 1.15
ratio bf16 1.05
ratio fp16 1.05
# With epilogues all is there that they do not do, what counts for losses and metrics, too.
"$g" -w --target=cuda --explain=traffic --dims B=8 tests/run/gpt.model > "$work/gpt.txt"
why=$(awk '
    /^these are left out: / {
        later = 1
        sub(/^these are left out: /, ""); sub(/\.$/, "")
        n = split($0, out, ", ")
    }
    /^k[0-9]/ && !later { times[$1] = $2; counts += $1 ~ /_count_/ }
    /^k[0-9]/ && later && !/, besides/ { rest += $2 }
    /^In a micro-step/ { launches[later + 0] = $4 }
    END {
        for (i = 1; i <= n; i++) gone += times[out[i]]
        if (!n || !counts || launches[0] - gone + rest != launches[1])
            printf "%d of %d launches, %d gone, %d instead", launches[1], launches[0], gone, rest
    }' "$work/gpt.txt") && [ -z "$why" ] && ok traffic-epilogues || bad traffic-epilogues "$why"
if "$g" --explain=traffic models/gpt2.model > "$work/said" 2>&1; then
    bad traffic-target "goes without --target=cuda"
elif grep -q -- '--target=cuda' "$work/said"; then
    ok traffic-target
else
    bad traffic-target "$(head -n 1 "$work/said")"
fi

# ---- against C -----------------------------------------------------------------------------------
# Long rows have multiples of 64 elements here, so that both targets lay them out alike.

if ! command -v "${CXX:-g++}" > /dev/null || ! command -v python3 > /dev/null; then
    echo "skip kernels: g++ or python3 is not here"
    exit 0
fi

# same NAME MODEL PRECISION ELEMENTS "OPTIONS" DIM=SIZE...
same() {
    local name=$1 model=$2 precision=$3 elements=$4 options=$5 dir=$work/$1; shift 5
    mkdir -p "$dir"
    # shellcheck disable=SC2086
    if "$g" -w $options --precision="$precision" --emit=c "$model" > "$dir/model.c" &&
        "$g" -w $options --precision="$precision" --target=cuda --emit=cuda "$model" > "$dir/model.cu" &&
        python3 tests/kernels/kernels.py "$dir" "$dir/model.c" "$dir/model.cu" "$@" &&
        "$CC" -std=c11 -D_GNU_SOURCE -O1 -fopenmp -ffp-contract=off -w -Iruntime -c "$dir/kernels.c" \
            -o "$dir/c.o" &&
        tests/cudasim/cc.sh -w -DELEMENTS="$elements" ${special:-} -I"$root/tests/kernels" -o "$dir/program" \
            "$dir/kernels.cu" "$dir/c.o" -lgomp -lm > "$dir/made" 2>&1 &&
        CUDASIM_TRAFFIC=$dir/traffic.txt "$dir/program" > "$dir/said" 2>&1
    then
        ok "$name"
    else
        bad "$name" "$(cat "$dir/made" "$dir/said" 2> /dev/null | grep -m 1 'not ok\|error\|cudasim')"
    fi
}

small="-D C=256 -D V=97 -D H=4 -D L=2 -D Tmax=16"
same digits models/digits_mlp.model fp32 16384 "" B=37
same gpt2-bf16 models/gpt2.model bf16 16384 "$small" B=3 T=5
same dropout models/chargpt.model fp16 16384 "-D C=64 -D L=1 -D V=33 -D rate=0.2" B=3 T=5
same long-rows models/gpt2.model bf16 131072 \
    "-D C=64 -D V=40000 -D H=4 -D L=1 -D Tmax=3 --head-rows=3" B=1 T=3 rows=3
# long rows of an odd length lie on a boundary, in all that touches them, and are moved in vectors
long=$("$g" -w --target=cuda --emit=cuda --precision=bf16 models/gpt2.model)
why=
for part in "logits  *\[rows,50304\]" "\.ldc = 50304 }" "\.k = V, \.lda = 50304 }" \
    'RT_CHECK_GRID(s, 13, "d_logits\[rows,V\]", d_logits, { n.rows, 50304 }, { V, 1 })' \
    'rt_load_part<8>(logits + irows\*50304 + at, V - at)' \
    'rt_store_part(d_logits + irows\*50304 + at, d_logits_out, V - at)'; do
    grep -q -- "$part" <<< "$long" || why=${why:-"$part is not there"}
done
grep -q 'logits[a-z_]*\[irows\*V' <<< "$long" && why=${why:-"a kernel has dense rows of logits"}
grep -q 'logits[a-z_]*\[irows\*50304 + iv' <<< "$long" && why=${why:-"a kernel takes logits one by one"}
if [ -z "$why" ]; then ok boundary; else bad boundary "$why"; fi

# rows that are not kept: the largest and the sum of exp(x - it) in one pass
one_pass="-D C=32 -D V=50240 -D H=4 -D L=1 -D Tmax=16 --head-rows=3"
same one-pass models/gpt2.model fp32 163840 "$one_pass" B=1 T=3 rows=3
special=-DSPECIAL=50240 same one-pass-special models/gpt2.model fp32 409600 \
    "${one_pass/rows=3/rows=8}" B=1 T=8 rows=8
if grep -q rt_block_add_exp "$work/one-pass/model.cu"; then
    ok one-pass-there
else
    bad one-pass-there "logits of 50240 in fp32 are not done in one pass"
fi
same across tests/run/across.model fp32 16384 "" B=5 T=5
same outputs tests/run/outputs.model fp32 16384 "" B=5

# ---- what is said to be moved, and what is counted --------------------------------------------------

# moves NAME PERCENT MODEL PRECISION ELEMENTS "OPTIONS" DIM=SIZE...: all kernels of a program, when
# gradients add to what is there: the bytes that --explain=traffic has for a kernel are those that the
# simulator counts, with those of the launch that adds its partial sums, up to PERCENT or 600 bytes. What
# k1_x reads of an embedding is up to the ids.
moves() {
    local name=$1 percent=$2 model=$3 precision=$4 elements=$5 options=$6 dir=$work/$1 dims= dim why; shift 6
    for dim in "$@"; do [[ $dim = rows=* ]] || dims="$dims --dims $dim"; done # rows: of a part
    [ -x "$dir/program" ] || same "$name" "$model" "$precision" "$elements" "$options" "$@"
    KERNELS_ADD=1 CUDASIM_TRAFFIC=$dir/moved.txt "$dir/program" > "$dir/said" 2>&1
    # shellcheck disable=SC2086
    "$g" -w --target=cuda --precision="$precision" $options --explain=traffic $dims "$model" > "$dir/told.txt"
    if why=$(awk -v percent="$percent" '
        NR == FNR && /^k[0-9]/ { told["g" substr($1, 2)] = $5 * 1e6; next }
        NR == FNR { next }
        { kernel = $1; sub(/^rt_add_parts<[a-z]*>,/, "", kernel) }
        kernel in told { counted[kernel] += $10 }
        END {
            for (kernel in counted) {
                n++
                d = told[kernel] - counted[kernel]
                if (kernel == "g1_x" && d > 0)
                    continue
                d = d < 0 ? -d : d
                if (d > 600 && d > percent * counted[kernel] / 100)
                    printf "%s: %d bytes, not %d; ", kernel, counted[kernel], told[kernel]
            }
            if (n < 3) printf "%d kernels", n
        }' "$dir/told.txt" "$dir/moved.txt") && [ -z "$why" ]
    then ok "moves-$name"
    else bad "moves-$name" "$why"; fi
}
moves digits 3 models/digits_mlp.model fp32 16384 "" B=37
moves gpt2-whole 3 models/gpt2.model bf16 65536 "$small" B=3 T=16
moves long-rows 3 models/gpt2.model bf16 131072 \
    "-D C=64 -D V=40000 -D H=4 -D L=1 -D Tmax=3 --head-rows=3" B=1 T=3 rows=3
moves outputs 3 tests/run/outputs.model fp32 16384 "" B=5
# where threads side by side do not read side by side, a sector for each element is said
moves across 20 tests/run/across.model fp32 16384 "" B=5 T=5
exit 0
