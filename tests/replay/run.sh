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
    fails forward forward 'the first value that is not finite: loss_a[B], forward: forward.model:18 (with 16, 17), step 5 of the emitted file, micro-step 2 of 2' \
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
# Of a value that a loop carries, what comes in is one iteration of what is kept.
if build carried 's/z = inp(x)/z = inp(x) \/ reshape(y, [B, 1])/'; then
    fails carried carried 'z[B,C], forward: carried.model:14' 'number 77 of the training data'
fi
# What is infinite in every step, as where a mask puts -inf before a softmax, is no fault.
options=
if build usual 's/wanted = y/wanted = log(y)/; s/inp(x)/inp(exp(log(relu(x))))/' -O0; then
    fails usual usual 'the first value that is not finite: ' ', forward: usual.model:17' 'number 77 of the training data'
    ./usual --replay usual.run --trace 2>&1 | grep -q '^trace .* inf [1-9].*' || bad usual "no value is infinite before"
fi
options=--accumulate=2
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
    RT_MATMUL_BF16=unpack ./brain --lr 1e3 --out products.run > products.log 2>&1
    ./brain --replay products.run > products.again 2>&1
    says products 0 $? products.again 'the gradient is that of the run, bit for bit'
    grep -q '"products": "unpack"' products.run/crash/capsule.json || bad products "$(grep products products.run/crash/capsule.json)"
    sed -i 's/"products": "unpack"/"products": "native"/' products.run/crash/step-*/manifest.json
    RT_MATMUL_BF16=unpack ./brain --replay products.run > products.again 2>&1
    says other-products 0 $? products.again 'products are computed as unpack, in the run as native'
fi

# ---- every value, and nothing else ----------------------------------------------------------------

# A step that is looked at works in an arena full of nan, so a value that is read before it is
# written, or a look beside a value, is seen. What comes out is the same.
cat "$root/LICENSE" "$root/README.md" > text.txt
small="-D V=120 -D C=32 -D H=2 -D L=2 -D Tmax=32"
# looks NAME LINES OPTION...: a small GPT, of which so many values are looked at, all finite
looks() {
    local name=looks-$1 lines=$2 run="--data text.txt --dims T=16 --batch 12 --accumulate 2 --steps 2 --eval 0 --log 1"
    shift 2
    "$GRADCC" -w $small "$@" "$root/models/chargpt.model" -o gpt >&2 || { bad "$name" "does not compile"; return; }
    ./gpt $run --out none --trace > gpt.log 2>&1; ./gpt $run --out none > plain.log 2>&1
    if grep -q '^trace' gpt.log && ! grep '^trace' gpt.log | grep -qv ' nan 0  inf 0' && [ "$(grep -c '^trace' gpt.log)" -ge "$lines" ] &&
        cmp -s <(sed -n 's/^\(step.*norm [^ ]*\).*/\1/p' gpt.log) <(sed -n 's/^\(step.*norm [^ ]*\).*/\1/p' plain.log); then ok "$name"
    else bad "$name" "$(grep -c '^trace' gpt.log) values, $(grep '^trace' gpt.log | grep -v ' nan 0  inf 0' | head -n 1)"; fi
}
looks head-in-parts 360 --precision=bf16 --head-rows=50
looks recompute 400 --recompute=blocks --precision=fp64
looks no-masters 340 -D masters=none --precision=bf16

# ---- skipped --------------------------------------------------------------------------------------

if [ -x forward ]; then
    ./forward --nonfinite skip --out skip.run --steps 60 > skip.log 2>&1
    says skip 0 $? skip.log 'step 10 is skipped: the loss is inf' '--replay skip.run/crash runs that step again'
    ./forward --replay skip.run > skip.again 2>&1
    says skip-replay 0 $? skip.again 'replay   skip.run/crash: step ' 'number 77 of the training data' \
        'the gradient is that of the run, bit for bit'
fi

# ---- such an update reaches nothing ---------------------------------------------------------------

# tensors FILE: the bytes of a safetensors file behind its header
tensors() { tail -c +$((9 + $(od -An -t u8 -N 8 "$1"))) "$1" | cksum; }
# alike NAME DIR DIR: the same parameters, optimizer state and average of the weights
alike() {
    local f
    for f in model optimizer ema; do
        [ -s "$2/$f.safetensors" ] && [ "$(tensors "$2/$f.safetensors")" = "$(tensors "$3/$f.safetensors")" ] ||
            { bad "$1" "$f of $2 and $3 differ"; return; }
    done
    ok "$1"
}
# column KEY DIR: that value of all updates of a run
column() { sed -n "s|.*\"$1\": *\([-0-9.e+a-z]*\).*|\1|p" "$2/metrics.jsonl"; }

if build guard 's/wanted = y/wanted = log(y)/; s/adamw(lr: 1e-2)/adamw(lr: linear(1e-2, end: 0))/; s/steps     =/ema = 0.9, nonfinite = skip, &/'; then
    ./guard --save 1 --keep 100 --out guard.run > guard.log 2>&1
    says guard 0 $? guard.log 'step 10 is skipped'
    alike skipped guard.run/step-00000009 guard.run/step-00000010
    [ "$(tensors guard.run/step-00000010/model.safetensors)" != "$(tensors guard.run/step-00000011/model.safetensors)" ] ||
        bad skipped "step 11 changes nothing"
    ./guard --nonfinite stop --out stop.run > stop.log 2>&1
    says guard-stop 1 $? stop.log 'step 10: the loss is inf'
    alike stopped guard.run/step-00000009 stop.run/crash/step-00000009
    # 40 updates, of which some are skipped: the rate goes by those that were applied
    column lr guard.run | awk '{ want = 0.01 * (1 - (NR > 10 ? NR - 2 : NR - 1) / 40); far = ($1 - want)^2 > 1e-18 && NR < 22
        if (far) { print "update " NR ": " $1 ", wanted " want; exit 1 } }' > rate.log && ok skipped-rate || bad skipped-rate "$(cat rate.log)"
    ./guard --resume guard.run/step-00000010 --out from.run > from.log 2>&1
    cmp -s guard.run/step-00000040/model.safetensors from.run/step-00000040/model.safetensors && ok skipped-resume ||
        bad skipped-resume "$(tail -n 1 from.log)"
fi

# The first applied update of Adam is as long as the rate, however many were skipped before it.
if build first '' --precision=fp16; then
    ./first --loss-scale 1e12 --save 1 --keep 100 --eval 0 --steps 60 --weight-decay 0 --out first.run > first.log 2>&1
    n=$(column skipped first.run | awk '$1 < NR { print NR - 1; exit }')
    before=first.run/step-$(printf %08d "$n")/model.safetensors after=first.run/step-$(printf %08d $((n + 1)))/model.safetensors
    if [ "${n:-0}" -lt 5 ]; then bad first-update "only $n updates were skipped"
    elif ! command -v python3 > /dev/null; then echo "skip replay/first-update: no python3"
    elif python3 "$here/moved.py" 0.01 "$before" "$after" > first.said 2>&1; then ok first-update
    else bad first-update "$(tail -n 1 first.said)"; fi
fi

# Clipping sees gradients without the scale: any power of two gives the same bytes.
if build clip 's/    steps  /    clip = 0.1\n&/' --precision=fp16 && build clip32 's/    steps  /    clip = 0.1\n&/'; then
    ./clip --loss-scale 256 --out clip.1 > clip.log 2>&1 && ./clip --loss-scale 16384 --out clip.2 > clip.log 2>&1 &&
        ./clip32 --out clip.32 > clip.log 2>&1 || bad clip "$(tail -n 1 clip.log)"
    [ "$(tensors clip.1/step-00000040/model.safetensors)" = "$(tensors clip.2/step-00000040/model.safetensors)" ] &&
        [ "$(tensors clip.1/step-00000040/optimizer.safetensors)" = "$(tensors clip.2/step-00000040/optimizer.safetensors)" ] &&
        [ "$(column skipped clip.2 | tail -n 1)" = 0 ] && ok clip-any-scale || bad clip-any-scale "they differ"
    paste -d' ' <(column grad_norm clip.2) <(column grad_norm clip.32) | awk 'NR <= 20 && ($1 - $2)^2 > 4e-4 * $2^2 { print; exit 1 } $2 > 0.1 { n++ } END { exit n < 10 }' > norm.log &&
        ok clip-norm-of-fp32 || bad clip-norm-of-fp32 "norm $(cat norm.log)"
fi

# ---- the settings of the train block ---------------------------------------------------------------

if build keys 's/    steps  /    max_skips = 7, loss_scale = 1024, scale_interval = 3, scale_growth = 4, scale_backoff = 0.25, nonfinite = stop\n&/' --precision=fp16; then
    ./keys --dry-run > keys.log 2>&1
    says keys 0 $? keys.log 'scale    of the loss: from 1024, times 4 after 3 finite updates; one that is not stops the run'
    ./keys --out keys.run --steps 7 > keys.log 2>&1
    [ "$(column loss_scale keys.run | tr '\n' ' ')" = "1024 1024 1024 4096 4096 4096 16384 " ] && ok keys-growth || bad keys-growth "$(column loss_scale keys.run | tr '\n' ' ')"
    ./keys --out back.run --loss-scale 1e12 --nonfinite skip --steps 4 > keys.log 2>&1
    [ "$(column loss_scale back.run | head -n 3 | tr '\n' ' ')" = "1e+12 2.5e+11 6.25e+10 " ] && ok keys-backoff || bad keys-backoff "$(column loss_scale back.run | tr '\n' ' ')"
    awk -F, -v OFS=, '{ $2 = "1e38" } { print }' faults.csv > large.csv
    ./keys --max-skips 2 --data large.csv --nonfinite skip --scale-growth 1 --scale-backoff 0.001 --loss-scale 8 --out none > keys.log 2>&1
    says keys-stop 1 $? keys.log '1 updates in a row were skipped before it at loss scale 1, and --max-skips is 2'
    ./keys --scale-backoff 1 > keys.log 2>&1
    says keys-range 2 $? keys.log '--scale-backoff 1: wants a number from '
    sed '/^ *max_skips/d' keys.model > unset.model
    "$GRADCC" -w --precision=fp16 -D loss_scale=0 unset.model -o unset && ./unset --dry-run > keys.log 2>&1
    says keys-none 0 $? keys.log 'scale    none: small gradients may be 0 in fp16'
fi

# ---- ragged labels, in micro-steps ----------------------------------------------------------------

awk 'BEGIN { srand(9); for (i = 0; i < 48; i++) { for (k = 0; k < 6; k++) printf "%d,", rand() * 11
    for (k = 0; k < 6; k++) printf "%d%s", i % 4 == 0 ? -100 : rand() < i % 5 / 5 ? -100 : int(rand() * 11), k < 5 ? "," : "\n" } }' > tags.csv
if ! command -v python3 > /dev/null; then echo "skip replay/ragged: no python3"; else
    for precision in fp32 bf16 fp16; do
        "$GRADCC" -w --precision=$precision "$here/tags.model" -o tags >&2 || { bad ragged "does not compile"; break; }
        for n in 1 2 3 8 24; do
            ./tags --accumulate $n --out tags.$precision.$n > tags.log 2>&1 || bad ragged "$(tail -n 1 tags.log)"
        done
        for n in 2 3 8 24; do         # after one step of momentum the state is the gradient
            far=$(python3 "$here/../train/far.py" 1e-5 tags.$precision.1/step-00000001/optimizer.safetensors tags.$precision.$n/step-00000001/optimizer.safetensors) &&
                awk "BEGIN { a = $(column train/loss tags.$precision.1); b = $(column train/loss tags.$precision.$n); exit !((a - b)^2 < 1e-12 * a * a) }" ||
                { bad ragged-$precision-$n "$far"; continue; }
            echo "$precision in $n: $far" >&2
            ok ragged-$precision-$n
        done
    done
fi
