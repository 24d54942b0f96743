#!/usr/bin/env bash
# Programs whose weights have no fp32 master: they train as far as others, go on exactly, and their
# checkpoints are in bf16, to be read by programs of either kind.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1

ok() { echo "ok masters/$1"; }
bad() { echo "not ok masters/$1: $2"; }
# says NAME TEXT COMMAND...: exit code 0, and this text
says() {
    local name=$1 text=$2; shift 2
    "$@" > said 2>&1 || { bad "$name" "exit code $?: $(tail -n 1 said)"; return; }
    if grep -qF -- "$text" said; then ok "$name"; else bad "$name" "no '$text'"; fi
}
# same NAME DIR DIR: the files of two checkpoints, byte for byte
same() {
    local name=$1 f
    for f in model.safetensors optimizer.safetensors ema.safetensors; do
        cmp -s "$2/$f" "$3/$f" || { bad "$name" "$f differs"; return; }
    done
    ok "$name"
}
last() { sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p" "$2" | tail -n 1; }
loss() { "$@" 2> /dev/null | sed -n 's/^loss //p'; }

cat "$root/LICENSE" "$root/README.md" "$root/grammar/LANGUAGE.md" > text.txt
small="-D V=200 -D C=32 -D H=2 -D L=2 -D Tmax=32"
for kind in fp32 bf16 none; do
    case $kind in none) options="--precision=bf16 --masters=none" ;; *) options=--precision=$kind ;; esac
    # shellcheck disable=SC2086
    "$GRADCC" $small $options -D ema=0.9 "$root/models/chargpt.model" -o $kind >&2 ||
        { bad compiles $kind; exit 1; }
done
common="--data text.txt --dims T=16 --batch 12 --steps 120 --save 50 --eval 60 --seed 5"

for kind in fp32 bf16 none; do
    ./$kind $common --out $kind.run > $kind.log 2>&1 || bad trains "$kind: $(tail -n 1 $kind.log)"
done
for kind in bf16 none; do
    a=$(last val/loss fp32.run/metrics.jsonl) b=$(last val/loss $kind.run/metrics.jsonl)
    if awk "BEGIN { a = ${a:-1}; b = ${b:-9}; exit !(a < 3.75 && (a - b)^2 < 1e-4 * a * a) }"; then ok trains-$kind
    else bad trains-$kind "validation loss $b, $a in fp32"; fi
done
says header "masters  none: 30976 parameters in bf16 alone, rounded at random; 1920 in fp32" \
    ./none $common --out none --dry-run
says memory "memory   parameters 68.0 KiB, gradient 128 KiB, optimizer 257 KiB, average 196 KiB, arena" \
    ./none $common --out none --dry-run
grep -q '"masters": "none"' none.run/config.json && ok config || bad config "no masters"
if python3 - none.run/step-00000120/model.safetensors <<'PY'
import json, struct, sys
data = open(sys.argv[1], 'rb').read()
size, = struct.unpack('<Q', data[:8])
header = json.loads(data[8:8 + size])
header.pop('__metadata__')
for name, t in header.items():
    half = name.endswith('weight') and '.ln' not in name and name[:2] != 'ln' and name != 'wpe.weight'
    assert t['dtype'] == ('BF16' if half else 'F32'), name
    n = 1
    for k in t['shape']:
        n *= k
    assert t['data_offsets'][1] - t['data_offsets'][0] == n * (2 if half else 4), name
PY
then ok checkpoint; else bad checkpoint "types or sizes"; fi

./none --data text.txt --resume none.run/step-00000050 --out again > again.log 2>&1 ||
    bad resume "$(tail -n 1 again.log)"
same resume none.run/step-00000120 again/step-00000120
for threads in 1 2; do
    RT_MATMUL=plain ./none $common --steps 20 --threads $threads --out threads.$threads > threads.log 2>&1
done
same threads threads.1/step-00000020 threads.2/step-00000020
./none $common --accumulate 3 --out parts --seed 6 > parts.log 2>&1
if cmp -s parts/step-00000120/model.safetensors none.run/step-00000120/model.safetensors; then
    bad seed "another seed gives the same bits"; else ok seed; fi

# ---- the other programs -------------------------------------------------------------------------

at="--checkpoint none.run/step-00000120"
own=$(loss ./none eval $at) other=$(loss ./bf16 eval $at)
if [ -n "$own" ] && [ "$own" = "$other" ]; then ok eval; else bad eval "$own, with masters $other"; fi
if [ "$own" = "$(last val/loss none.run/metrics.jsonl | awk '{ printf "%.6f", $1 }')" ]; then ok eval-in-training
else bad eval-in-training "$own"; fi
own=$(loss ./none eval $at --ema) other=$(last val/ema_loss none.run/metrics.jsonl)
if awk "BEGIN { exit !((${own:-0} - ${other:-9})^2 < 1e-11) }"; then ok eval-average
else bad eval-average "$own, in training $other"; fi
at="--checkpoint bf16.run/step-00000120"
own=$(loss ./none eval $at) other=$(loss ./bf16 eval $at)
if awk "BEGIN { exit !((${own:-0} - ${other:-9})^2 < 1e-6) }"; then ok eval-of-masters
else bad eval-of-masters "$own, with masters $other"; fi
says to-bf16 "note     the checkpoint has 9 tensors in fp32, which become bf16: results agree to rounding" \
    ./none --data text.txt --resume bf16.run/step-00000050 --out none
says to-fp32 "note     the checkpoint has 9 tensors in bf16, which become fp32: results agree to rounding" \
    ./bf16 --data text.txt --resume none.run/step-00000050 --out none
says generate "The" ./none generate --out none.run --prompt The --tokens 8

# A step that is not finite: the weights that it read are looked at in bf16.
./none $common --warmup 0 --lr 1e20 --out boom > boom.log 2>&1
if [ $? = 1 ] && ./none --out boom --replay boom/crash > replay.log 2>&1 &&
    grep -qE 'reads h.0.attn.c_attn.weight: from -[0-9.]+e\+(19|20) to [0-9.]+e\+(19|20)$' replay.log; then ok replay
else bad replay "$(tail -n 1 boom.log) $(grep -m1 reads replay.log)"; fi

# Every optimizer that works element by element, one of the model's own too, goes through the same
# rounding; a group that stays does.
awk 'BEGIN { srand(1); for (i = 0; i < 300; i++) { a = rand(); b = rand(); c = rand(); d = rand()
    printf "%.4f,%.4f,%.4f,%.4f,%.4f\n", a, b, c, d, a - b + c * d } }' > signs.csv
for rule in turn sgd adam adamw lion rmsprop adagrad; do
    rate=3e-3; [ $rule != turn ] || rate=1e-3        # signs turn about the minimum
    sed "s/= turn(lr: 1e-3)/= $rule(lr: $rate)/" "$here/signs.model" > one.model
    "$GRADCC" one.model -o one >&2 && "$GRADCC" --masters=fp32 one.model -o two >&2 || { bad $rule compiles; continue; }
    ./one --out $rule.run --save 100 > one.log 2>&1 && ./two --out none > two.log 2>&1 &&
        ./one --resume $rule.run/step-00000100 --out $rule.again > again.log 2>&1 ||
        { bad $rule "$(tail -n 1 one.log two.log again.log)"; continue; }
    a=$(sed -n 's/^done .*training loss //p' one.log) b=$(sed -n 's/^done .*training loss //p' two.log)
    if ! awk "BEGIN { a = ${a:-1}; b = ${b:-9}; exit !((a - b)^2 < 0.01 * b * b) }"; then bad $rule "loss $a, with masters $b"
    elif ! cmp -s $rule.run/step-00000200/model.safetensors $rule.again/step-00000200/model.safetensors; then
        bad $rule "a resumed run ends elsewhere"
    else ok $rule; fi
done
