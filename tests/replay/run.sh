#!/usr/bin/env bash
# Steps that are not finite: what a run keeps of them, and that --replay gives the same bits again
# and names the planted fault: its value, layer, line, sample.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1

ok() { echo "ok replay/$1"; }
bad() { echo "not ok replay/$1: $2"; }
# build PROGRAM SED OPTION...: compiles the model with a fault planted by sed
build() {
    local program=$1; sed "$2" "$here/faults.model" > "$program.model"; shift 2
    "$GRADCC" -w "$@" "$program.model" -o "$program" >&2 && return
    bad "$program" "does not compile"; return 1
}
# says NAME CODE FILE TEXT...: the exit code was 0 or 1, and a file has these lines
says() {
    local name=$1 code=$2 rc=$3 file=$4 text; shift 4
    [ "$rc" = "$code" ] || { bad "$name" "exit code $rc, wanted $code: $(tail -n 1 "$file")"; return; }
    for text; do
        grep -qF -- "$text" "$file" || { bad "$name" "no '$text' in: $(cat "$file")"; return; }
    done
    ok "$name"
}
# fails NAME PROGRAM TEXT...: a run of it stops and names the value; --replay says the same and
# gets the same gradient
fails() {
    local name=$1 program=$2 rc; shift 2
    ./$program $options --out "$name.run" > "$name.log" 2>&1; rc=$?
    says "$name" 1 $rc "$name.log" "saved in $name.run/crash" "--replay $name.run/crash runs that step again" "$@"
    ./$program --replay auto --out "$name.run" > "$name.again" 2>&1; rc=$?
    says "$name-replay" 0 $rc "$name.again" "the gradient is that of the run, bit for bit" "$@"
}

awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    printf "%.4f,%.4f,%.4f,%.4f,%.4f\n", a, b, rand() - 0.5, rand() - 0.5, i == 77 ? 0 : 1.5 + (a > 0) + (b > a) } }' > faults.csv

# ---- in the forward pass, the backward pass, a layer, the data ------------------------------------

options=--accumulate=2
if build forward 's/wanted = y/wanted = log(y)/'; then
    fails forward forward 'the first value that is not finite: loss_a[B], forward: forward.model:18, 16, 17, step 5 of the emitted file, micro-step 2 of 2' \
        'inf in 1 of 8 elements, the first at 0, in sample 152 of the run, number 77 of the training data' \
        'reads input y: from 0 to ' 'reads out.bias: from '
    grep -q '"step": 10,' forward.run/crash/capsule.json && grep -q '"first_sample": 144,' forward.run/crash/capsule.json &&
        grep -q '"loss_nonfinite": "inf"' forward.run/crash/capsule.json && grep -q '^  77,$' forward.run/crash/capsule.json &&
        ok capsule || bad capsule "$(cat forward.run/crash/capsule.json)"
    ./forward --replay forward.run --trace > traced.log 2>&1
    says trace 0 $? traced.log 'trace    5  loss_a[B] ' 'nan 0  inf 1' 'trace    2  h_lin[B,C] ' '  h.2'
    [ "$(grep -c '^trace    2 ' traced.log)" = 6 ] || bad trace "$(grep -c '^trace    2 ' traced.log) lines of step 2"
    # what makes it another step is refused or told
    ./forward --replay forward.run --batch 8 > other.log 2>&1
    says other-batch 2 $? other.log '--batch: a step is replayed with the settings it had'
    ./forward --replay nowhere > other.log 2>&1
    says nowhere 2 $? other.log '--replay nowhere: nowhere holds no capsule.json'
    sed 's/,0.0000$/,2.5/' faults.csv > good.csv
    ./forward --replay forward.run --data good.csv --threads 3 > other.log 2>&1
    says finite 1 $? other.log 'error: step 10 is finite this time' 'the data are not those of the step' \
        'the step ran on 2 threads, this is 3' 'all values that the step wrote were finite' \
        'the gradient is not that of the run, bit for bit'
    cp -r forward.run cut.run; sed -i 's/"version": 1/"version": 2/' cut.run/crash/capsule.json
    ./forward --replay cut.run > other.log 2>&1
    says version 1 $? other.log 'capsule.json: is no capsule of this version: a key is missing or wrong'
    rm -r cut.run/crash/step-*; cp forward.run/crash/capsule.json cut.run/crash
    ./forward --replay cut.run > other.log 2>&1
    says no-state 1 $? other.log 'cut.run/crash/step-00000009: the state before the step is not there'
    ./forward --resume forward.run/crash --out on.run > other.log 2>&1
    says resume 1 $? other.log 'step 10: the loss is inf'
fi
if build backward 's/loss = /r = sqrt((estimate * y)^2)\n    loss = mean(r) + /'; then
    fails backward backward ', backward: backward.model:' 'nan in 1 of 8 elements' 'number 77 of the training data'
    grep -q 'the first value that is not finite: d_' backward.again || bad backward "$(grep first backward.again)"
    ./backward --replay forward.run > other.log 2>&1
    grep -q 'backward.model has changed since that step' other.log && ok other-program || bad other-program "$(cat other.log)"
fi
if build layer 's/    steps  /    groups = [group("h.2.*", lr: 1e38)]\n&/'; then
    options="--accumulate=2 --lr 1e3"
    fails layer layer 'parameter h.2.lin.weight (layer.model:6) is not finite before the step: ' \
        'the first value that is not finite: h_lin[B,C] of h.2, forward: layer.model:7, step 2' \
        'h_lin = z @ h_lin_weight' 'reads z[B,C]: from ' 'reads h.2.lin.bias: '
    grep -q 'reads z.*\(nan\|inf\)' layer.again && bad layer-reads "$(grep reads layer.again)"
fi
awk -F, -v OFS=, 'NR == 88 { $2 = "1e38"; $3 = "3e38" } { print }' faults.csv > huge.csv
options="--data huge.csv"
if build plain ''; then
    fails data plain 'the first value that is not finite: sum_loss, forward: plain.model:18' 'reads out_y[B,1]: from'
fi

# ---- 16 bits --------------------------------------------------------------------------------------

if build half '' --precision=fp16; then
    options="--loss-scale 1e30 --nonfinite stop"
    fails scale half ', backward: half.model:18' 'at loss scale 1 the step is finite: scale 1e+30 was too large'
    options="--data huge.csv --nonfinite stop"
    fails scale-no-help half 'at loss scale 1 the step is not finite either' \
        'x_2[B,D], forward: half.model:10' 'number 87 of the training data' 'reads input x: from -0.4954 to 3e+38'
fi
if build brain 's/    steps  /    groups = [group("h.1.*", lr: 1e38)]\n&/' --precision=bf16; then
    options="--lr 1e3"
    fails bf16 brain 'h_lin[B,C] of h.1, forward: brain.model:7' 'parameter h.1.lin.weight'
fi

# ---- skipped --------------------------------------------------------------------------------------

if [ -x forward ]; then
    ./forward --nonfinite skip --out skip.run --steps 60 > skip.log 2>&1
    says skip 0 $? skip.log 'step 10 is skipped: the loss is inf' '--replay skip.run/crash runs that step again'
    ./forward --replay skip.run > skip.again 2>&1
    says skip-replay 0 $? skip.again 'replay   skip.run/crash: step ' 'number 77 of the training data' \
        'the gradient is that of the run, bit for bit'
fi
