#!/usr/bin/env bash
# Optimizers that are written in the language: the built-in ones against PyTorch for 100 updates,
# and in whole programs a user's own, their options and what is decayed.
set -u
cd "$(dirname "$0")"
here=$PWD root=$PWD/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
export CI=1
libs=$(cat "$BUILD/rt.libs")
ok()  { echo "ok rules/$1"; }
bad() { echo "not ok rules/$1: $2"; }
# emitted NAME OPTIMIZER PRECISION DEFINES CASE: the emitted update does what the case says
emitted() {
    local wrong
    if ! "$GRADCC" --emit=c --precision="$3" -D "optimizer=$2" rule.model > "$work/rule.c" 2> "$work/err" ||
        ! $CC -std=c11 -D_GNU_SOURCE -O1 -fopenmp -ffp-contract=off -Wall -Wextra -Werror -I$root/runtime -I. \
            -DEMITTED="\"$work/rule.c\"" $4 check.c -o "$work/check" "$BUILD/libgradcc_rt.a" $libs -lm 2> "$work/err"; then
        bad "$1" "$(head -n 1 "$work/err")"; return
    fi
    wrong=$("$work/check" "$5")
    if [ -z "$wrong" ]; then ok "$1"; else bad "$1" "$(head -n 1 <<< "$wrong")"; fi
}
n=0
sed -n 's/^{ "\(.*)\)", {$/\1/p' rules.h > "$work/cases"
while read -r optimizer; do
    n=$((n + 1))
    emitted "$n-${optimizer%%(*}-fp64" "$optimizer" fp64 -DREAL=double "$optimizer"
    emitted "$n-${optimizer%%(*}-fp32" "$optimizer" fp32 -DREAL=float "$optimizer"
done < "$work/cases"
for half in bf16 f16; do
    for i in 2 8; do
        optimizer=$(sed -n "${i}p" "$work/cases")
        emitted "$i-${optimizer%%(*}-$half" "$optimizer" "${half/#f1/fp1}" "-DREAL=float -DHALF=$half" "$optimizer"
    done
done
emitted bias-correction "adamw(lr: 0.01, weight_decay: 0.1)" fp64 -DREAL=double bias

# ---- whole programs ------------------------------------------------------------------------------

cp tied.model "$work"
cd "$work" || exit 1
case $GRADCC in /*) ;; *) GRADCC=$here/$GRADCC ;; esac
awk 'BEGIN { srand(5); for (i = 0; i < 600; i++) printf "%s", substr("abcd", 1 + int(4 * rand()^2), 1) }' > letters.txt
build() {                                       # build PROGRAM OPTION...
    local program=$1; shift
    "$GRADCC" "$@" tied.model -o "$program" 2> "$program.err" && return
    bad "$program" "$(head -n 1 "$program.err")"; return 1
}
run() { "$@" > run.log 2>&1 || bad "$1" "$(tail -n 1 run.log)"; }
says() {                                        # says NAME CODE TEXT COMMAND...
    local name=$1 code=$2 text=$3 found; shift 3
    "$@" > said.log 2>&1; found=$?
    if [ $found -eq "$code" ] && grep -qF -- "$text" said.log; then ok "$name"
    else bad "$name" "exit code $found: $(head -n 3 said.log)"; fi
}
same() {                                        # same NAME DIR DIR
    local f
    for f in model optimizer; do
        cmp -s "$2/$f.safetensors" "$3/$f.safetensors" || { bad "$1" "$f differs"; return; }
    done
    ok "$1"
}

# A matrix that is used twice is decayed once; biases and gains are not.
if build sgd; then
    run ./sgd --lr 0 --out before
    run ./sgd --out after
    wrong=$(python3 "$here/decayed.py" before/step-00000001/model.safetensors after/step-00000001/model.safetensors 0.75)
    if [ -z "$wrong" ]; then ok decayed-once; else bad decayed-once "$wrong"; fi
    [ -e after/step-00000001/optimizer.safetensors ] &&
        grep -aq '"m\.' after/step-00000001/optimizer.safetensors &&
        bad no-momentum-no-state "there is a state m" || ok no-momentum-no-state
    says momentum-needs-a-state 2 "--momentum 0.9: the update was compiled for 0" ./sgd --momentum 0.9
    ./sgd --help | grep -q -- "--momentum X" && ok help || bad help "no --momentum"
fi

# A user's optimizer with the formula of adamw is adamw, to the bit; and it goes on where it stopped.
sed -i 's/1e-30 \* //' tied.model
if build adamw -D 'optimizer=adamw(lr: 1e-2, beta2: 0.95)' && build mine -D 'optimizer=mine(lr: 1e-2, betas: (0.9, 0.95))'; then
    run ./adamw --steps 30 --out adamw.run --eps 1e-7
    run ./mine --steps 30 --out mine.run --eps 1e-7
    same user-is-builtin adamw.run/step-00000030 mine.run/step-00000030
    run ./mine --steps 12 --out part.run --eps 1e-7
    run ./mine --steps 30 --resume auto --out part.run
    same user-resumes mine.run/step-00000030 part.run/step-00000030
    says kinds-are-told 0 "changed  optimizer mine -> adamw" ./adamw --steps 31 --resume mine.run --out other.run
    says options-are-limited 2 "--beta1 1: wants a number from 0 to 0.9999999" ./adamw --beta1 1
    grep -q 'update   mine, beta1 0.9, beta2 0.95, eps 1e-07, decay 0.01' run.log && ok settings ||
        bad settings "$(grep '^update' run.log)"
fi
if build adamw16 -D 'optimizer=adamw(lr: 1e-2)' --precision=bf16 && build mine16 -D 'optimizer=mine(lr: 1e-2)' --precision=bf16; then
    run ./adamw16 --steps 20 --out adamw16.run
    run ./mine16 --steps 20 --out mine16.run
    same user-is-builtin-bf16 adamw16.run/step-00000020 mine16.run/step-00000020
fi

# Numbers are options of the program; true and false are not; limits of a require hold there too.
if build odd -D 'optimizer=odd(lr: 1e-2, reach: 0.5, sure: true)'; then
    run ./odd --steps 5 --out a.run
    run ./odd --steps 5 --out b.run --far-off 0.001
    cmp -s a.run/step-00000005/model.safetensors b.run/step-00000005/model.safetensors &&
        bad option-counts "--far-off changes nothing" || ok option-counts
    says require-limits 2 "--reach 0: wants a number, 1e-30 or more" ./odd --reach 0
    says number-wanted 2 "--far-off x: wants a number" ./odd --far-off x
    says no-flag-option 2 "unknown option --sure" ./odd --sure
    says no-decay 2 "--weight-decay: the optimizer of tied is odd, which has none" ./odd --weight-decay 0.1
fi
# So does one side of an `or` that is enough, and a constant beside a number.
sed 's/^train/optimizer limits(lr, a = 1, b = 0, sure = false) {\n    const most = 2\n    _ = require(a > 0 or b > 0)\n    _ = require(a < 0.5 or not sure)\n    if a < most and b < 5 { p = p - lr * g } else { p = p - g }\n}\n&/; s/adamw(/limits(/' "$here/rule.model" > limits.model
if "$GRADCC" limits.model -o limits >&2; then
    says or-limits 2 "--a 0: wants a number from 1e-30 to 1.9999998" ./limits --a 0
    says const-limits 2 "--a 2: wants a number from 1e-30 to 1.9999998" ./limits --a 2
    says side-without-number 2 "the model has no data" ./limits --a 1.5 --out none
else bad limits "does not compile"; fi
says resume-other-state 1 "the run was trained with mine; this program has odd, which keeps another state" \
    ./odd --steps 40 --resume mine.run --out never.run
sed 's/seen/saw/g' tied.model > then.model
if "$GRADCC" then.model -D 'optimizer=odd(lr: 1e-2, reach: 0.5, sure: true)' -o then >&2; then
    says resume-own-other-state 1 "trained with another odd, which keeps another state" \
        ./then --steps 40 --resume a.run --out never.run
else bad then "does not compile"; fi

# Arguments may not be called as options of every program are.
cd "$here" || exit 1
missed=""
for option in $(sed -n 's/^{ "\([a-z0-9-]*\)", .*/\1/p' $root/runtime/core/options.c | sort -u | tr - _); do
    sed "s/^train/optimizer mine(lr, $option = 1) { p = p - lr * g }\n&/; s/adamw(/mine(/" rule.model > "$work/option.model"
    "$GRADCC" --emit=c "$work/option.model" 2>&1 > "$work/c" | grep -q "$option" && [ ! -s "$work/c" ] ||
        missed="$missed $option"
done
[ "$missed" = " weight_decay" ] && ok options-are-taken || bad options-are-taken "argument$missed"

# What numbers share is computed once, however deep they are nested.
{ sed '/^train/,$d' rule.model
  echo 'optimizer deep(lr, beta = 0.99) {'; echo '    a0 = 1 - beta^t; b0 = g'
  for i in $(seq 0 39); do echo "    a$((i + 1)) = a$i * a$i; b$((i + 1)) = b$i * b$i"; done
  echo '    p = p - lr * a40 * b40 / (1 + a39)'; echo '}'
  sed -n '/^train/,$p' rule.model | sed 's/adamw(/deep(/'; } > "$work/deep.model"
if timeout 60 "$GRADCC" --emit=c "$work/deep.model" > "$work/deep.c" 2> "$work/err" &&
    [ "$(grep -c 'rt_pow(beta, t)' "$work/deep.c")" = 1 ]; then ok numbers-once
else bad numbers-once "$(head -n 1 "$work/err")"; fi
