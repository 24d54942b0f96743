#!/usr/bin/env bash
# Large heads and long windows: what is never stored, and what keeps its bits.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$BUILD/tests-large
rm -rf "$work"; mkdir -p "$work"
export OMP_NUM_THREADS=2
ok()  { echo "ok large/$1"; }
bad() { echo "not ok large/$1: $2"; }
arena() { "$GRADCC" --explain=memory "$@" | awk '$1 == "arena" { gsub(",", "", $2); print $2; exit }'; }

# ---- attention: four times the window takes four times the memory, a T x T matrix would be sixteen
for precision in fp32 bf16; do
    for recompute in auto none blocks; do
        told=(--precision=$precision --recompute=$recompute attention.model)
        short=$(arena --dims B=1,T=4096 "${told[@]}") long=$(arena --dims B=1,T=16384 "${told[@]}")
        if [ "$short" -gt 0 ] && [ "$long" -le $((4 * short)) ]; then ok "attention-memory $precision $recompute"
        else bad "attention-memory $precision $recompute" "$short bytes at T = 4096, $long at T = 16384"; fi
    done
    # heads are read, and their gradients written, in the packed rows; log-sum-exp is what is saved
    "$GRADCC" --emit=c --precision=$precision $root/models/gpt2.model -o "$work/gpt2-$precision.c"
    packed='h_attn_c_attn, h_attn_c_attn + C, h_attn_c_attn + 2\*C'
    calls=$(grep -c "k[0-9]*_h_attn_y(.*$packed" "$work/gpt2-$precision.c")
    copies=$(grep -cE '^ \*   (d_)?(h_attn_)?[qkv](_[a-z])?  ' "$work/gpt2-$precision.c")
    saved=$(grep -cE '^ \*   h_attn_y_logsumexp +\[L,B,H,T\] ' "$work/gpt2-$precision.c")
    if tr -s ' \n' ' ' < "$work/gpt2-$precision.c" |
        grep -q "d_h_attn_c_attn, d_h_attn_c_attn + C, d_h_attn_c_attn + 2\*C, $packed" &&
        [ "$calls" = 3 ] && [ "$copies" = 0 ] && [ "$saved" = 1 ]; then ok "heads-in-place $precision"
    else bad "heads-in-place $precision" "$calls calls on packed rows, $copies copies, $saved stacks"; fi
done

# ---- logits in parts ----------------------------------------------------------------------------
whole=$(arena --head-rows=0 $root/models/gpt2.model) parts=$(arena --head-rows=512 $root/models/gpt2.model)
rows=$((4 * 1024 - 512))
if [ $((whole - parts)) -ge $((rows * 50257 * 4 * 85 / 100)) ]; then ok head-memory
else bad head-memory "$whole bytes, in parts $parts"; fi

# gradients HEAD_ROWS: a line of bits for each parameter
small="-D V=40 -D C=32 -D H=2 -D L=2 -D Tmax=32 -D rate=0.1"
gradients() {
    # shellcheck disable=SC2086,SC2046
    "$GRADCC" --emit=c --precision=fp64 $small --head-rows="$1" $root/models/gpt2.model -o "$work/head-$1.c" &&
        $CC -std=c11 -O1 -march=native -fopenmp -ffp-contract=off -I$root/runtime -I../run -w -DTOLERANCE=0 \
            -DEMITTED="\"$work/head-$1.c\"" -DMODEL=gpt2 -DREAL=double -o "$work/head-$1" ../recompute/steps.c \
            "$BUILD/libgradcc_rt.a" $(cat "$BUILD/rt.libs") &&
        "$work/head-$1" B=4 T=16 | grep '^[a-z].*\.' > "$work/head-$1.out"
}
# of rows: the same bits; the tied weight, which is added up part by part, has others
gradients 0 && gradients 24
if [ "$(wc -l < "$work/head-0.out")" = 16 ] &&
    cmp -s <(grep -v '^wte' "$work/head-0.out") <(grep -v '^wte' "$work/head-24.out"); then ok head-bits
else bad head-bits "$(diff "$work/head-0.out" "$work/head-24.out" | tail -n 1)"; fi
