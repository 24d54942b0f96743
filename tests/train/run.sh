#!/usr/bin/env bash
# Whole trainings, short: accuracy on the digits, exact resume, interruption, splits of the batch.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1

ok() { echo "ok $1"; }
bad() { echo "not ok $1: $2"; }
# same NAME DIR DIR: byte for byte the same parameters and optimizer state at the step given
same() {
    local name=$1 a=$2 b=$3 f
    for f in model.safetensors optimizer.safetensors; do
        cmp -s "$a/$f" "$b/$f" || { bad "$name" "$f differs"; return; }
    done
    ok "$name"
}
# begun LOG PID: waits until the first step is in the log, or the program has ended
begun() {
    while kill -0 "$2" 2>/dev/null && ! grep -q '^step' "$1"; do sleep 0.01; done
}
# killed_at STEP DIR OPTION...: a run of 60 steps that SIGKILL ends once the checkpoint is there
killed_at() {
    local step=$1 dir=$2 pid; shift 2
    ./gpt $common --out "$dir" "$@" > "$dir.log" 2>&1 &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! [ -e "$dir/step-000000$step/manifest.json" ]; do sleep 0.005; done
    kill -KILL $pid 2>/dev/null; wait $pid 2>/dev/null
    [ -e "$dir/step-000000$step/manifest.json" ] && ! [ -e "$dir/step-00000060" ]
}
# last KEY FILE: the last value of a key of a metrics file
last() { sed -n "s|.*\"$1\": *\([-0-9.e+]*\).*|\1|p" "$2" | tail -n 1; }

# ---- digits: at least 97 % on a held-out fifth, mean of three seeds ----------------------------

if "$GRADCC" "$root/models/digits_mlp.model" -o digits >&2; then
    total=0
    for seed in 1 2 3; do
        ./digits --data "$root/models/digits.csv.gz" --seed $seed --out "digits.$seed" >&2 ||
            bad "digits-seed-$seed" "ended with an error"
        value=$(last val/accuracy "digits.$seed/metrics.jsonl")
        echo "digits seed $seed: accuracy ${value:-none}" >&2
        total=$(echo "$total ${value:-0}" | awk '{ print $1 + $2 }')
    done
    mean=$(echo "$total" | awk '{ printf "%.4f", $1 / 3 }')
    if awk "BEGIN { exit !($mean >= 0.97) }"; then ok "digits-accuracy"; else bad "digits-accuracy" "mean $mean, wanted 0.97"; fi
else
    bad digits "does not compile"
fi

# ---- a small character GPT ---------------------------------------------------------------------

cat "$root/LICENSE" "$root/README.md" "$root/grammar/LANGUAGE.md" > text.txt
small="-D V=200 -D C=32 -D H=2 -D L=2 -D Tmax=32"
"$GRADCC" $small -D rate=0.1 "$root/models/chargpt.model" -o gpt >&2 || bad chargpt "does not compile"
common="--data text.txt --dims T=16 --batch 12 --steps 60 --save 10 --eval 30 --seed 5"

./gpt $common --out straight > straight.log 2>&1 || bad straight "$(tail -n 3 straight.log)"

# kill -9 in the middle of the run, some steps after a checkpoint; resume must give the same bytes
if ! killed_at 20 killed; then bad resume-after-kill "the run was not killed between 20 and 60"; else
    ./gpt $common --out killed --resume auto > resumed.log 2>&1 || bad resume-after-kill "$(tail -n 3 resumed.log)"
    same resume-after-kill straight/step-00000060 killed/step-00000060
fi

# SIGKILL with a checkpoint of step 25, then on to 60: another save interval than the straight run's
if ! killed_at 25 part --save 25; then bad resume-25-to-60 "the run was not killed between 25 and 60"; else
    ./gpt $common --out part --resume auto > part2.log 2>&1 || bad resume-25-to-60 "$(tail -n 3 part2.log)"
    same resume-25-to-60 straight/step-00000060 part/step-00000060
fi

# another thread count or accumulation may change rounding only
./gpt $common --out split --accumulate 3 > split.log 2>&1
a=$(last train/loss straight/metrics.jsonl); b=$(last train/loss split/metrics.jsonl)
if [ -n "$a" ] && awk "BEGIN { d = $a - ${b:-99}; exit !(d < 1e-4 && d > -1e-4) }"; then ok split-with-dropout
else bad split-with-dropout "loss $a against ${b:-none}"; fi
killed_at 25 part3 --save 25 --accumulate 2 ||
    bad resume-other-split "the run was not killed between 25 and 60"
./gpt $common --out part3 --resume auto --accumulate 4 > part4.log 2>&1
b=$(last train/loss part3/metrics.jsonl)
if [ -n "$a" ] && awk "BEGIN { d = $a - ${b:-99}; exit !(d < 1e-4 && d > -1e-4) }"; then ok resume-other-split
else bad resume-other-split "loss $a against ${b:-none}"; fi

# The same masks, not only similar losses: in fp64 parameters, means and mean squares of gradients
# agree to 1e-12 for every split, after the first step, 25 and 60, and after a resume with another.
# near NAME STEP A B: of two runs, at a step
near() {
    local f far
    for f in model optimizer; do
        far=$(python3 "$here/far.py" 1e-12 "$3/step-000000$2/$f.safetensors" "$4/step-000000$2/$f.safetensors" 2>&1) &&
            echo "$1, step $2: $f: $far" >&2 && continue
        bad "$1" "$f at step $2: $(echo "$far" | tail -n 1)"; return
    done
    ok "$1"
}
if ! command -v python3 > /dev/null; then echo "skip same-masks: no python3"
elif "$GRADCC" --precision=fp64 $small -D rate=0.1 "$root/models/chargpt.model" -o gpt64 >&2 &&
        "$GRADCC" --precision=fp64 $small "$root/models/chargpt.model" -o dry64 >&2; then
    exact="--data text.txt --dims T=16 --batch 12 --steps 60 --eval 0 --seed 5"
    for n in 1 2 3; do
        ./gpt64 $exact --out "masks$n" --save 25 --accumulate $n > "masks$n.log" 2>&1 || bad same-masks "$(tail -n 1 "masks$n.log")"
        ./gpt64 $exact --out "first$n" --steps 1 --accumulate $n > "masks$n.log" 2>&1 || bad same-masks "$(tail -n 1 "masks$n.log")"
    done
    ./gpt64 $exact --out masks23 --resume masks2/step-00000025 --accumulate 3 > masks23.log 2>&1 || bad same-masks "$(tail -n 1 masks23.log)"
    for n in 2 3; do
        near "same-masks-$n-first-step" 01 first1 "first$n"
        near "same-masks-$n-of-25" 25 masks1 "masks$n"
        near "same-masks-$n-of-60" 60 masks1 "masks$n"
    done
    near same-masks-after-resume 60 masks1 masks23
    # logits 50 rows at a time: the same sums to rounding; 64 rows a micro-step, so the last part is 14
    if "$GRADCC" --precision=fp64 --head-rows=50 $small -D rate=0.1 "$root/models/chargpt.model" -o parts64 >&2 &&
            ./parts64 $exact --out parts --save 25 --accumulate 3 > parts.log 2>&1; then
        near head-in-parts 60 masks3 parts
        a=$(sed -n '2s/.*"train.loss": \([^,]*\).*/\1/p' masks3/metrics.jsonl) b=$(sed -n '2s/.*"train.loss": \([^,]*\).*/\1/p' parts/metrics.jsonl)
        if [ -n "$a" ] && [ "$a" = "$b" ]; then ok head-in-parts-loss; else bad head-in-parts-loss "$b instead of $a"; fi
    else bad head-in-parts "$(tail -n 1 parts.log)"; fi
    ./dry64 $exact --out dry --steps 1 > dry.log 2>&1          # other masks would be seen
    far=$(python3 "$here/far.py" 1e-3 first1/step-00000001/optimizer.safetensors dry/step-00000001/optimizer.safetensors 2>&1)
    if [ $? = 3 ]; then ok masks-matter; else bad masks-matter "$far"; fi
else bad same-masks "does not compile"
fi

# ---- fp16: gradients below its range need the loss scale ----------------------------------------

awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    printf "%.4f,%.4f,%.4f,%.4f,%d\n", a, b, rand() - 0.5, rand() - 0.5, (a > 0) + (b > a) } }' > small.csv
if "$GRADCC" --precision=fp16 "$here/small.model" -o small16 >&2 && "$GRADCC" "$here/small.model" -o small32 >&2; then
    ./small32 --out small.32 > small.log 2>&1 && ./small16 --out small.16 > small.log 2>&1 &&
        ./small16 --loss-scale 0 --out small.0 > small.log 2>&1 || bad small "$(tail -n 1 small.log)"
    a=$(last train/loss small.32/metrics.jsonl) b=$(last train/loss small.16/metrics.jsonl)
    if awk "BEGIN { a = ${a:-1}; b = ${b:-2}; exit !(a < 7e-8 && (a - b)^2 < 1e-4 * a * a) }"; then ok fp16-with-scale
    else bad fp16-with-scale "loss $b, in fp32 $a"; fi
    b=$(last train/loss small.0/metrics.jsonl)
    if [ "$(last grad_norm small.0/metrics.jsonl)" = 0 ] && awk "BEGIN { exit !(${b:-0} > 1e-7) }"; then ok fp16-without-scale
    else bad fp16-without-scale "it trains: loss $b"; fi

    # The scale doubles every other update until gradients overflow: such updates are skipped, and a
    # resume inside an interval gives the same bytes and the same scale.
    grow="--scale-interval 2 --loss-scale 1e9 --steps 90 --save 44"
    ./small16 $grow --out grown > grown.log 2>&1 &&
        ./small16 --resume grown/step-00000044 --steps 90 --out again > again.log 2>&1 || bad fp16-overflow "$(tail -n 1 grown.log)"
    n=$(last skipped grown/metrics.jsonl)
    if [ "${n:-0}" -gt 2 ] && grep -q 'are not finite; the scale is 1.6384e+13 now' grown.log; then ok fp16-overflow
    else bad fp16-overflow "${n:-no} skipped updates"; fi
    sed '1,$s/^[^,]*/1e5/' small.csv > large.csv         # beyond fp16 whatever the scale is
    ./small16 --data large.csv --out large > large.log 2>&1
    if [ $? = 1 ] && grep -q '^error: step 36: ' large.log && [ -e large/crash/step-00000035 ] &&
        grep -q '^19 updates in a row were skipped before it at loss scale 1, and --max-skips is 20' large.log; then ok fp16-gives-up
    else bad fp16-gives-up "$(tail -n 4 large.log)"; fi
    grep -q '"scale_tracker": 1,' grown/step-00000044/manifest.json || bad fp16-resume 'step 44 is not inside an interval'
    same fp16-resume grown/step-00000090 again/step-00000090
    for f in grown again; do sed -n '/"step"/p; /loss_scale/p; /skips_in_row/p' $f/step-00000090/manifest.json > $f.scale; done
    if cmp -s grown.scale again.scale; then ok fp16-resume-scale; else bad fp16-resume-scale "$(cat again.scale)"; fi
else bad small "does not compile"
fi

# ---- interruption ------------------------------------------------------------------------------

./gpt $common --out interrupted --steps 100000 --save 100000 > interrupted.log 2>&1 &
pid=$!
begun interrupted.log $pid; kill -INT $pid; wait $pid; rc=$?
if [ $rc = 130 ] && ls interrupted/step-*/manifest.json >/dev/null 2>&1; then ok interrupt-saves
else bad interrupt-saves "exit code $rc, $(ls interrupted)"; fi
./gpt $common --out terminated --steps 100000 --save 100000 > terminated.log 2>&1 &
pid=$!
begun terminated.log $pid; kill -TERM $pid; wait $pid; rc=$?
if [ $rc = 75 ] && ls terminated/step-*/manifest.json >/dev/null 2>&1; then ok terminate-saves
else bad terminate-saves "exit code $rc, $(ls terminated)"; fi

# ---- runs are not overwritten; damage is noticed ------------------------------------------------

./gpt $common --out straight > again.log 2>&1 && bad no-overwrite "the run was overwritten"
if grep -q -- '--resume auto' again.log; then ok no-overwrite; else bad no-overwrite "$(tail -n 2 again.log)"; fi
printf 'x' | dd of=part/step-00000060/model.safetensors bs=1 seek=5000 conv=notrunc 2>/dev/null
./gpt $common --out part --resume auto --steps 61 > damaged.log 2>&1
if grep -qi 'step-00000060' damaged.log && [ -e part/step-00000061 ]; then ok damaged-checkpoint
else bad damaged-checkpoint "$(tail -n 3 damaged.log)"; fi
text=$(./gpt generate --out straight --prompt 'The ' --tokens 40 --seed 1 2>&1) &&
    [ "$text" = "$(./gpt generate --out straight --prompt 'The ' --tokens 40 --seed 1 2>&1)" ] &&
    [ ${#text} -ge 40 ] && ok generate || bad generate "$text"
