#!/usr/bin/env bash
# A whole program, from the command line to the files it leaves: linear.c (CSV) and bigram.c (text).
# Called by run.sh with work, BUILD and CC in the environment.
set -u
here=$PWD
flags="-std=c11 -O2 -g -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Werror"
dir=$work/program
[ -w /dev/shm ] && dir=/dev/shm/gradcc-test-$$         # memory: the loops below sync often
rm -rf "$dir"; mkdir -p "$dir"; cd "$dir" || exit 1
trap 'cd /; rm -rf "$dir"' EXIT
export GOMP_SPINCOUNT=1000

build() {                                       # build NAME SOURCE [FLAG ...]
    local name=$1 source=$2
    shift 2
    $CC $flags "$@" -I"$here/../../runtime" "$here/$source" "$BUILD/libgradcc_rt.a" \
        $(cat "$BUILD/rt.libs") -o "$name"
}
build linear linear.c && build linear64 linear.c -DREAL=double -DREAL_KIND=RT_F64 &&
    build bigram bigram.c && build broken bigram.c -DLAST_GOOD=10 &&
    build fixed bigram.c -DSHORTEST=8 &&
    build ids bigram.c -DIDS && build bytes bigram.c -DBYTES && build bare bigram.c -DBARE ||
    { echo "not ok runtime/program: does not compile"; exit 1; }
awk 'BEGIN { srand(1); print "a,b,c,price"
    for (i = 0; i < 500; i++) { a = rand()*4 + 3; b = rand() - 2; c = rand()
        printf "%.5f,%.5f,%.5f,%.5f\n", a, b, c, 2*a - b + c/2 + 3 + (rand() - 0.5)/5 } }' > linear.csv
awk 'BEGIN { srand(3); c = 1; s = "abcd \n"; f["a"] = "bbbbc"; f["b"] = "cccca"; f["c"] = "d d"
    f["d"] = "aaa "; f[" "] = "ab\n"; f["\n"] = "a"; k = "a"
    for (i = 0; i < 3003; i++) { printf "%s", k; t = f[k]; k = substr(t, int(rand()*length(t)) + 1, 1) } }' > bigram.txt

ok() { echo "ok runtime/program/$1"; }
bad() { echo "not ok runtime/program/$1: $2"; }
same() { cmp -s "$2" "$3" && ok "$1" || bad "$1" "$2 and $3 differ"; }
says() {                                        # says NAME CODE TEXT command...: exit code, message
    local name=$1 code=$2 text=$3 rc
    shift 3
    "$@" > said.out 2> said.err; rc=$?
    if [ $rc -ne "$code" ]; then bad "$name" "exit code $rc, wanted $code: $(tail -n 1 said.err)"
    elif ! grep -qF -- "$text" said.err said.out; then bad "$name" "does not say '$text': $(tail -n 2 said.err)"
    else ok "$name"; fi
}
loss() { "$@" 2> loss.err | sed -n 's/^loss //p'; }
weights() { echo "$1/step-$(printf %08d "$2")/model.safetensors"; }

# ---- the command line ---------------------------------------------------------------------------
says help 0 "--warmup N" ./linear --help
says help-of-generate 0 "--temperature X" ./bigram generate --help
says help-large-seed 0 "[18446744073709551615]" ./bigram --seed 18446744073709551615 --help
says version 0 "crc32 00c0ffee" ./bigram --version
says unknown-option 2 "unknown option --stpes" ./bigram --stpes 3
says unknown-option-near 2 "did you mean --steps?" ./bigram --stpes 3
says one-dash 2 "unknown option -steps" ./bigram -steps 3
says option-for-a-dim 2 "hint: sizes of dims are set with --dims T=N" ./bigram --T 3
says unknown-command 2 "unknown command 'genrate'" ./bigram genrate
says unknown-command-near 2 "did you mean generate" ./bigram genrate
says no-such-value 2 "--force takes no value" ./bigram --force=1
says variable-matmul 2 "RT_MATMUL=foo is none of library|plain" env RT_MATMUL=foo ./bigram
says variable-bf16 2 "RT_MATMUL_BF16=foo is none of native|unpack" env RT_MATMUL_BF16=foo ./bigram
says variable-graph 2 "RT_CUDA_GRAPH=no is none of 0|1" env RT_CUDA_GRAPH=no ./bigram
says variable-sync 2 "RT_CUDA_SYNC=yes is none of 0|1" env RT_CUDA_SYNC=yes ./bigram
says variable-tune 2 "RT_CUDA_TUNE=1 is none of on|off" env RT_CUDA_TUNE=1 ./bigram
says variable-empty 0 "usage" env RT_MATMUL= ./bigram --help
says variable-unknown 2 "RT_CUDA_GRAPHS of the environment means nothing" env RT_CUDA_GRAPHS=0 ./bare
says variable-unknown-too 2 "RT_ATTN of the environment means nothing" env RT_ATTN=cudnn ./bare
says variable-hint 2 "hint: there are RT_MATMUL, RT_MATMUL_BF16, RT_ATTENTION, RT_CUDA_GRAPH, RT_CUDA_SYNC, RT_CUDA_TUNE, RT_CUDA_EPILOGUE, RT_CUDA_CACHE, RT_CUDA_PROFILE, RT_CUBLASLT, RT_CUDNN" \
    env RT_CUDA_GRAPHS=0 ./bare
says variable-of-a-gpu 2 "RT_ATTENTION of the environment means nothing here: the program is for a CPU" \
    env RT_ATTENTION=cudnn ./bare
says no-batch 2 "no batch is set" ./ids
says no-loss 2 "bigram has no loss to train on" ./bare
says nothing-to-evaluate 2 "bigram has no loss and no metric to evaluate" ./bare eval
says no-value 2 "--lr wants a value" ./bigram --lr
says bad-number 2 "--lr 1e-3x: wants a number" ./bigram --lr 1e-3x
says bad-whole 2 "--steps 1.5: wants a whole number" ./bigram --steps 1.5
says bad-range 2 "--accumulate 0: wants a whole number from 1 to 1000000000" ./bigram --accumulate 0
says bad-range-of-a-real 2 "--momentum 1: wants a number from 0 to 0.9999999" ./bigram --momentum 1
says bad-range-below 2 "--lr 1e60: wants a number, at most 1e+30" ./bigram --lr 1e60
says bad-range-above 2 "--batch 0: wants a whole number, 1 or more" ./bigram --batch 0
says no-steps 2 "--steps 0: there is nothing to do" ./bigram --steps 0 --out none
says negative 2 "--seed -1: wants a whole number" ./bigram --seed -1
says compile-time 2 "gradcc --precision=bf16 bigram.model" ./bigram --precision fp64
says compile-time-memory 2 "gradcc --recompute=blocks bigram.model" ./bigram --recompute none
says train-block 2 "set it in the train block of bigram.model" ./bigram --optimizer=adamw
says const 2 "gradcc -D V=N bigram.model" ./bigram --V 7
says define 2 "gradcc -D NAME=VALUE bigram.model" ./bigram -DV=7
says not-adam 2 "the optimizer of bigram is sgd" ./bigram --beta1 0.9
says not-sgd 2 "the optimizer of linear is adamw" ./linear --momentum 0.9
says no-clip 2 "compiled without clipping by norm" ./bigram --clip 1
says no-clip-value 2 "hint: set clip_value in the train block of" ./bigram --clip-value 1
says constant-rate 2 "the learning rate of bigram is constant" ./bigram --lr-end 0
says other-command 2 "does not belong to 'eval'" ./bigram eval --steps 3
says stray-word 2 "'file.txt' belongs to no option" ./bigram --steps 3 file.txt
says dims-name 2 "--dims t: the dims of bigram that are set when it starts: T" ./bigram --dims t=4
says dims-name-near 2 "did you mean T?" ./bigram --dims t=4
says dims-name-far 2 "hint: a const is set when compiling: gradcc -D" ./bigram --dims Vocabulary=4
says dims-form 2 "--dims wants NAME=N or NAME=N,NAME=N" ./bigram --dims ''
says dims-form-of-one 2 "--dims T: wants NAME=N, as in --dims T=128" ./bigram --dims T
says dims-batch 2 "B is the sample axis" ./bigram --dims B=4
says dims-limit 2 "the dims do not fit the model: T <= Tmax (bigram.model:2), with B = 12, T = 65" ./bigram --dims T=65
says dims-number 2 "T=x: wants a whole number" ./bigram --dims T=x
says divide 2 "accumulate may be 1, 2, 3, 4, 6, 12; or batch 10 or 15" ./bigram --accumulate 5
says no-generate 2 "linear cannot generate" ./linear generate
says missing-data 1 "nowhere.txt: no such file; --data FILE names the training data" ./bigram --data nowhere.txt --out none
says memory 1 "--force starts anyway; no number of micro-steps helps" ./bigram --batch 40000000000 --accumulate 10 --out none
says dry-run 0 "memory   parameters" ./bigram --dry-run
tr -s ' ' < said.out | grep -qx ' before that [0-9,]* [0-9.]* MiB while the data were read' && ! grep -q '[0-9]\{3\}\.[1-9] %' said.out &&
    ok dry-run-shares || bad dry-run-shares "$(grep 'before\|in all' said.out)"
[ ! -e bigram.run ] && ok dry-run-writes-nothing || bad dry-run-writes-nothing "bigram.run exists"
./bigram --out none > /dev/null && [ ! -e none ] && [ ! -e bigram.run ] && ok out-none || bad out-none "files"

# ---- training, checkpoints, resume --------------------------------------------------------------
./linear --out lin --lr 0.2 > lin.out && ./linear64 --out lin64 --lr 0.2 > lin64.out ||
    bad training "linear does not train"
a=$(loss ./linear eval --out lin) b=$(loss ./linear64 eval --out lin64)
awk -v a="$a" -v b="$b" 'BEGIN { exit !(a > 0 && a < 0.05 && (a - b)^2 < 1e-8) }' &&
    ok fp32-and-fp64-train || bad fp32-and-fp64-train "losses $a and $b"
./bigram --out one > one.out && ./bigram --out two --threads 1 > two.out
same same-seed-same-bytes "$(weights one 60)" "$(weights two 60)"
./bigram --out other --seed 2 > other.out
cmp -s "$(weights one 60)" "$(weights other 60)" && bad another-seed "same bytes" || ok another-seed
for n in 2 3 12; do
    ./bigram --out acc$n --accumulate $n > acc.out
    a=$(loss ./bigram eval --out one) b=$(loss ./bigram eval --out acc$n)
    awk -v a="$a" -v b="$b" 'BEGIN { exit !(a > 0 && (a - b)^2 < 1e-10) }' &&
        ok "split-in-$n" || bad "split-in-$n" "losses $a and $b"
done
a=$(loss ./bigram eval --out one) b=$(loss ./bigram eval --out one --dims T=7)
[ "$a" = "$b" ] && ok validation-covers-the-tail || bad validation-covers-the-tail "$a and $b"
says fixed-window 0 "note     4 tokens at the end of validation files are left out" \
    ./fixed --out fixed.run --steps 1
says fixed-window-of-eval 0 "4 tokens at the end of files are left out" ./fixed eval --out fixed.run
head -c 59 bigram.txt > few.txt                     # 6 to validate: less than a window
says one-short-window 0 "to train on, 1 to validate" ./bigram --data few.txt --out few --steps 1
says one-short-window-of-eval 0 "1 validation samples" ./bigram eval --out few
says nothing-to-validate 1 "there are no validation data" ./bigram eval --out one --split 1
says out-is-a-file 1 "bigram.txt: is no directory" ./bigram --out bigram.txt
says out-in-a-file 1 "bigram.txt: is no directory" ./bigram --out bigram.txt/run
says out-fails 1 "unmade: cannot be made: No space left" \
    env RT_FAULT=io:mkdir:1:ENOSPC ./bigram --out unmade
says config-fails 1 "unwritten/config.json: cannot be written: No space left" \
    env RT_FAULT=io:rename:1:ENOSPC ./bigram --out unwritten
says no-overwriting 2 "go on with --resume auto, or choose another --out" ./bigram --out one
says dry-run-beside-a-run 0 "memory   parameters" ./bigram --out one --dry-run
says resume-nothing 1 "nowhere" ./bigram --resume nowhere
says memory-hint 1 "hint: --accumulate 2 fits and gives the same update" \
    env RT_FAULT=free:6000 ./bigram --out none
says memory-of-eval 1 "validation needs more memory than the 2.0 KiB free: parameters" \
    env RT_FAULT=free:2048 ./bigram eval --out one
says memory-of-eval-hint 1 "gives the same result; --force starts anyway" \
    env RT_FAULT=free:5000 ./bigram eval --out one
says memory-of-eval-forced 0 "loss" env RT_FAULT=free:2048 ./bigram eval --out one --force
says memory-of-generate 1 "generating needs more memory than the 300 bytes free: parameters" \
    env RT_FAULT=free:300 ./bigram generate --out one
says memory-of-generate-forced 0 "" env RT_FAULT=free:300 ./bigram generate --out one --force
says resume-done 0 "has its 60 steps already" ./bigram --out one --resume auto
says resume-fresh 0 "step    60/60" ./bigram --out fresh --resume auto
says resume-tells 0 "changed  lr 0.5 -> 0.25 (given on the command line)" \
    ./bigram --out fresh --resume auto --steps 62 --lr 0.25
says resume-keeps 0 "rate     constant 0.25" ./bigram --out fresh --resume auto --steps 64
says resume-large-seed 0 "changed  seed 1 -> 18446744073709551615 (given" \
    ./bigram --out fresh --resume auto --seed 18446744073709551615 --dry-run
says back-in-its-run 2 "one goes on to step 60; it is not taken back to step 25" \
    ./bigram --resume one/step-00000025
./bigram --out forked --resume one/step-00000025 --steps 60 > fork.out 2>&1
same resume-is-exact "$(weights one 60)" "$(weights forked 60)"
for n in 1 2 3 7 20 40 41 42 43 44 45 60 80 100 110; do
    rm -rf killed
    (RT_FAULT=io:kill:$n ./bigram --out killed; true) > killed.out 2>&1
    ./bigram --out killed --resume auto > killed.out 2>&1
    cmp -s "$(weights one 60)" "$(weights killed 60)" && continue
    bad killed-and-resumed "killed before operation $n"; n=0; break
done 2> /dev/null
[ $n -eq 0 ] || ok killed-and-resumed
mkdir -p 'odd '\''dir' && cp -r fresh/step-* 'odd '\''dir' &&
    printf '{"step": 1, "tr' > 'odd '\''dir/metrics.jsonl'
./bigram --out 'odd '\''dir' --resume auto --steps 66 > odd.out 2>&1
eval "$(sed -n 's/^go on    //p' odd.out)" > odd.out2 2>&1
[ -d 'odd '\''dir/step-00000132' ] && [ "$(sed -n '2p' 'odd '\''dir/metrics.jsonl' | cut -c1-16)" = '{"restart": true' ] &&
    ok printed-command-goes-on || bad printed-command-goes-on "$(tail -n 1 odd.out2)"
./bigram --out "$(printf 'bad\377name')" --steps 5 > bytes.out 2>&1 &&
    ./bigram --out "$(printf 'bad\377name')" --resume auto --steps 6 > bytes.out 2>&1 &&
    ok name-without-utf8 || bad name-without-utf8 "$(tail -n 1 bytes.out)"
if command -v python3 > /dev/null; then
    python3 -c '
import json, sys
for line in open("fresh/metrics.jsonl"):
    json.loads(line, parse_constant=lambda c: sys.exit("bare " + c))
r = [json.loads(l) for l in open("fresh/metrics.jsonl")]
assert r[0]["restart"] is False and sum(x.get("restart") is True for x in r) == 2
assert [x["step"] for x in r if "train/loss" in x] == list(range(1, 65))
assert all("perplexity" in str(x) for x in r if "val/loss" in x)
json.load(open("fresh/config.json"))' 2> json.err && ok json || bad json "$(tail -n 1 json.err)"
fi

# Settings without the effect they seem to have.
says unused-validation 0 "note     no validation: eval is 0, and few.txt is not used" \
    ./bigram --val-data few.txt --eval 0 --steps 1 --out none
says warm-up-of-all 0 "the warm-up takes 60 updates and the run has 60: the learning rate 0.5 is never reached" \
    ./bigram --warmup 60 --out none
says warm-up-fits 0 "warm-up 59" ./bigram --warmup 59 --out none
[ -s said.err ] && bad warm-up-is-no-warning "$(cat said.err)" || ok warm-up-is-no-warning
says decay-before-warm-up 0 "the schedule ends after 10 updates, before the warm-up of 10 does" \
    ./linear --decay-steps 10 --out none
tr -d d < bigram.txt > five.txt
says small-vocabulary 0 "note: five.txt has 5 different characters, fewer than tokens: int in 0..6 (bigram.model:3) has room for; compiled with gradcc -D V=5 the model is smaller" \
    ./bigram --data five.txt --out five --steps 1
[ "$(grep -c note: said.err)" = 1 ] && ok small-vocabulary-once || bad small-vocabulary-once "$(cat said.err)"
says small-vocabulary-of-eval 0 "loss" ./bigram eval --out five
[ -s said.err ] && bad small-vocabulary-is-known "$(cat said.err)" || ok small-vocabulary-is-known
./bigram generate --out five --tokens 400 --temperature 1000 > odd.txt     # ids the text never had
[ "$(tr -d '\nabc ' < odd.txt | wc -c)" = 0 ] && [ "$(wc -m < odd.txt)" -ge 400 ] &&
    ok unknown-ids-are-not-drawn || bad unknown-ids-are-not-drawn "$(od -c odd.txt | head -n 2)"

# A checkpoint of another program: said before anything is taken over, and before the data are read.
other() {                                       # other NAME COMMAND...
    says "$@"
    { grep -q '^kept\|^changed\|^resume' said.out || ! grep -q '^    table F32\[6,6\]$' said.err; } &&
        bad "$1-first" "$(head -n 3 said.out said.err)" || ok "$1-first"
}
text="one/step-00000060: the checkpoint is of another model: of bigram (bigram.model), this program is linear (linear.model)"
other resume-of-another 1 "$text" ./linear --resume one --out another --data nowhere.csv
other eval-of-another 1 "$text" ./linear eval --checkpoint one/step-00000060
[ -e another ] && bad resume-of-another-writes "a directory" || ok resume-of-another-writes
build plain linear.c -DPLAIN -DOPTIMIZER='"sgd"' -DRULE=sgd
build adam linear.c -DOPTIMIZER='"adam"' -DRULE=adam
says resume-other-state 1 "trained with adamw; this program has sgd" ./plain --resume lin --out another
says resume-other-kind 0 "changed  optimizer adamw -> adam (fixed when" \
    ./adam --resume lin --out another --steps 401
grep -qx '[ ,]*' one/step-*/manifest.json && bad manifest-lines "a line of commas" || ok manifest-lines

./bigram --out others --steps 4 > others.out 2>&1
RT_MATMUL=plain ./bigram --out others --resume auto --steps 8 > plain.out 2>&1
./bigram --out others --resume auto --steps 9 > others.out 2>&1
./bigram --out others --resume auto --steps 10 > same.out 2>&1
if ! grep -q dnnl "$BUILD/rt.libs"; then grep -q 'products were' plain.out others.out; [ $? = 1 ]
else grep -q "^note     products were computed by oneDNN [0-9.]* and are by gradcc's own code now (RT_MATMUL=plain): results agree to rounding, not bit for bit$" plain.out &&
    grep -q "^note     products were computed by gradcc's own code and are by oneDNN [0-9.]* now: " others.out &&
    ! grep -q 'products were' same.out
fi && ok other-library || bad other-library "$(grep -h '^note' plain.out others.out same.out)"

# A damaged newest checkpoint: its settings are not taken either.
./bigram --out back --steps 20 --save 10 > back.out &&
    ./bigram --out back --resume auto --steps 30 --lr 0.125 --accumulate 4 --dims T=9 > back.out
printf x | dd of="$(weights back 30)" bs=1 seek=200 conv=notrunc 2> /dev/null
says resume-settings-of-the-whole-one 0 "rate     constant 0.5" \
    ./bigram --out back --resume auto --steps 25
grep -q '= 1 micro-step of' said.out && grep -q '"T": 8' back/config.json &&
    grep -q 'step-00000030 is damaged' said.err && grep -q 'resume   back/step-00000020' said.out &&
    ok resume-says-which || bad resume-says-which "$(cat said.err said.out | head -n 5)"
printf x | dd of="$(weights back 25)" bs=1 seek=200 conv=notrunc 2> /dev/null
rm -rf back/step-00000030; ./bigram --out back --resume auto --steps 30 --dims T=9 > back.out 2>&1
printf x | dd of="$(weights back 30)" bs=1 seek=200 conv=notrunc 2> /dev/null
a=$(loss ./bigram eval --checkpoint back/step-00000020) b=$(loss ./bigram eval --out back)
[ -n "$a" ] && [ "$a" = "$b" ] && grep -q 'going back' loss.err && ok eval-of-the-whole-one ||
    bad eval-of-the-whole-one "losses $a and $b: $(cat loss.err)"

# ---- generation ---------------------------------------------------------------------------------
./bigram generate --out one --tokens 300 --seed 5 > g1 && ./bigram generate --out one --tokens 300 --seed 5 > g2
./bigram generate --out one --tokens 300 --seed 6 > g3
same generate-repeats g1 g2
cmp -s g1 g3 && bad generate-by-seed "two seeds give one text" || ok generate-by-seed
[ "$(./bigram generate --out one --prompt ab --tokens 3 --temperature 0)" = abcda ] ||
    [ "$(./bigram generate --out one --prompt ab --tokens 3 --top-k 1 | head -c 3)" = abc ] &&
    ok generate-likeliest || bad generate-likeliest "not abc..."
# Bytes: characters whole, U+FFFD for what is none.
for i in $(seq 300); do printf 'a\303\251\342\202\254\360\237\230\200'; done > utf8.txt
./bytes --data utf8.txt --out whole --steps 40 > bytes.out 2>&1
likely=$(./bytes generate --out whole --prompt a --tokens 9 --temperature 0)
[ "$likely" = "$(printf 'a\303\251\342\202\254\360\237\230\200')" ] && ok generate-characters ||
    bad generate-characters "$likely: $(tail -n 1 bytes.out)"
[ "$(./bytes generate --out whole --prompt a --tokens 1 --temperature 0)" = "$(printf 'a\357\277\275')" ] &&
    ok generate-cut || bad generate-cut "no U+FFFD for half a character"
./bytes generate --out whole --tokens 400 --temperature 1000 > odd.txt
grep -q "$(printf '\357\277\275')" odd.txt && iconv -f UTF-8 -t UTF-8 odd.txt > odd.utf8 &&
    ok generate-text || bad generate-text "no U+FFFD, or no UTF-8"
says generate-no-id 2 "--prompt: 'x 3' is no token id" ./ids generate --out one --prompt "1 x 3"
says generate-id-outside 2 "--prompt: token 6 is outside 0..6" ./ids generate --out one --prompt "1 6"
says generate-ids-wanted 2 "this model knows token ids only" ./ids generate --out one
says generate-nan 1 "the model gives NaN at position 1: its parameters are damaged" \
    ./broken generate --out one
says generate-unknown 2 "the training text had no 'x'" ./bigram generate --out one --prompt abx
says generate-nothing 1 "holds no checkpoint" ./bigram generate --out empty

# ---- signals ------------------------------------------------------------------------------------
stopped() {                                     # stopped NAME SIGNAL CODE
    rm -rf "$1"
    ./bigram --out "$1" --steps 2000000000 --eval 0 --save 0 --log 100000000 > "$1.out" 2> "$1.err" &
    local pid=$! rc
    for _ in $(seq 1200); do grep -qs '^step' "$1.out" && break; sleep 0.05; done
    kill -"$2" $pid; wait $pid; rc=$?
    [ $rc -eq "$3" ] && ls "$1"/step-*/manifest.json > /dev/null 2>&1 &&
        grep -q 'resume auto' "$1.out" && ok "$1" || bad "$1" "exit code $rc, wanted $3"
    rm -f "$1/metrics.jsonl"
}
stopped interrupted INT 130
stopped terminated TERM 75
stopped requeued USR1 75

# ---- one process in a run directory -------------------------------------------------------------
./bigram --out shared --steps 2000000000 --eval 0 --save 50000 --log 100000000 > shared.out 2> shared.err &
pid=$!
for _ in $(seq 1200); do [ -e shared/step-00050000/manifest.json ] && break; sleep 0.05; done
kill -STOP $pid; ls -l --time-style=full-iso shared shared/step-* > before
says locked-fresh 1 "shared: process $pid on" ./bigram --out shared
says locked-resume 1 "choose another --out DIR" ./bigram --out shared --resume auto
says locked-resume-path 1 "is training there" ./bigram --resume shared
says locked-dry-run 0 "memory   parameters" ./bigram --out shared --dry-run
ls -l --time-style=full-iso shared shared/step-* > after
same locked-untouched before after
kill -KILL $pid; wait $pid 2> /dev/null
n=$(ls shared | sed -n 's/^step-0*\([0-9]*\)$/\1/p' | tail -n 1)
says stale-lock 0 "resume   shared/step-" ./bigram --out shared --resume auto --steps $((n + 1)) --log 1
rm -rf shared
mkdir held taken taken/run.lock; : > held/run.lock
if command -v flock > /dev/null; then
    says locked-by-nobody-known 1 "held: another process is training there" flock held/run.lock ./bigram --out held
fi
says lock-is-a-folder 1 "taken/run.lock: cannot be opened: Is a directory" ./bigram --out taken
says no-locks 0 "step    60/60" env RT_FAULT=io:lock:1:ENOLCK ./bigram --out nolock
grep -q 'nolock/run.lock: cannot be locked: No locks available; see to it' said.err &&
    ok no-locks-is-told || bad no-locks-is-told "$(cat said.err)"
./bigram --out pair --steps 3000 > pair1.out 2> pair1.err & a=$!
./bigram --out pair --steps 3000 > pair2.out 2> pair2.err & b=$!
wait $a; a=$?; wait $b; b=$?                    # whoever is second is refused, or finds a whole run
[ $((a + b)) -ge 1 ] && [ $((a * b)) -eq 0 ] && cat pair?.err | grep -q 'pair: .*training there\|pair holds' &&
    [ "$(grep -c restart pair/metrics.jsonl)" = 1 ] && ok pair || bad pair "$a, $b: $(cat pair?.err)"

# ---- what is printed arrives, or the exit code says so -------------------------------------------
full() {                                        # full NAME COMMAND...: with a full disk as stdout
    local name=$1 rc; shift
    "$@" > /dev/full 2> full.err; rc=$?
    [ $rc -eq 1 ] && grep -q 'standard output: not all of it could be written: No space' full.err &&
        ok "$name" || bad "$name" "exit code $rc: $(tail -n 1 full.err)"
}
full full-help ./linear --help
full full-version ./linear --version
full full-dry-run ./linear --dry-run
full full-eval ./bigram eval --out one
full full-generate ./bigram generate --out one --tokens 9
full full-done ./bigram --out one --resume auto
full full-train ./bigram --out fulltrain
same full-train-is-whole "$(weights one 60)" "$(weights fulltrain 60)"
(./bigram --out piped; echo $? > piped.rc) 2> piped.err | head -n 1 > piped.out
[ "$(cat piped.rc)" = 0 ] && same reader-is-gone "$(weights one 60)" "$(weights piped 60)" ||
    bad reader-is-gone "exit code $(cat piped.rc): $(tail -n 1 piped.err)"

# ---- faults -------------------------------------------------------------------------------------
says nonfinite 1 "step 11: the loss is nan and gradients that are not finite: table (bigram.model:4)" \
    ./broken --out broken.run
./bigram --out ten --steps 10 > ten.out
says nonfinite-saved 1 "before the step; saved in broken.run1/crash" ./broken --out broken.run1
says nonfinite-hint 1 "hint: ./broken --replay broken.run2/crash runs that step again; --trace prints every value" \
    ./broken --out broken.run2
says nonfinite-named 1 "the first value that is not finite: d_table[V,V], backward: bigram.model:6, step 3 of the emitted file" \
    ./broken --out broken.run3
says nonfinite-traced 1 "reads logits[B,T,V]: from " \
    ./broken --resume broken.run/crash --out none --trace
[ "$(grep -c '^trace' said.err)" = 2 ] && grep -q '^trace .*logits\[B,T,V\] .*nan 0  inf 0' said.err &&
    grep -q '^trace .*d_table\[V,V\] .*nan 0  inf 1' said.err && ok trace || bad trace "$(head -n 3 said.err)"
says nonfinite-replayed 0 "the gradient is that of the run, bit for bit" ./broken --replay broken.run
says nonfinite-transient 1 "error: step 11 is finite this time" ./bigram --replay broken.run
says nonfinite-unwritten 1 "before the step; nothing was saved" ./broken --out none
# Skipped instead: the parameters stay those of step 10, the run ends where max-skips says.
says nonfinite-skipped 0 "skipped  4 updates, not finite" \
    ./broken --nonfinite skip --steps 14 --out skips
grep -q '^step *14/14  loss nan ' said.out && ! grep -qe '-nan' said.out said.err && ok nan-without-sign ||
    bad nan-without-sign "$(grep -e '-nan' said.out said.err)"
grep -qF 'step 12 is skipped: the loss is nan and gradients are not finite (2 in a row; 20 stop the run)' said.err &&
    ok skip-warns || bad skip-warns "$(head -n 2 said.err)"
[ "$(tail -c 144 "$(weights skips 14)" | cksum)" = "$(tail -c 144 "$(weights ten 10)" | cksum)" ] &&
    ok skips-reach-no-parameter || bad skips-reach-no-parameter "they differ"
grep -q '"applied": 10, "skipped": 4, "samples": 168' skips/step-00000014/manifest.json &&
    grep -q '"skips_in_row": 4' skips/step-00000014/manifest.json &&
    grep -q '"step": 14, .*"samples": 168, "skipped": 4' skips/metrics.jsonl &&
    ok skips-are-counted || bad skips-are-counted "$(tail -n 1 skips/metrics.jsonl)"
says nonfinite-in-a-row 1 "19 updates in a row were skipped before it, and --max-skips is 20" \
    ./broken --nonfinite skip --steps 60 --out skips.20
grep -q 'step 30: the loss is nan' said.err && [ -e skips.20/crash/step-00000029 ] &&
    ok nonfinite-stops-at-30 || bad nonfinite-stops-at-30 "$(tail -n 2 said.err)"
says nonfinite-value 2 "--nonfinite go: wants stop or skip" ./bigram --nonfinite go --out none
says no-loss-scale 2 "--loss-scale: bigram computes in fp32, and only fp16 needs a loss scale" \
    ./bigram --loss-scale 8
./bigram --help | grep -q 'loss-scale\|scale-interval' && bad help-of-fp32 "a loss scale" || ok help-of-fp32
same crash-checkpoint "$(weights broken.run/crash 10)" "$(weights ten 10)"
says crash-is-told 0 "note     broken.run/crash holds the state before a step that was not finite" \
    ./bigram --out broken.run --resume auto
loop() {                                        # loop NAME PREFIX SUFFIX: fail call 1, 2, 3, ... in turn
    local n rc
    for n in $(seq 1 20) $(seq 23 3 400); do
        rm -rf "$1"
        RT_FAULT="$2$n$3" ./bigram --out "$1" --steps 6 --save 2 --eval 3 > loop.out 2> loop.err; rc=$?
        if [ $rc -gt 2 ]; then bad "$1" "call $n: exit code $rc"; return; fi
        if [ $rc -ne 0 ] && ! grep -q '^error: ' loop.err; then bad "$1" "call $n: no message"; return; fi
        if ! ./bigram --out "$1" --resume auto --steps 6 > loop.out 2> loop.err2; then
            bad "$1" "call $n: cannot go on: $(tail -n 1 loop.err2)"; return; fi
        if ! cmp -s "$(weights loop.ref 6)" "$(weights "$1" 6)"; then bad "$1" "call $n: other bytes"; return; fi
        [ $rc -eq 0 ] && [ ! -s loop.err ] && [ "$n" -gt 20 ] && break
    done
    ok "$1"
}
./bigram --out loop.ref --steps 6 > loop.out
loop memory-fails-once alloc: ''
loop memory-fails-for-good alloc: '+'
loop disk-is-full io:write: :ENOSPC
loop disk-stays-full io:write: +:ENOSPC
loop sync-fails io:fsync: :EIO
loop rename-fails io:rename: :EIO
loop any-call-fails io:any: :EIO
RT_FAULT=io:short,io:eintr ./bigram --out short > short.out 2>&1
same short-and-interrupted "$(weights one 60)" "$(weights short 60)"
