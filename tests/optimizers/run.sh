#!/usr/bin/env bash
# Optimizers that work on whole tensors, in whole programs: they train, go on exactly after a stop,
# take the memory that gradcc says, and say in the emitted file what they compute.
set -u
here=$(cd "$(dirname "$0")" && pwd)
: "${GRADCC:=$here/../../build/gradcc}"
g=$(realpath "$GRADCC")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export CI=1
ok()  { echo "ok optimizers/$1"; }
bad() { echo "not ok optimizers/$1: $2"; }
last() { sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p" "$2" | tail -n 1; }

awk 'BEGIN { srand(4); for (i = 0; i < 400; i++) { a = rand() - 0.5; b = rand() - 0.5; k = int(5 * rand())
    printf "%.4f,%.4f,%.4f,%d,%d\n", a, b, rand() - 0.5, k, (a > 0) + (b + k / 5 > 0.6) } }' > net.csv

# trains NAME OPTIMIZER PRECISION LOSS: below it after 60 updates; 60 are 25 and 35; as much memory
# as gradcc says
trains() {
    local name=$1-$3 optimizer="optimizer=$2" precision=--precision=$3 loss said took
    if ! "$g" $precision -D "$optimizer" -D ema=0.9 "$here/net.model" -o "$name" 2> log; then
        bad "$name" "$(head -n 1 log)"; return
    fi
    ./"$name" --out "$name.60" --save 25 > log 2>&1 || { bad "$name" "$(tail -n 1 log)"; return; }
    grep -q 'bytes allocated, as planned' log || bad "$name-planned" "$(grep '^memory' log)"
    grep -q "^update   ${1%%-*}, " log || bad "$name-told" "$(grep '^update' log)"
    loss=$(last train/loss "$name.60/metrics.jsonl")
    if awk "BEGIN { exit !(${loss:-9} < $4) }"; then ok "$name"; else bad "$name" "loss ${loss:-none}"; fi
    ./"$name" --out "$name.on" --resume "$name.60/step-00000025" > log 2>&1
    for f in model optimizer ema; do
        cmp -s "$name.60/step-00000060/$f.safetensors" "$name.on/step-00000060/$f.safetensors" && continue
        bad "$name-resume" "$f differs: $(tail -n 1 log)"; break
    done && [ -e "$name.on/step-00000060" ] && ok "$name-resume"
    said=$("$g" --explain=memory $precision -D "$optimizer" "$here/net.model" |
        sed -n 's/^  optimizer, [^ ]* *\([0-9,]*\) .*/\1/p' | tr -d , | awk '{ n += $1 } END { print n }')
    took=$(python3 "$here/bytes.py" "$name.60/step-00000060/optimizer.safetensors")
    if [ -n "$said" ] && [ "$said" = "$took" ]; then ok "$name-memory"; else bad "$name-memory" "$took bytes, said are $said"; fi
}
# Products of the update that need a larger arena than the backward pass: planned, and all the same
# trained; the emitted file says what they cost.
muon='optimizer=muon(lr: 0.05)' large="-D F=64 -D batch=2 -D clip=0"
if "$g" $large -D "$muon" "$here/net.model" -o large 2> log && ./large --out none > said; then
    "$g" --explain=memory $large -D "$muon" "$here/net.model" > plan
    grep -q "more for the update's products" plan && ok larger-arena || bad larger-arena "$(grep arena plan | head -n 1)"
    took=$(sed -n 's/^memory .*, arena \([^,]*\),.*/\1/p' said)
    tr -s ' ' < plan | grep -q "^ arena .* $took " && grep -q 'bytes allocated, as planned' said &&
        ok larger-arena-planned || bad larger-arena-planned "$took; $(grep arena plan | head -n 1); $(grep '^memory' said)"
else bad larger-arena "$(tail -n 1 log said)"; fi
"$g" --emit=c $large -D "$muon" "$here/net.model" > large.c
grep -q 'products take 2.37e+07 FLOP per update and work in the arena' large.c && ok says-flops ||
    bad says-flops "$(grep FLOP large.c)"

# Clipping by value and by norm, in that order, and as a setting of the program.
clip='-D clip_value=0.01 -D clip=0.02'
"$g" --emit=c $clip "$here/net.model" | sed -n 's/^ *\(rt_[a-z_]*\)(run, s[,)].*;.*/\1/p' | tr '\n' ' ' > order
grep -q 'rt_finite_and_norm rt_clip_value rt_clip rt_update' order && ok clip-order || bad clip-order "$(cat order)"
"$g" --emit=c "$here/net.model" | grep -q 'clip_value' && bad clip-off "it is in the file" || ok clip-off
if "$g" $clip "$here/net.model" -o clip 2> log && ./clip --steps 3 --out clip.1 > said &&
        ./clip --steps 3 --clip-value 1e-9 --out clip.2 > said.2 && ./clip --steps 3 --clip-value 1e9 --out clip.3 > said.3; then
    grep -q '^update .*, clip 0.02, elements at most 0.01$' said && ok clip-told || bad clip-told "$(grep ^update said)"
    cmp -s clip.1/step-00000003/model.safetensors clip.3/step-00000003/model.safetensors && bad clip-value "it changes nothing" || ok clip-value
    [ "$(sed -n '2s/.*grad_norm": \([^,]*\),.*/\1/p' clip.2/metrics.jsonl)" = "$(sed -n '2s/.*grad_norm": \([^,]*\),.*/\1/p' clip.3/metrics.jsonl)" ] &&
        ok clip-norm-before || bad clip-norm-before "grad_norm is that behind clipping"
    ./clip --steps 3 --clip-value -1 > /dev/null 2> log
    [ $? = 2 ] && grep -q 'clip-value' log && ok clip-negative || bad clip-negative "$(cat log)"
else bad clip "$(tail -n 1 log)"; fi

# A state that becomes another one's old value, which is stored before it.
{ printf 'optimizer late(lr, weight_decay = 0) {\n    state now, before\n    before = now\n    now = g\n    p = p - lr * (before + decay * p)\n}\n'
  cat "$here/net.model"; } > late.model
"$g" --emit=c -D 'optimizer=late(lr: 0.1)' late.model > late.c 2> log
grep -q 'const float new_before = now\[i\];' late.c && grep -q '  before\[i\] = new_before;' late.c && ok old-value ||
    bad old-value "$(cat log; grep 'before\[i\] =' late.c)"

for p in fp32 fp64 bf16; do
    trains lamb 'lamb(lr: 0.02)' $p 0.5
    trains adafactor 'adafactor(lr: 0.05)' $p 0.5
    trains muon 'muon(lr: 0.05, adamw_factor: 0.2, except: "head.*")' $p 0.5
    trains muon-rms 'muon(lr: 0.04, adjust: rms, nesterov: false)' $p 0.5
done

# A divisor stays above 0 as an option too.
./lamb-fp32 --eps 0 --out none > said 2>&1
[ $? = 2 ] && grep -q -e '--eps 0: wants a number, 1e-30 or more' said && ok eps-zero || bad eps-zero "$(tail -n 1 said)"

# Another optimizer has no use for these states, and says so before it reads them.
for pair in "muon lamb" "lamb adafactor" "adafactor muon"; do
    set -- $pair
    ./$2-fp32 --resume $1-fp32.60 --steps 61 --out other > said 2>&1
    if [ $? = 1 ] && grep -q "trained with $1; this program has $2, which keeps another state" said; then ok "$1-is-not-$2"
    else bad "$1-is-not-$2" "$(tail -n 1 said)"; fi
done
