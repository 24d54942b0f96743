#!/usr/bin/env bash
# What the train block says about updates besides the optimizer, through whole programs: schedules,
# groups of parameters, the average of the weights.
# Rates are read from metrics.jsonl and compared with formulas in awk.
set -u
here=$(cd "$(dirname "$0")" && pwd)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1

ok() { echo "ok schedule/$1"; }
bad() { echo "not ok schedule/$1: $2"; }
# build PROGRAM OPTION...: compiles small.model
build() {
    local program=$1; shift
    "$GRADCC" "$@" "$here/small.model" -o "$program" >&2 && return
    bad "$program" "does not compile"; return 1
}
# run COMMAND...: a program that must end well
run() { "$@" > run.log 2>&1 || bad "$1" "$(tail -n 1 run.log)"; }
# rates NAME DIR FORMULA: the rate of each update of a run is FORMULA of i, the updates before it
rates() {
    local far
    far=$(sed -n 's/.*"step": \([0-9]*\), "train.*"lr": \([^,]*\),.*/\1 \2/p' "$2/metrics.jsonl" |
        awk "function min(a, b) { return a < b ? a : b }
             function max(a, b) { return a > b ? a : b }
             { i = \$1 - 1; want = $3; n++
               if ((\$2 - want)^2 > 1e-16 * want^2) { print \"step \" \$1 \": \" \$2 \", wanted \" want; exit } }
             END { if (n == 0) print \"no rates\" }")
    if [ -z "$far" ]; then ok "$1"; else bad "$1" "$far"; fi
}
# refused NAME TEXT COMMAND...: ends with exit code 2 and says TEXT
refused() {
    local name=$1 text=$2 code; shift 2
    "$@" > refused.log 2>&1; code=$?
    if [ $code -eq 2 ] && grep -qF -- "$text" refused.log; then ok "$name"
    else bad "$name" "exit code $code: $(head -n 1 refused.log)"; fi
}
# warned NAME TEXT COMMAND...: goes on, and says TEXT
warned() {
    local name=$1 text=$2; shift 2
    "$@" > warned.log 2>&1
    if [ $? -eq 0 ] && grep -qF -- "$text" warned.log; then ok "$name"
    else bad "$name" "$(head -n 1 warned.log)"; fi
}
# same NAME DIR DIR: byte for byte the same files of tensors
same() {
    local f
    for f in "$2"/*.safetensors; do
        cmp -s "$f" "$3/${f##*/}" || { bad "$1" "${f##*/} differs"; return; }
    done
    ok "$1"
}

awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    printf "%.4f,%.4f,%.4f,%.4f,%.4f\n", a, b, rand() - 0.5, rand() - 0.5, (a > 0) + (b > a) } }' > small.csv

# ---- schedules -----------------------------------------------------------------------------------

if build wsd -D 'optimizer=adamw(lr: wsd(1e-2, warmup: 4, decay: 10, end: 1e-3))'; then
    run ./wsd --out wsd.1
    rates wsd wsd.1 'i < 4 ? 0.01 * (i + 1) / 5 : i < 30 ? 0.01 : 0.001 + 0.009 * (40 - i) / 10'
    run ./wsd --out wsd.2 --lr 0.02 --lr-end 0 --decay-length 20 --warmup 0
    rates wsd-flags wsd.2 'i < 20 ? 0.02 : 0.02 * (40 - i) / 20'
    run ./wsd --out wsd.3 --decay-steps 25
    rates wsd-decay-steps wsd.3 'i < 4 ? 0.01 * (i + 1) / 5 : i < 15 ? 0.01 : i > 25 ? 0.001 : 0.001 + 0.009 * (25 - i) / 10'
    run ./wsd --out wsd.4 --resume wsd.1/step-00000020
    same wsd-resume wsd.1/step-00000040 wsd.4/step-00000040
    rates wsd-resume-rates wsd.4 'i < 30 ? 0.01 : 0.001 + 0.009 * (40 - i) / 10'
    warned wsd-too-long 'a decay of 10 updates does not fit into 6' ./wsd --out none --steps 10
    warned wsd-warm-up 'the warm-up takes 4 updates and the run has 3' ./wsd --out none --steps 3
    refused wsd-other '--drop-at: the learning rate of small is wsd, which has none' ./wsd --drop-at 3
fi
if build drops -D 'optimizer=sgd(lr: step(0.1, at: (5, 20), factor: 0.5))'; then
    run ./drops --out drops.1
    rates step-at drops.1 'i < 5 ? 0.1 : i < 20 ? 0.05 : 0.025'
    run ./drops --out drops.2 --drop-at 3,10,30 --drop-factor 0.1 --warmup 2
    rates step-flags drops.2 'i < 2 ? 0.1 * (i + 1) / 3 : i < 3 ? 0.1 : i < 10 ? 0.01 : i < 30 ? 0.001 : 0.0001'
    run ./drops --out drops.3 --drop-at none --drop-every 15
    rates step-every drops.3 '0.1 * 0.5^int(i / 15)'
    run ./drops --out drops.4 --resume drops.2/step-00000020
    rates step-resume drops.4 'i < 30 ? 0.001 : 0.0001'
    same step-resume-bytes drops.2/step-00000040 drops.4/step-00000040
    refused step-falls '--drop-at 5,3: wants numbers of updates that grow' ./drops --drop-at 5,3
    refused step-words '--drop-at soon: wants numbers of updates' ./drops --drop-at soon
    refused step-none '--drop-at none: --drop-every N says when the rate falls' ./drops --drop-at none
fi
if build cycle -D 'optimizer=adamw(lr: one_cycle(0.1, pct_start: 0.25, three_phase: true))'; then
    run ./cycle --out cycle.1 --div-factor 10 --final-div-factor 5
    half='a + (b - a) * (1 - cos(3.141592653589793 * r)) / 2'
    rates one-cycle cycle.1 "(i < 10 ? (a = 0.01) + 0 * (b = 0.1) * (r = i / 9) : i < 19 ? (a = 0.1) + 0 * (b = 0.01) * (r = (i - 9) / 9) : (a = 0.01) + 0 * (b = 0.002) * (r = (i - 18) / 21)) * 0 + $half"
    refused one-cycle-phases '--pct-start 0.7: with three phases at most 0.5' ./cycle --pct-start 0.7
fi
if build formula -D 'optimizer=adamw(lr: 1e-2 * min(step / 10, 1) * 0.5 ^ (step / steps))'; then
    run ./formula --out formula.1
    rates formula formula.1 '0.01 * min(i / 10, 1) * 0.5^(i / 40)'
    run ./formula --out formula.2 --resume formula.1/step-00000030
    same formula-resume formula.1/step-00000040 formula.2/step-00000040
    refused formula-lr '--lr: the learning rate of small is 0.01 * min(step / 10, 1) * 0.5^(step / steps), which has none' ./formula --lr 1
fi
if build ends -D 'optimizer=adamw(lr: 1e-2 / (50 - step))'; then
    refused formula-infinite 'the learning rate 0.01 / (50 - step) is inf at step = 50, steps = 60' ./ends --steps 60
    grep -qF 'a rate must be 0 or more in the whole run' refused.log || bad formula-hint "no hint"
fi
if build root -D 'optimizer=adamw(lr: inverse_sqrt(1e-2, warmup: 4))'; then
    run ./root --out root.1
    rates inverse-sqrt root.1 'i < 4 ? 0.01 * (i + 1) / 5 : 0.01 * sqrt(5 / (i + 1))'
fi

# ---- groups: the same bytes as with those numbers for all ----------------------------------------

# build_stack PROGRAM OPTION...: compiles stack.model
build_stack() {
    local program=$1; shift
    "$GRADCC" "$@" "$here/stack.model" -o "$program" >&2 && return
    bad "$program" "does not compile"; return 1
}
# alike NAME PREFIX DIR DIR: the same tensors of this name in two checkpoints, and some
alike() {
    local a b
    a=$(python3 "$here/tensors.py" "$3/model.safetensors" "$2")
    b=$(python3 "$here/tensors.py" "$4/model.safetensors" "$2")
    if [ -n "$a" ] && [ "$a" = "$b" ]; then ok "$1"; else bad "$1" "$2 differs"; fi
}
groups='groups=[group("inp.*", lr: 0), group("h.0.*", lr: 0.5), group("h.1.?.weight", "h.2.a.*", weight_decay: 0)]'
if command -v python3 > /dev/null && build_stack groups -D "$groups" && build_stack plain &&
        build_stack undecayed -D 'optimizer=sgd(lr: 0.1)'; then
    run ./groups --out groups.1
    run ./plain --out plain.1
    run ./plain --out plain.half --lr 0.05
    run ./plain --out plain.none --lr 0
    run ./undecayed --out undecayed.1
    for d in groups.1 plain.1 plain.half plain.none undecayed.1; do mv $d/step-00000001 $d.end; done
    alike groups-none out. groups.1.end plain.1.end
    alike groups-none-b h.1.b.bias groups.1.end plain.1.end
    alike groups-none-2 h.2.b groups.1.end plain.1.end
    alike groups-stay inp. groups.1.end plain.none.end
    alike groups-half h.0. groups.1.end plain.half.end
    alike groups-decay h.1.a.weight groups.1.end undecayed.1.end
    alike groups-decay-2 h.2.a. groups.1.end undecayed.1.end
    ./groups --dry-run > groups.log 2>&1
    if grep -q '^  h\.\*\.a\.weight .* mixed  mixed  2-3 ' groups.log &&
        grep -q '^  inp\.bias .* no     stays  1 ' groups.log &&
        grep -q '^  group 2: h.0.\*: 144 elements, 0.5 times the rate  ' groups.log &&
        grep -q '(200 decayed)' groups.log; then ok groups-table
    else bad groups-table "$(head -n 1 groups.log)"; fi
fi

# ---- the average of the weights ------------------------------------------------------------------

# average NAME START DIR EMA TEXT: average.py finds nothing wrong and prints TEXT
average() {
    local said
    command -v python3 > /dev/null || { echo "skip schedule/$1: no python3"; return; }
    said=$(python3 "$here/average.py" "$4" "$2" "$3" 2>&1)
    if [ "$said" = "$5" ]; then ok "$1"; else bad "$1" "$(echo "$said" | tail -n 1)"; fi
}
# value KEY FILE: the last value of a key of a metrics file
value() { sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p" "$2" | tail -n 1; }

if build average -D ema=0.8; then
    run ./average --out average.0 --lr 0 --steps 1 --ema 0
    run ./average --out average.1 --save 1 --keep 100 --eval 20
    average ema average.0/step-00000001 average.1 0.8 "40 updates, 0 skipped"
    run ./average --out average.2 --resume average.1/step-00000020
    same ema-resume average.1/step-00000040 average.2/step-00000040
    [ -e average.2/step-00000040/ema.safetensors ] || bad ema-resume "no average"
    if [ -e average.0/step-00000001/ema.safetensors ]; then bad ema-off "there is one"; else ok ema-off; fi
    a=$(./average eval --checkpoint average.1 | sed -n 's/^loss //p')
    b=$(./average eval --checkpoint average.1 --ema | sed -n 's/^loss //p')
    if awk "BEGIN { a = ${a:-9} - $(value val/loss average.1/metrics.jsonl); b = ${b:-9} - $(value val/ema_loss average.1/metrics.jsonl)
            exit !(a * a < 1e-11 && b * b < 1e-11 && ${a:-9} != ${b:-9}) }"; then ok ema-eval
    else bad ema-eval "$a and $b"; fi
    if ./average eval --checkpoint average.1 --ema | grep -q 'step 40, the average of the weights'; then ok ema-eval-says
    else bad ema-eval-says "it does not"; fi
    if ./average --dry-run | grep -q '^memory .* average 196 bytes'; then ok ema-memory; else bad ema-memory "not counted"; fi
    ./average eval --checkpoint average.0 --ema > none.log 2>&1
    if [ $? = 1 ] && grep -q 'has no average of the weights' none.log &&
        grep -q 'training keeps one with --ema 0.999' none.log; then ok ema-none
    else bad ema-none "$(head -n 1 none.log)"; fi
    refused ema-range '--ema 1.5: wants a number from 0 to' ./average --ema 1.5
    warned ema-begins 'the checkpoint has no average of the weights: it begins with them' \
        ./average --resume average.0/step-00000001 --out average.3 --ema 0.5 --steps 3
    warned ema-told 'changed  ema 0.0 -> 0.5 (given on the command line)' \
        ./average --resume average.0/step-00000001 --out average.4 --ema 0.5 --steps 3
    # a damaged average is a damaged checkpoint: the run goes on from the one before
    cp -r average.1 average.5; f=average.5/step-00000040/ema.safetensors
    printf 'x' | dd of=$f bs=1 seek=$(($(wc -c < $f) - 2)) conv=notrunc 2> dd.log
    warned ema-damaged 'ema.safetensors: damaged: its hash is' ./average --resume average.5 --out average.6
    if command -v python3 > /dev/null; then    # the file stands for a model of its own
        a=$(python3 "$here/tensors.py" average.1/step-00000040/model.safetensors | sed 's/ .*//')
        b=$(python3 "$here/tensors.py" average.1/step-00000040/ema.safetensors | sed 's/ .*//')
        if [ -n "$a" ] && [ "$a" = "$b" ]; then ok ema-names; else bad ema-names "$b"; fi
    fi
fi
if build average64 --precision=fp64 -D ema=0.9; then
    run ./average64 --out wide.0 --lr 0 --steps 1 --ema 0
    run ./average64 --out wide.1 --save 1 --keep 100
    average ema-fp64 wide.0/step-00000001 wide.1 0.9 "40 updates, 0 skipped"
fi
if build average16 --precision=fp16 -D ema=0.9; then
    run ./average16 --out half.0 --lr 0 --steps 1 --ema 0
    run ./average16 --out half.1 --save 1 --keep 100 --loss-scale 1e15
    n=$(value skipped half.1/metrics.jsonl)
    average ema-skipped half.0/step-00000001 half.1 0.9 "40 updates, $n skipped"
    [ "${n:-0}" -gt 5 ] || bad ema-skipped "only ${n:-none} skipped"
fi
for i in 1 2 3 4 5 6 7 8 9 10; do echo "a quick brown fox jumps over the lazy dog and is gone"; done > letters.txt
if "$GRADCC" "$here/letters.model" -o letters >&2; then
    run ./letters
    a=$(./letters generate --tokens 40 --temperature 0 --prompt the 2>&1) && b=$(./letters generate --tokens 40 --temperature 0 --prompt the --ema 2>&1) &&
        [ ${#a} -gt 20 ] && [ ${#b} -gt 20 ]
    if [ $? = 0 ]; then ok ema-generate; else bad ema-generate "$b"; fi
fi
