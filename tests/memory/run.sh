#!/usr/bin/env bash
# What gradcc says of a program's memory, and whether the program takes just that.
set -u
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
ok()  { echo "ok memory/$1"; }
bad() { echo "not ok memory/$1: $2"; }
g=$(realpath "$GRADCC")

# says NAME CODE TEXT COMMAND...: exit code, and a line with this text (blanks count as one)
says() {
    local name=$1 code=$2 text=$3 got; shift 3
    "$@" > "$work/said" 2>&1; got=$?
    if [ $got -ne "$code" ]; then bad "$name" "exit code $got, not $code: $(tail -n 1 "$work/said")"
    elif ! tr -s ' ' < "$work/said" | grep -qF -- "$text"; then bad "$name" "no '$text'"
    else ok "$name"; fi
}

# ---- the compiler's report ----------------------------------------------------------------------
explain="$g --explain=memory models/gpt2.model"
big="-D C=1600 -D H=25 -D L=48"
says parameters 0 'parameters 6,230,444,800 5.80 GiB' $explain $big
says fp32-per-parameter 0 'these together 24,921,779,200 23.2 GiB 55.0 % 16.0 bytes' $explain $big
says bf16-per-parameter 0 '18.0 bytes per parameter' $explain $big --precision=bf16
says masterless-per-parameter 0 '14.0 bytes per parameter' $explain $big --precision=bf16 --masters=none
says masterless-parameters 0 '1,557,611,200 of them, 1,554,971,200 in 16 bits alone' $explain $big --precision=bf16 --masters=none
says fp16-per-parameter 0 '18.0 bytes per parameter' $explain $big --precision=fp16
says fp64-per-parameter 0 '32.0 bytes per parameter' $explain $big --precision=fp64
says states-of-sgd 0 '12.0 bytes per parameter' "$g" --explain=memory models/digits_mlp.model
says peak 0 'alive at step 12 of a training step, by line of the model' $explain
says line 0 'gpt2.model:16 452,984,832 432 MiB' $explain
says line-at-other-dims 0 'gpt2.model:16 14,155,776 13.5 MiB' $explain --dims B=2,T=64
says several-uses 0 'gpt2.model:16 14,155,776 13.5 MiB' $explain --dims B=2 --dims T=64
says micro-steps 0 'at B = 2, T = 1024; 16 samples per update in 8 micro-steps' $explain --dims B=2
says unknown-dim 2 'hint: did you mean T?' $explain --dims t=3
says no-such-dim 2 '--dims window=3: the model has no dim window' $explain --dims window=3
says fixed-dim 2 '--dims C=3: C is fixed in the model; -D C=3 gives it another value' \
    $explain --dims C=3
says dim-form 2 '--dims T: wants NAME=SIZE, with a whole number from 1' $explain --dims T
says dim-too-large 2 '--dims T=2000,B=4: T <= Tmax does not hold at these sizes' $explain --dims T=2000 --dims B=4
says dim-too-large-at 2 'gpt2.model:10:7: note: it is declared here' $explain --dims T=2000
says dim-overflow 2 '--dims B=2000000000: the sizes overflow at these dims' $explain --dims B=2000000000
says dim-not-set 0 'B = 16 (not set), T = 16 (not set)' "$g" --explain=memory tests/emit/scan.model
says batch-without-block 0 'at B = 3, T = 16 (not set)' "$g" --explain=memory -D batch=3 tests/emit/scan.model
says dims-alone 2 '--dims goes with --explain=memory' "$g" --emit=c --dims T=3 models/gpt2.model
says dims-recompute 2 '--dims goes with --explain=memory' "$g" --explain=recompute --dims T=3 models/gpt2.model
says recompute-not-set 0 'at B = 16 (not set), T = 16 (not set)' "$g" --explain=recompute tests/emit/scan.model

# within NAME MOST OPTIONS: activations of 64 windows, in thousandths of llm.c's (25,441 MiB)
within() {
    local name=$1 most=$2 bytes; shift 2
    bytes=$("$g" --explain=memory models/gpt2.model --dims B=64,T=1024 --precision=bf16 "$@" |
        sed -n 's/^  arena  *\([0-9,]*\) .*/\1/p' | tr -d ,)
    if [ -n "$bytes" ] && [ $((bytes / 1048576 * 1000)) -le $((most * 25441)) ]; then ok "$name"
    else bad "$name" "$bytes bytes"; fi
}
within activations 780
within activations-of-blocks 180 --recompute=blocks

# ---- the plan against what is alive at once -----------------------------------------------------
worst=0 plans=0
for seed in 2 3 4 5 6 7; do python3 tests/random/model.py $seed > "$work/random_$seed.model"; done
for model in models/*.model tests/{emit,emit/large,run,train,schedule,recompute,replay}/*.model \
        "$work"/random_*.model; do
    case $model in *prelude*) continue ;; esac
    for options in --precision={fp32,bf16}" "--recompute={auto,blocks}; do
        while read -r ratio; do
            plans=$((plans + 1))
            worst=$(awk -v a="$worst" -v b="$ratio" 'BEGIN { print (b > a ? b : a) }')
            # shellcheck disable=SC2086
        done < <("$g" --emit=plan $options "$model" 2> "$work/err" |
            sed -n 's/^plan of .* alive at step .*: //p')
    done
done
if [ $plans -lt 250 ]; then bad bound "only $plans plans"
elif awk -v w="$worst" 'BEGIN { exit w <= 1.03 }'; then bad bound "an arena is $worst times that"
else ok bound; fi

# ---- the program: what it plans is what it allocates -------------------------------------------
# A run with a validation and a checkpoint; the last batch and the last window are short ones.
python3 - "$work" <<'P'
import random, struct, sys
draw = random.Random(5)
with open(sys.argv[1] + '/text', 'w') as f:
    f.write(''.join(draw.choice('abcdefghij \n') for _ in range(7001)))
for name, n in ('train', 3001), ('val', 391):           # token files of llm.c
    with open(f'{sys.argv[1]}/{name}.bin', 'wb') as f:
        f.write(struct.pack('<256i', 20240520, 1, n, *[0] * 253))
        f.write(struct.pack(f'<{n}H', *[draw.randrange(256) for _ in range(n)]))
P
# planned NAME MODEL OPTIONS RUN: the program says "as planned", at one thread and at two, and where
# it goes on from a checkpoint
planned() {
    local name=$1 model=$2 more said; shift 2
    # shellcheck disable=SC2086
    if ! "$g" $1 "$model" -o "$work/program" 2> "$work/err"; then
        bad "planned-$name" "$(head -n 1 "$work/err")"; return
    fi
    for more in "--threads 1" "--threads 2" "--threads 2 --resume auto --steps 5"; do
        [ -z "${more##*resume*}" ] || rm -rf "$work/out"
        # shellcheck disable=SC2086
        said=$("$work/program" $2 $more --out "$work/out" 2> "$work/err" |
            sed -n 's/^memory   peak .* bytes allocated, //p')
        [ "$said" = "as planned" ] ||
            { bad "planned-$name" "$more: '$said' $(head -n 1 "$work/err")"; return; }
    done
    ok "planned-$name"
}
for precision in fp32 bf16 fp16 fp64; do
    planned digits-$precision models/digits_mlp.model --precision=$precision \
        "--steps 4 --eval 2 --save 2 --batch 48"
    planned chargpt-$precision models/chargpt.model "-D V=12 --precision=$precision" \
        "--data $work/text --steps 3 --batch 6 --accumulate 2 --eval 2 --save 2 --ema 0.9"
done
planned chargpt-masterless models/chargpt.model "-D V=12 --precision=bf16 --masters=none" \
    "--data $work/text --steps 3 --batch 6 --accumulate 2 --eval 2 --save 2 --ema 0.9"
small="-D V=256 -D C=96 -D H=3 -D L=2 --head-rows=48"
for precision in fp32 bf16; do
    planned gpt2-$precision models/gpt2.model "$small --precision=$precision" \
        "--data $work/train.bin --val-data $work/val.bin --dims T=40 --steps 3 --batch 4
        --accumulate 2 --eval 2 --save 1"
done
# ... where updates are skipped, by a run that goes on in another folder.
"$g" models/digits_mlp.model --precision=fp16 -o "$work/program" 2> "$work/err"
rm -rf "$work/out"
"$work/program" --scale-interval 1 --steps 20 --eval 0 --out "$work/out" > "$work/said" 2>&1
says planned-elsewhere 0 'as planned' "$work/program" --resume "$work/out/step-00000020" \
    --steps 60 --out "$work/there"
if [ -d "$work/there/crash" ]; then ok planned-skipped; else bad planned-skipped "none is"; fi

# ---- what does not fit ---------------------------------------------------------------------------
"$g" models/chargpt.model -D V=12 -o "$work/chargpt" 2> "$work/err" || bad refuse "does not compile"
"$g" models/chargpt.model -D V=12 --recompute=blocks -o "$work/blocks" || bad refuse "does not compile"
"$g" models/chargpt.model -D V=12 --precision=fp64 -o "$work/wide" || bad refuse "does not compile"
run="--data $work/text --batch 8 --steps 2 --out none"
# refuses NAME BYTES TEXT PROGRAM: with so many bytes free
refuses() { says "$1" 1 "$3" env RT_FAULT=free:$2 "$work/$4" $run; }
says table 0 'workspace 1' "$work/chargpt" $run --dry-run
says alive 0 ', where it is fullest, by line of the model' "$work/chargpt" $run --dry-run
# The program's lines at other dims are those that gradcc prints for them.
lines() { sed -n "$1" | sed -n 's/^ *\(chargpt.model:[0-9]*\)  *\([0-9,]*\) .*/\1 \2/p' | sort; }
if diff <("$work/chargpt" $run --dims T=48 --dry-run | lines '/where it is fullest/,$p') \
        <("$g" --explain=memory models/chargpt.model -D V=12 --dims B=8,T=48 |
            lines '/^alive at step/,$p') > "$work/err" && [ -n "$("$work/chargpt" $run --dry-run |
            lines '/where it is fullest/,$p')" ]
then ok alive-lines; else bad alive-lines "$(head -n 3 "$work/err")"; fi
refuses micro-steps-fit 40000000 'hint: --accumulate 2 fits and gives the same update' chargpt
refuses others-fit 40000000 'hint: compiled with gradcc --recompute=blocks it needs about' chargpt
refuses precision-fits 40000000 ', with --precision=bf16 about' chargpt
refuses blocks-and-micro-steps 16000000 \
    'hint: compiled with gradcc --recompute=blocks it fits with --accumulate' chargpt
refuses nothing-fits 10000000 'no number of micro-steps helps' chargpt
refuses fp32-fits 64000000 ', with --precision=fp32 about' wide
says blocks-do-fit 0 'as planned' env RT_FAULT=free:40000000 "$work/blocks" $run
