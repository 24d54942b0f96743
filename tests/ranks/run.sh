#!/usr/bin/env bash
# Several ranks: that they train the same model as one, over each back end; that they meet, agree,
# and end together with one message when something is wrong.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
tmp=$(mktemp -d)
trap 'kill -KILL $(jobs -p) 2> /dev/null; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1 OMP_NUM_THREADS=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

ok() { echo "ok ranks/$1"; }
bad() { echo "not ok ranks/$1: $2"; }
skip() { echo "skip ranks/$1: $2"; }
port=$((20500 + $$ % 5000)) # below those that the system gives

# gloo NAME RANKS PROGRAM OPTION...: ranks by flags, which meet at a port or at $meet; their output in
# NAME.0.log, ..., exit codes in codes
meet=
gloo() {
    local name=$1 n=$2 r pids=; shift 2
    port=$((port + 1)) codes=
    for ((r = 0; r < n; r++)); do
        timeout 100 "$@" --rank $r --world-size "$n" --rendezvous "${meet:-localhost:$port}" > "$name.$r.log" 2>&1 &
        pids="$pids $!"
    done
    for r in $pids; do wait "$r"; codes="$codes $?"; done
}
mpi() {
    local name=$1 n=$2; shift 2
    timeout 100 $mpirun -n "$n" "$@" > "$name.log" 2>&1; codes=" $?"
}
# says NAME CODES FILE TEXT...: these exit codes, and a file has these texts
says() {
    local name=$1 wanted=$2 file=$3 text; shift 3
    [ "$codes" = " $wanted" ] || { bad "$name" "exit codes$codes, wanted $wanted: $(tail -n 2 "$file")"; return; }
    for text; do
        grep -qF -- "$text" "$file" || { bad "$name" "no '$text' in: $(cat "$file")"; return; }
    done
    ok "$name"
}
# begun NAME: waits until the run in that folder has made some updates
begun() {
    local i
    for ((i = 0; i < 300; i++)); do
        [ "$(grep -c '"train/loss"' "$1/metrics.jsonl" 2> /dev/null)" -gt 3 ] 2> /dev/null && return
        sleep 0.1
    done
}
# wrong NAME CODE TEXT VARIABLE... -- OPTION...: one process, with these variables and options
wrong() {
    local name=$1 code=$2 text=$3 vars=(); shift 3
    while [ "$1" != -- ]; do vars+=("$1"); shift; done
    shift
    timeout 30 env "${vars[@]}" ./gpt --data input.txt --dims T=24 --out none "$@" > "$name.log" 2>&1; codes=" $?"
    says "$name" "$code" "$name.log" "$text"
}
# same NAME FOLDER FOLDER: parameters after the last step agree to 1e-12
same() {
    local found
    found=$(PYTHONPATH=$root/tests python3 "$here/same.py" "$2" "$3" 2>&1) && ok "$1" || bad "$1" "$found"
}

have_mpi=; [ -e "$BUILD/libgradcc_mpi.so" ] && command -v mpirun > /dev/null && have_mpi=1
mpirun=mpirun
case $(mpirun --version 2> /dev/null) in *'Open MPI'*) mpirun='mpirun --oversubscribe' ;; esac
have_gloo=; [ -e "$BUILD/libgradcc_gloo.so" ] && have_gloo=1
head -c 20000 "$root/grammar/LANGUAGE.md" | tr -c 'a-z \n' ' ' > input.txt
sizes="-D V=28 -D C=32 -D H=2 -D L=2"
"$GRADCC" "$root/models/chargpt.model" --precision=fp64 $sizes -o gpt || { bad build "gpt does not compile"; exit; }
run="./gpt --data input.txt --steps 20 --batch 12 --eval 10 --save 10 --dims T=24"

# A back end with faults (faulty.c).
faulty() { LD_LIBRARY_PATH=faulty FAULT=$1 "${@:2}"; }
mkdir faulty
${CC:-gcc} -std=c11 -D_GNU_SOURCE -shared -fPIC -I"$root/runtime" -DGLOO="\"$(realpath "$BUILD")/libgradcc_gloo.so\"" \
    "$here/faulty.c" -o faulty/libgradcc_gloo.so

# ---- the same model -------------------------------------------------------------------------------

$run --out one --accumulate 4 > one.log 2>&1 || bad one "$(tail -n 1 one.log)"
for n in 2 3 4; do
    if [ $have_gloo ]; then
        gloo gloo$n $n $run --out gloo$n
        says gloo$n "$(printf '0 %.0s' $(seq $n) | sed 's/ $//')" gloo$n.0.log "ranks    $n, started by flags" "sums by Gloo" \
            "batch    12 samples per update = $n ranks with 1 micro-step of $((12 / n))" \
            'sums     of gradients in 1 part, the largest '
        same gloo$n-parameters one gloo$n
        [ -s gloo$n.1.log ] && bad gloo$n-quiet "rank 1 says: $(head -n 3 gloo$n.1.log)"
    fi
    if [ $have_mpi ]; then
        mpi mpi$n $n $run --out mpi$n
        says mpi$n 0 mpi$n.log "ranks    $n, started by MPI"
        same mpi$n-parameters one mpi$n
    fi
    if [ $have_mpi ] && [ $have_gloo ]; then
        cmp -s mpi$n/step-00000020/model.safetensors gloo$n/step-00000020/model.safetensors && ok bits$n ||
            bad bits$n "MPI and Gloo have other bits"
    fi
done
if [ $have_gloo ]; then
    gloo parts 2 $run --out parts --bucket 0.01 # the bits do not depend on them
    says parts "0 0" parts.0.log 'sums     of gradients in 5 parts, the largest 99.2 KiB' 'while the backward pass went on' \
        'bytes allocated, as planned' 'ranks 32.0 MiB, data '
    cmp -s parts/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors && ok parts-bits || bad parts-bits "other bits"
fi
if [ $have_gloo ]; then # gradients in bf16: near, and not the same
    "$GRADCC" "$root/models/chargpt.model" $sizes -o half || bad half "does not compile"
    run_half="./half --data input.txt --steps 20 --batch 12 --eval 0 --save 0 --dims T=24"
    $run_half --out half1 > half1.log 2>&1
    gloo half3 3 $run_half --out half3 --comm-dtype bf16
    says half3 "0 0 0" half3.0.log "bytes allocated, as planned"
    PYTHONPATH=$root/tests python3 "$here/same.py" half1 half3 2e-3 && ok half3-near || bad half3-near "too far"
    cmp -s half1/step-00000020/model.safetensors half3/step-00000020/model.safetensors && bad half3-bits "nothing was rounded" || ok half3-bits
fi
[ $have_mpi ] || skip mpi "this build has no MPI"
[ $have_gloo ] || skip gloo "this build has no Gloo"
grep -o '"val/loss": [0-9.]*' one/metrics.jsonl > one.val
for by in ${have_gloo:+gloo} ${have_mpi:+mpi}; do
    grep -o '"val/loss": [0-9.]*' ${by}3/metrics.jsonl | cmp -s - one.val && [ -s one.val ] && ok validation-$by ||
        bad validation-$by "other losses"
done

# GPT-2 with dropout, which depends on global numbers of samples alone.
python3 -c "
import array
for name, n in ('train', 20000), ('val', 2000):
    with open(name + '.bin', 'wb') as f:
        array.array('i', [20240520, 1, n] + [0] * 253).tofile(f)
        array.array('H', [(i * i // 7 + i // 3) % 64 for i in range(n)]).tofile(f)"
sizes2="-D V=64 -D C=32 -D H=2 -D L=2 -D Tmax=24 -D rate=0.1"
"$GRADCC" "$root/models/gpt2.model" --precision=fp64 $sizes2 -o gpt2 || bad gpt2 "does not compile"
run2="./gpt2 --steps 20 --batch 12 --accumulate 1 --eval 0 --save 0 --warmup 0"
$run2 --out two1 --accumulate 4 > two1.log 2>&1 || bad gpt2-one "$(tail -n 1 two1.log)"
for n in 2 3 4; do
    for by in ${have_gloo:+gloo} ${have_mpi:+mpi}; do
        $by two-$by$n $n $run2 --out two-$by$n
        same gpt2-$by$n two1 two-$by$n
    done
done

# In fp32 sums in another order round otherwise, by 6e-8 of each, and means over many losses less; 1e-6
# is a hundred times what that comes to in 40 updates, and far below what a lost sample would do.
# curve NAME RUN: its losses on 1, 2, 3 and 4 ranks
curve() {
    local n found most=0 name=$1; shift
    "$@" --out $name-1 --accumulate 2 > $name.log 2>&1 || bad $name "$(tail -n 1 $name.log)"
    for n in 2 3 4; do
        if [ $n = 3 ] && [ $have_mpi ]; then mpi $name-$n $n "$@" --out $name-$n; else gloo $name-$n $n "$@" --out $name-$n; fi
        found=$(python3 "$here/curve.py" $name-1 $name-$n 40 1e-6 2>&1) && echo "ok ranks/$name-$n (largest relative difference $found)" ||
            bad $name-$n "losses differ: $found"
    done
}
if [ $have_gloo ]; then
    "$GRADCC" "$root/models/chargpt.model" $sizes -o gpt32 && "$GRADCC" "$root/models/gpt2.model" $sizes2 -o gpt232 || bad curves "do not compile"
    curve curve-chargpt ./gpt32 --data input.txt --steps 40 --batch 12 --eval 0 --save 0 --dims T=24 --warmup 0
    curve curve-gpt2 ./gpt232 --steps 40 --batch 12 --accumulate 1 --eval 0 --save 0 --warmup 0
fi

# ---- --tree: the same bits -------------------------------------------------------------------------

# In fp32, where sums in another order show.
"$GRADCC" "$root/models/chargpt.model" $sizes -D rate=0.1 -o tree || bad tree "does not compile"
run_tree="./tree --data input.txt --steps 8 --batch 16 --accumulate 2 --eval 4 --save 0 --dims T=24 --tree 4"
$run_tree --out tree1 > tree1.log 2>&1; codes=" $?"
says tree1 0 tree1.log "batch    16 samples per update = 8 micro-steps of 2" "bytes allocated, as planned"
for n in 2 4; do
    [ $have_gloo ] || continue
    gloo tree$n $n $run_tree --out tree$n
    cmp -s tree1/step-00000008/model.safetensors tree$n/step-00000008/model.safetensors && ok tree$n-bits ||
        bad tree$n-bits "other bits: $(tail -n 2 tree$n.0.log)"
done
./gpt --data input.txt --batch 12 --dims T=24 --tree 3 --out none > tree3.log 2>&1; codes=" $?"
says tree3 2 tree3.log "--tree 3 on 1 rank: wants a power of 2 that the ranks divide"

# ---- --comm-check ---------------------------------------------------------------------------------

# checked NAME FILE: every rank of four printed 6, and nothing is wrong
checked() {
    local n; n=$(grep -c 'comm-check rank [0-3]: all-reduce  *6$' "$2")
    [ "$n" = 4 ] && ! grep -q WRONG "$2" && grep -q 'comm-check: all exchanges are right on all ranks' "$2" && ok "$1" || bad "$1" "$(cat "$2")"
}
if [ $have_mpi ]; then mpi check-mpi 4 ./gpt --comm-check; checked check-mpi check-mpi.log; fi
if [ $have_gloo ]; then gloo check-gloo 4 ./gpt --comm-check; cat check-gloo.?.log > check-gloo.log; checked check-gloo check-gloo.log; fi

# ---- another number of ranks goes on --------------------------------------------------------------

[ $have_gloo ] || exit 0
run_on="$run --steps 30 --decay-steps 20"
$run_on --out whole > whole.log 2>&1 # without a stop, on one rank
for n in 1 2 3; do
    cp -r gloo2 on$n
    if [ $n = 1 ]; then $run_on --resume auto --out on1 > on1.log 2>&1; codes=" $?"
    else gloo on$n $n $run_on --resume auto --out on$n; cp on$n.0.log on$n.log; fi
    says resume-on-$n "$(printf '0 %.0s' $(seq $n) | sed 's/ $//')" on$n.log "resume   on$n/step-00000020: step 20"
    same resume-on-$n-parameters whole on$n
    found=$(python3 "$here/curve.py" whole on$n 30 1e-12 2>&1) && ok resume-on-$n-curve || bad resume-on-$n-curve "losses differ: $found"
done

# ---- warnings -------------------------------------------------------------------------------------

# One that all ranks have is told once, those of others with their number, once as well.
port=$((port + 1)) pids=() codes=
for r in 0 1 2; do
    own="RT_OWN$r=1 RT_LAST=1"; [ $r = 0 ] && own=
    env RT_ALL=1 $own timeout 60 $run --out warned --rank $r --world-size 3 \
        --rendezvous localhost:$port > warned.$r.log 2>&1 & pids+=($!)
done
for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says warned "0 0 0" warned.0.log '[rank 1] warning: RT_OWN1 of the environment' '[rank 2] warning: RT_OWN2 of the environment'
[ "$(grep -c 'RT_ALL of the' warned.0.log)$(grep -c 'RT_LAST of the' warned.0.log)" = 11 ] && ok warned-once ||
    bad warned-once "$(grep warning warned.0.log)"
[ -s warned.1.log ] && bad warned-quiet "$(cat warned.1.log)" || ok warned-quiet

# ---- a faulty network ------------------------------------------------------------------------------

# One bit of what rank 1 is sent in the 15th update is another one.
port=$((port + 1)) pids=() codes=
for r in 0 1 2; do
    fault=none; [ $r = 1 ] && fault=bit:15
    faulty $fault timeout 60 $run --out bit --rank $r --world-size 3 --rendezvous localhost:$port > bit.$r.log 2>&1 & pids+=($!)
done
for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
for r in 0 1 2; do
    says bit-$r "1 1 1" bit.$r.log 'step 20: ranks have different parameters: those of rank 1 (' ') are not those of rank 0 (' \
        ') and 1 more' 'the last checkpoint is of step 10'
done
[ "$(ls -d bit/step-*)" = bit/step-00000010 ] && ok bit-saved || bad bit-saved "$(ls bit)"
port=$((port + 1)) pids=() codes=
for r in 0 1; do
    fault=none; [ $r = 0 ] && fault=bit:3
    faulty $fault timeout 60 $run --out none --rank $r --world-size 2 --rendezvous localhost:$port > bit2.$r.log 2>&1 & pids+=($!)
done
for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says bit-of-two "1 1" bit2.0.log 'step 10: ranks have different parameters: those of rank 1 (' 'there is no checkpoint'

# ---- deadlines -------------------------------------------------------------------------------------

# late NAME FAULT OPTION...: two ranks, the second with that fault
late() {
    local name=$1 r fault; shift
    port=$((port + 1)) pids=() codes=
    for r in 0 1; do
        fault=none; [ $r = 1 ] && fault=$1
        faulty $fault timeout 60 $run --save 0 --out $name --rank $r --world-size 2 --rendezvous localhost:$port --comm-timeout 2 "${@:2}" \
            > $name.$r.log 2>&1 & pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
}
late late-first late:1
says late-first "0 0" late-first.0.log 'done     step 20'
late late-later late:5
says late-later "76 76" late-later.0.log ') has waited for 2 s; all ranks are in it'
late late-short late:1 --rendezvous-timeout 1
says late-short "76 76" late-short.1.log ') has waited for 2 s; all ranks are in it'
# Between the meeting and the first exchange.
# early NAME FAULT TEXT OPTION...: three ranks, the last with that fault; the others end with that text
early() {
    local name=$1 fault=$2 text=$3 r f; shift 3
    port=$((port + 1)) pids=() codes=
    for r in 0 1 2; do
        f=none; [ $r = 2 ] && f=$fault
        env LD_LIBRARY_PATH=faulty FAULT=$f $run --out none --rank $r --world-size 3 --rendezvous localhost:$port "$@" > $name.$r.log 2>&1 & pids+=($!)
    done
    for r in 0 1; do
        timeout 20 tail --pid="${pids[r]}" -f /dev/null || { bad $name "rank $r goes on"; kill -KILL "${pids[r]}"; }
        wait "${pids[r]}" 2> /dev/null; codes="$codes $?"
    done
    kill -KILL "${pids[2]}" 2> /dev/null; wait "${pids[2]}" 2> /dev/null
    for r in 0 1; do
        says $name-$r "76 76" $name.$r.log "$text"
        [ "$(grep -c 'error: ' $name.$r.log)" = 1 ] || bad $name-$r-once "$(cat $name.$r.log)"
    done
}
early stopped-early stop 'error: rank 2 (' --comm-timeout 2
grep -q 'has given no sign of life for 2 s' stopped-early.1.log && ok stopped-early-why || bad stopped-early-why "$(cat stopped-early.1.log)"
early hung-early hang 'error: rank 2 (' --rendezvous-timeout 2
grep -q 'keeps the others waiting: it is alive, and has not come to "gloo/world/.*" within 2 s' hung-early.1.log &&
    ok hung-early-why || bad hung-early-why "$(cat hung-early.1.log)"
late late-behind behind:5
for r in 0 1; do says late-behind-$r "76 76" late-behind.$r.log ' has waited for 2 s: rank 1 (' ') is at exchange ' ', others at '; done
# A rank dies in the fifth sum of gradients, which is in the fifth update: sums are made in the last of
# its micro-steps alone, so that many of them make no more exchanges than one.
for accumulate in 1 3; do
    late died-$accumulate kill:5 --accumulate $accumulate
    says died-$accumulate "76 137" died-$accumulate.0.log 'error: rank 1 (' ') is gone: it ended, or its host was cut off' \
        'then: the sum of gradients 1 of 1, ln_f.weight to wte.weight (chargpt.model:36)'
    grep -o 'rank 0 was in exchange [0-9]* then: ' died-$accumulate.0.log > died-$accumulate.at
done
cmp -s died-1.at died-3.at && ok last-micro-step || bad last-micro-step "$(cat died-?.at)"
# A checkpoint may take longer.
echo '#include <unistd.h>
int fsync(int fd) { (void)fd; return (int)sleep(1); }' | ${CC:-gcc} -x c - -shared -fPIC -o libslow.so
LD_PRELOAD=./libslow.so gloo slow-disk 2 $run --save 0 --out slow --comm-timeout 2
says slow-disk "0 0" slow-disk.0.log 'saved    slow/step-00000020'

# ---- the end of one is the end of all -------------------------------------------------------------

# lost NAME SIGNAL RANK CODE TEXT: three ranks, one is sent a signal while they train; the others
# end with this exit code, and each says so
lost() {
    local name=$1 signal=$2 who=$3 code=$4 text=$5 r rc pids=()
    port=$((port + 1))
    for r in 0 1 2; do
        ./gpt --data input.txt --steps 100000 --batch 12 --eval 0 --save 0 --dims T=24 --out $name --rank $r \
            --world-size 3 --rendezvous localhost:$port --comm-timeout 4 > $name.$r.log 2>&1 &
        pids[r]=$!
    done
    begun $name
    kill -"$signal" "${pids[who]}"
    for r in 0 1 2; do
        [ $r = "$who" ] && [ "$signal" = STOP ] && continue
        timeout 20 tail --pid="${pids[r]}" -f /dev/null || { bad $name "rank $r goes on"; kill -KILL "${pids[r]}"; }
        wait "${pids[r]}" 2> /dev/null; rc=$?
        [ $r = "$who" ] && [ "$signal" = KILL ] && continue
        if [ $rc = "$code" ] && { [ -z "$text" ] || grep -qE "$text" $name.$r.log; } &&
           { [ $code != 76 ] || grep -q "^rank $r was in exchange [0-9]* then: " $name.$r.log; }; then ok $name-$r
        else bad $name-$r "exit code $rc: $(tail -n 2 $name.$r.log)"; fi
    done
    kill -KILL "${pids[who]}" 2> /dev/null; wait "${pids[who]}" 2> /dev/null
}
lost killed KILL 1 76 'rank 1 \(.*, process [0-9]*\) is gone: it ended, or its host was cut off'
lost killed-first KILL 0 76 'rank 0 \(localhost port [0-9]*\) is gone'
lost stopped STOP 2 76 'rank 2 \(.*\) has given no sign of life for [45] s: it is stopped, or its host cannot be reached'
lost stopped-first STOP 0 76 'rank 0 \(.*\) has not answered for 4 s'
lost terminated TERM 1 75 ''
lost interrupted INT 2 130 ''
grep -q stopping interrupted.2.log && bad interrupted-quiet "$(grep stopping interrupted.2.log)" || ok interrupted-quiet
for name in terminated interrupted; do
    [ -e $name/step-*/manifest.json ] && ok $name-saved || bad $name-saved "$(cat $name.0.log)"
done

# ---- one message ----------------------------------------------------------------------------------

if [ $have_mpi ]; then
    mpi dry 2 $run --out none --dry-run
    says dry-run 0 dry.log 'batch    12 samples per update = 2 ranks with 1 micro-step of 6'
    grep -q error dry.log && bad dry-run-quiet "$(grep error dry.log)" || ok dry-run-quiet
fi
# What a host has is shared by its ranks: cores, and memory.
threads() { grep -o '[0-9]* threads\?, ' "$1" | grep -o '[0-9]*' | head -n 1; }
env -u OMP_NUM_THREADS RT_FAULT=free:2097152 $run --out none > share1.log 2>&1
RT_FAULT=free:2097152 gloo share 2 env -u OMP_NUM_THREADS $run --out none
says share "1 1" share.1.log '[rank 1] error: ' 'the run needs more memory than the 1.0 MiB free for each of 2 ranks on this host: '
says share-line "1 1" share.0.log 'this is rank 0, with 2 of them on this host; they met at' '; 1.0 MiB free for each of 2 ranks on this host'
all=$(threads share1.log) half=$(threads share.0.log)
[ "$(env -u OMP_NUM_THREADS nproc)" -lt "$(getconf _NPROCESSORS_ONLN)" ] || all=$((all > 1 ? all / 2 : 1)) # bound: nobody else's
[ "$half" = "$all" ] && ok share-threads || bad share-threads "$half threads, not $all"
gloo no-file 2 $run --out none --data nofile
for r in 0 1; do
    [ "$(grep -c 'error: ' no-file.$r.log)" = 1 ] && ok no-file-$r || bad no-file-$r "$(cat no-file.$r.log)"
done
gloo trace 2 $run --out none --trace
says trace "2 2" trace.1.log '[rank 1] error: --trace looks at the values of one process'
gloo replay 2 $run --out none --replay auto
says replay "2 2" replay.0.log 'error: --replay looks at the values of one process'
gloo nonfinite 2 ./tree --data input.txt --steps 8 --batch 8 --eval 0 --dims T=24 --out nonfinite --lr 1e30 --warmup 0
says nonfinite-0 "1 1" nonfinite.0.log 'saved in nonfinite/crash'
says nonfinite-1 "1 1" nonfinite.1.log '[rank 1] error: rank 0 (' 'saved in nonfinite/crash'
# The value is in rank 1's half of the tenth batch, whose state takes longer to write than exchanges may.
awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    printf "%.4f,%.4f,%.4f,%.4f,%.4f\n", a, b, rand() - 0.5, rand() - 0.5, i == 77 ? 0 : 1.5 + (a > 0) + (b > a) } }' > faults.csv
sed 's/wanted = y/wanted = log(y)/' "$root/tests/replay/faults.model" > faults.model
"$GRADCC" -w faults.model -o faults || bad faults "does not compile"
LD_PRELOAD=./libslow.so gloo where 2 ./faults --out where --comm-timeout 2
for r in 0 1; do
    says where-$r "1 1" where.$r.log 'saved in where/crash' 'of rank 1: the first value that is not finite: loss_a[B], forward: faults.model:18' \
        'inf in 1 of 8 elements, the first at 0, in sample 152 of the run, number 77 of the training data'
done
LD_PRELOAD=./libslow.so gloo skips 2 ./faults --out skips --save 0 --nonfinite skip --steps 12 --comm-timeout 2
says skips "0 0" skips.0.log 'note     ./faults --replay skips/crash runs that step again' 'skipped  1 update, not finite'
wrong port-number 2 '--rendezvous a:99999: wants a whole number from 1 to 65535' -- --world-size 2 --rank 0 --rendezvous a:99999

# ---- through a directory --------------------------------------------------------------------------

# start NAME DIR RANK: one of two ranks
start() {
    timeout 60 $run --out $1 --rank $3 --world-size 2 --rendezvous $2 --rendezvous-timeout 30 > $1.$3.log 2>&1 &
    pids+=($!)
}
# written DIR FILE: waits until rank 0 has written it
written() { local i; for ((i = 0; i < 300; i++)); do [ -e $1/$2 ] && return; sleep 0.1; done; }
# met NAME DIR: all in pids ended well, the bits are those of other runs, and nothing is left in DIR
met() {
    local r; codes=
    for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
    says $1 "0 0" $1.0.log 'ranks    2, started by '
    cmp -s $1/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors || bad $1-bits "other bits: $(tail -n 1 $1.?.log)"
    [ -z "$(ls $2)" ] || bad $1-left "in $2: $(ls $2)"
    pids=()
}
mkdir dir; pids=()
start meet ./dir 1; sleep 0.5; start meet ./dir 0; met meet ./dir
start dead ./dir 0; written dir rank0.-.0 # it is killed while it waits, and its file stays
kill -KILL "$(pgrep -P "${pids[0]}")"; wait "${pids[0]}" 2> /dev/null; pids=()
grep -q '^127.0.0.1$' dir/rank0.-.0 && ok dead-left || bad dead-left "$(cat dir/rank0.-.0)"
wrong stale 76 'rank 1 found no rank 0 through ./dir within 1 s: what is written there is of ' -- \
    --world-size 2 --rank 1 --rendezvous ./dir --rendezvous-timeout 1
start after-stale ./dir 1; sleep 0.5; start after-stale ./dir 0; met after-stale ./dir
# A port that another job has by now, which waits; a text that is no address.
mkdir dir2; start waits dir2/ 0; written dir2 rank0.-.0; waits=("${pids[@]}"); pids=()
sed '2s/@.*/@0123456789ab/' dir2/rank0.-.0 > dir/rank0.-.0
start reused ./dir 1; sleep 0.5; start reused ./dir 0; met reused ./dir
head -n 3 dir2/rank0.-.0 > dir/rank0.-.0
start cut-text ./dir 1; sleep 0.5; start cut-text ./dir 0; met cut-text ./dir
pids=("${waits[@]}"); start waits dir2/ 1; met waits dir2
# Two jobs in one directory; the variables of launchers, whose address is not asked.
export WORLD_SIZE=2 MASTER_ADDR=nowhere MASTER_PORT=1; pids=() second=()
for r in 1 0; do
    RANK=$r TORCHELASTIC_RUN_ID=a/b timeout 60 $run --out joba --rendezvous ./dir > joba.$r.log 2>&1 & pids+=($!)
    SLURM_JOB_ID=8 SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=$r timeout 60 env -u WORLD_SIZE $run --out jobb --rendezvous ./dir \
        > jobb.$r.log 2>&1 & second+=($!)
done
unset WORLD_SIZE MASTER_ADDR MASTER_PORT
met joba ./dir; pids=("${second[@]}"); met jobb ./dir
says torchrun-directory "0 0" joba.0.log 'started by torchrun'
says slurm-directory "0 0" jobb.0.log 'started by SLURM'
meet=./nowhere gloo no-directory 2 $run --out none
for r in 0 1; do
    says no-directory-$r "2 2" no-directory.$r.log '--rendezvous ./nowhere: the directory cannot be opened: No such file or directory' \
        'hint: one that the hosts of all ranks share'
done
wrong not-written 2 '--rendezvous ./dir: rank 0 cannot write ./dir/rank0.-.0: Permission denied' RT_FAULT=io:rename:1:EACCES -- \
    --world-size 2 --rank 0 --rendezvous ./dir
mkdir dir/rank0.-.0
wrong not-read 2 './dir/rank0.-.0: cannot be read: Is a directory' -- --world-size 2 --rank 1 --rendezvous ./dir
rmdir dir/rank0.-.0
wrong not-there 76 'rank 1: no rank 0 has written its address into ./dir within 1 s' -- --world-size 2 --rank 1 --rendezvous ./dir \
    --rendezvous-timeout 1
wrong alone 76 'do their hosts share the directory of --rendezvous?' -- --world-size 2 --rank 0 --rendezvous ./dir --rendezvous-timeout 1
[ -z "$(ls dir)" ] && ok directory-empty || bad directory-empty "$(ls dir)"
wrong meet-mpi 2 '--rendezvous ./dir: ranks started by MPI meet through MPI' OMPI_COMM_WORLD_SIZE=2 -- --rendezvous ./dir
wrong scheme 2 "or a directory with a '/' in it, as in ./meet" -- --world-size 2 --rank 0 --rendezvous tcp://localhost:1
meet=[::1]:$((port + 1)) gloo six 2 $run --out six
says six "0 0" six.0.log "they met at ::1 port $port; sums by Gloo " ' over ::1'

# ---- strangers at the store -----------------------------------------------------------------------

# A job runs; another one that is sent to its address is turned away, and the first goes on.
port=$((port + 1)) pids=()
for r in 0 1; do
    ./gpt --data input.txt --steps 100000 --batch 12 --eval 0 --save 0 --dims T=24 --out first --rank $r --world-size 2 \
        --rendezvous localhost:$port > first.$r.log 2>&1 &
    pids+=($!)
done
begun first
timeout 30 ./gpt --data input.txt --dims T=24 --out none --rank 1 --world-size 3 --rendezvous localhost:$port > second.log 2>&1; codes=" $?"
says second-job 2 second.log 'the job at this address has its 2 ranks already' 'hint: another port (MASTER_PORT, --rendezvous) for each job'
wrong second-first 2 'the job at this address has its 2 ranks already' -- --rank 0 --world-size 2 --rendezvous localhost:$port
SLURM_JOB_ID=7 timeout 30 ./gpt --data input.txt --dims T=24 --out none --rank 1 --world-size 2 --rendezvous localhost:$port \
    > other-job.log 2>&1; codes=" $?"
says other-job 2 other-job.log 'rank 1 is of job 7/0, and the store at this address of job -/0'
python3 -c "
import socket
s = socket.create_connection(('localhost', $port)); s.sendall(b'GET / HTTP/1.0\r\n\r\n' * 9); s.recv(1)" 2> /dev/null
# One that announces 64 MiB is hung up on at once, one that says nothing does not keep rank 0 from its end.
python3 -c "
import socket, struct
s = socket.create_connection(('localhost', $port)); s.settimeout(5)
s.sendall(struct.pack('<IHHQiiII', 0x74736367, 3, 2, 0, 0, 2, 0, 64 << 20)); assert s.recv(1) == b''" 2> /dev/null &&
    ok large-stranger || bad large-stranger "it is listened to"
python3 -c "
import socket, time
s = socket.create_connection(('localhost', $port)); print(1, flush=True); time.sleep(60)" > silent.log & silent=$!
until [ -s silent.log ]; do sleep 0.1; done
kill -0 "${pids[0]}" && kill -0 "${pids[1]}" && ok first-goes-on || bad first-goes-on "$(tail -n 1 first.?.log)"
since=${EPOCHREALTIME/./}
kill -TERM "${pids[0]}"; codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says first-ends "75 75" first.0.log 'stopped  at step'
took=$(((${EPOCHREALTIME/./} - since) / 1000))
[ $took -lt 4000 ] && ok first-ends-soon || bad first-ends-soon "it took $took ms"
kill $silent; wait $silent 2> /dev/null

# Jobs at one address, or beside each other: by torchrun's variables, where an agent listens, two of
# another id, two of torchrun's own at neighbouring ports; two steps of one job of SLURM. Each finds
# its own store, the later ranks first.
# beside NAME RANK VARIABLE...
beside() { env "${@:3}" timeout 60 $run --out $1 > $1.$2.log 2>&1 & pids+=($!); }
port=$((port + 20)) pids=() job=$((10000 + $$ % 2000))
agent="TORCHELASTIC_USE_AGENT_STORE=True WORLD_SIZE=2 MASTER_ADDR=localhost"
slurm="SLURM_JOB_ID=$job SLURM_STEP_NODELIST=localhost"
for r in 1 0; do
    beside agent-a $r $agent TORCHELASTIC_RUN_ID=a MASTER_PORT=$port RANK=$r
    beside agent-none $r $agent TORCHELASTIC_RUN_ID=none MASTER_PORT=$port RANK=$r
    beside agent-next $r $agent TORCHELASTIC_RUN_ID=none MASTER_PORT=$((port + 1)) RANK=$r
    beside step-0 $r $slurm SLURM_STEP_ID=0 SLURM_NTASKS=2 SLURM_PROCID=$r
    beside step-1 $r $slurm SLURM_STEP_ID=1 SLURM_NTASKS=9 SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=$r
    sleep 1
done
codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says neighbours "0 0 0 0 0 0 0 0 0 0" agent-a.0.log "ranks    2, started by torchrun"
says steps "0 0 0 0 0 0 0 0 0 0" step-1.0.log "ranks    2, started by SLURM"
for name in agent-a agent-none agent-next step-0 step-1; do
    cmp -s $name/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors && ok $name ||
        bad $name "other bits: $(tail -n 1 $name.?.log)"
done
port=$((port + 20))
# The first host of SLURM's lists.
for list in 127.0.0.4 '127.0.0.[4-5]' '127.0.0.[4,7-8],b' '127.0.0.4,b[1-2]'; do
    wrong "slurm-list-$list" 76 "rank 1 found no rank 0 at 127.0.0.4 ports 15018 to 15033 within" SLURM_JOB_NODELIST="$list" SLURM_JOB_ID=3000017 \
        SLURM_STEP_ID=3 SLURM_NPROCS=2 SLURM_PROCID=1 -- --rendezvous-timeout 1
    says "slurm-port-$list" 76 "slurm-list-$list.log" "SLURM's list of hosts names it"
done

# ---- by the launchers themselves ------------------------------------------------------------------

forever="./gpt --data input.txt --steps 100000 --batch 12 --eval 0 --save 0 --dims T=24 --comm-timeout 4"
if [ $have_mpi ]; then
    mpi mpi-lo 2 $run --out mpi-lo --interface lo
    says mpi-interface 0 mpi-lo.log 'they met at 127.0.0.1 port'
    for signal in KILL STOP; do
        timeout 60 $mpirun -n 3 $forever --out under$signal > under$signal.log 2>&1 & job=$!
        begun under$signal
        worker=$(for p in $(pgrep -x gpt); do [ /proc/$p/cwd -ef . ] &&
            grep -qzxE '(OMPI_COMM_WORLD_RANK|PMI_RANK)=1' /proc/$p/environ && echo $p; done)
        kill -$signal "$worker"
        wait $job; codes=" $?"
        kill -KILL "$worker" 2> /dev/null
        if [ $signal = STOP ]; then says under-mpirun-stopped 76 under$signal.log "process $worker) has given no sign of life"
        elif [[ $codes = " 137" || $codes = " 76" ]] && # mpirun ends the others, who may say it first
            grep -qE "rank 1 (\(.*, process $worker\) is gone|with PID .* exited on signal 9)" under$signal.log; then ok under-mpirun-killed
        else bad under-mpirun-killed "exit code$codes: $(cat under$signal.log)"; fi
    done
    # Rank 0 fails, or takes long, before the store is there that tells others.
    keep() { mpi "$1" 2 sh -c "$2 ./gpt --data input.txt --dims T=24 --out none $3; sleep 50"; }
    keep mpi-fails '' '--interface nowhere0'
    says mpi-fails 2 mpi-fails.log '--interface nowhere0: this host has no interface'
    echo '#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include <sys/syscall.h>
int pipe2(int at[2], int flags)
{
    Dl_info by;
    if (dladdr(__builtin_return_address(0), &by) && strstr(by.dli_fname, "gpt")) sleep(50);
    return (int)syscall(SYS_pipe2, at, flags);
}' | ${CC:-gcc} -x c - -shared -fPIC -o liblate.so
    mpi mpi-one-fails 1 ./gpt --data nofile --dims T=24 --out none
    says mpi-one-fails 1 mpi-one-fails.log 'error: nofile'
    grep -q ABORT mpi-one-fails.log && bad mpi-one-aborts "$(cat mpi-one-fails.log)"
    keep mpi-late LD_PRELOAD=./liblate.so '--rendezvous-timeout 1'
    says mpi-late 76 mpi-late.log 'the address of rank 0 cannot be told: nothing has come for too long'
    wrong stranger 76 'OMPI_COMM_WORLD_SIZE is 2, and ' OMPI_COMM_WORLD_SIZE=2 --
    says stranger-hint 76 stranger.log ' knows of 1 rank: another MPI started it' 'hint: take the mpirun of that MPI'
fi
if command -v mpicc.mpich > /dev/null && command -v mpirun.mpich > /dev/null; then # Debian's MPICH beside another MPI
    mkdir mpich && MPICH_CC=${CC:-gcc} mpicc.mpich -std=c11 -fPIC -shared -I"$root/runtime" -o mpich/libgradcc_mpi.so "$root/runtime/wire/mpi.c"
    LD_LIBRARY_PATH=mpich mpirun=mpirun.mpich mpi by-mpich 2 $run --out by-mpich
    says by-mpich 0 by-mpich.log 'ranks    2, started by MPI' 'sums by MPICH'
    cmp -s by-mpich/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors && ok by-mpich-bits || bad by-mpich-bits "other bits"
else
    skip by-mpich "MPICH is not installed (mpich, libmpich-dev)"
fi
if command -v torchrun > /dev/null; then
    timeout 100 torchrun --no-python --nproc-per-node 2 $run --out torch > torch.log 2>&1; codes=" $?"
    says torchrun 0 torch.log 'ranks    2, started by torchrun' 'with 2 of them on this host'
    cmp -s torch/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors && ok torchrun-bits || bad torchrun-bits "other bits"
    for signal in KILL STOP; do
        timeout 200 torchrun --no-python --nproc-per-node 2 $forever --out torch$signal > torch$signal.log 2>&1 & job=$!
        begun torch$signal
        worker=$(for p in $(pgrep -x gpt); do [ /proc/$p/cwd -ef . ] && grep -qzx 'RANK=1' /proc/$p/environ && echo "$p"; done)
        kill -$signal "$worker"
        [ $signal = KILL ] && killed=$worker
        [ $signal = STOP ] && { (sleep 15; kill -KILL "$worker" 2> /dev/null) & } # torchrun would wait for it
        wait $job; codes=" $?"
    done
    says torchrun-killed 1 torchKILL.log "Signal 9 (SIGKILL) received by PID $killed"
    says torchrun-stopped 1 torchSTOP.log "rank 1 (" "has given no sign of life" "traceback : rank 1 ("
else
    skip torchrun "torchrun is not installed (pip install torch)"
fi

# ---- two hosts: network namespaces with a link between them ----------------------------------------

net=gradcc$$
if ip netns add ${net}a 2> /dev/null && ip netns add ${net}b 2> /dev/null &&
   ip link add va$$ netns ${net}a type veth peer name vb$$ netns ${net}b 2> /dev/null; then
    ip -n ${net}a link set lo up; ip -n ${net}b link set lo up
    ip -n ${net}a addr add 10.213.7.1/24 dev va$$; ip -n ${net}a link set va$$ up
    ip -n ${net}b addr add 10.213.7.2/24 dev vb$$; ip -n ${net}b link set vb$$ up
    ip -n ${net}a addr add fd13::1/64 dev va$$ nodad; ip -n ${net}b addr add fd13::2/64 dev vb$$ nodad
    # hosts NAME PROGRAM...: rank 0 on one, rank 1 on the other
    hosts() {
        local name=$1; shift
        export MASTER_ADDR=10.213.7.1 MASTER_PORT=29500 WORLD_SIZE=2
        RANK=0 ip netns exec ${net}a timeout 60 "$@" --interface va$$ > $name.0.log 2>&1 & first=$!
        RANK=1 ip netns exec ${net}b timeout 60 "$@" --interface vb$$ > $name.1.log 2>&1 & second=$!
        unset MASTER_ADDR MASTER_PORT WORLD_SIZE
    }
    hosts two $run --out two
    wait $first; codes=" $?"; wait $second; codes="$codes $?"
    says two-hosts "0 0" two.0.log "they met at 10.213.7.1 port 29500; sums by Gloo " " over va$$"
    cmp -s two/step-00000020/model.safetensors gloo2/step-00000020/model.safetensors && ok two-hosts-bits || bad two-hosts-bits "other bits"
    # Through a directory, in IPv6 alone.
    ip -n ${net}a addr del 10.213.7.1/24 dev va$$
    pids=()
    for r in 1 0; do
        [ $r = 0 ] && host=${net}a || host=${net}b
        ip netns exec $host timeout 60 $run --out two6 --rank $r --world-size 2 --rendezvous ./dir > two6.$r.log 2>&1 & pids+=($!)
    done
    met two6 ./dir
    says two-hosts-directory "0 0" two6.0.log 'they met at fd13::1 port' 'sums by Gloo ' ' over fd13::1'
    ip -n ${net}a addr add 10.213.7.1/24 dev va$$
    hosts cut $forever --out cut
    begun cut
    ip -n ${net}b link set vb$$ down
    wait $first; codes=" $?"; wait $second; codes="$codes $?"
    says cut-0 "76 76" cut.0.log "error: rank 1 (" "has given no sign of life for"
    says cut-1 "76 76" cut.1.log "[rank 1] error: rank 0 (10.213.7.1 port 29500)"
else
    skip two-hosts "no network namespaces can be made here (needs root, and ip of iproute2)"
fi
ip netns del ${net}a 2> /dev/null; ip netns del ${net}b 2> /dev/null

# Hosts are told apart by their names.
if unshare --uts true 2> /dev/null; then
    port=$((port + 1)) pids=()
    for r in 0 1 2; do
        to="--out names --rank $r --world-size 3 --rendezvous localhost:$port"
        timeout 60 unshare --uts sh -c "hostname node$((r / 2)); exec $run $to" > names.$r.log 2>&1 &
        pids+=($!)
    done
    codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
    says hosts "0 0 0" names.0.log 'hosts    node0 (ranks 0 to 1), node1 (rank 2)'
else
    skip hosts "a host cannot be named here (needs root, and unshare)"
fi

# ---- what is wrong before the first step -----------------------------------------------------------

wrong half-rank 2 'RANK is set and WORLD_SIZE is not: which of how many ranks this is' RANK=0 --
wrong half-rank-1 2 'RANK is set and WORLD_SIZE is not: which of how many ranks this is' RANK=1 --
TORCHELASTIC_ERROR_FILE=$tmp/failure.json wrong for-torchrun 2 'RANK is set and WORLD_SIZE is not' RANK=0 --
grep -q '^{"message": {"message": "RANK is set and WORLD_SIZE is not: .*"extraInfo": {.*"timestamp": "[0-9]*"}}}$' failure.json &&
    ok error-file || bad error-file "$(cat failure.json)"
wrong half-world 2 'WORLD_SIZE is set and RANK is not' WORLD_SIZE=2 --
wrong half-master 2 'MASTER_ADDR is set and MASTER_PORT is not: the address of rank 0 is half known' MASTER_ADDR=localhost --
wrong no-master 2 '2 ranks, and nothing says where rank 0 is' RANK=0 WORLD_SIZE=2 --
wrong rank-too-high 2 'RANK is 2 and WORLD_SIZE is 2: ranks are numbered from 0 to 1' RANK=2 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 --
wrong rank-no-number 2 'RANK=a: wants a whole number from 0 to 4095' RANK=a WORLD_SIZE=2 --
wrong half-flags 2 '--world-size is given and --rank is not' -- --world-size 2
wrong no-address 2 'give --rendezvous HOST:PORT, of the host of rank 0 and a free port there' -- --world-size 2 --rank 0
wrong bad-address 2 '--rendezvous here: wants HOST:PORT, as in node1:29500' -- --world-size 2 --rank 0 --rendezvous here
wrong lone-local 2 '--local-rank goes with --rank and --world-size' -- --local-rank 1
wrong lone-address 2 '--rendezvous goes with --rank and --world-size, or variables of torchrun or SLURM' -- --rendezvous here:1
wrong against 2 '--rank is 0 and RANK is 1' RANK=1 WORLD_SIZE=2 -- --world-size 2 --rank 0 --rendezvous a:1
wrong half-slurm 2 'SLURM_PROCID is set, and neither MASTER_ADDR nor SLURM_STEP_NODELIST and SLURM_JOB_ID' SLURM_PROCID=0 SLURM_STEP_ID=0 SLURM_NTASKS=2 --
wrong slurm-size 2 'SLURM_PROCID and SLURM_STEP_ID are set, and SLURM_STEP_NUM_TASKS, SLURM_NTASKS and SLURM_NPROCS are not' \
    SLURM_PROCID=0 SLURM_STEP_ID=0 --
wrong slurm-rank 2 'SLURM_STEP_ID and SLURM_NTASKS are set and SLURM_PROCID is not' SLURM_NTASKS=2 SLURM_STEP_ID=0 --
wrong slurm-gloo 76 'at 127.0.0.1 ports 15019 to 15034 within' SLURM_STEP_NODELIST=127.0.0.1 SLURM_JOB_ID=3000018 SLURM_STEP_ID=0 SLURM_NTASKS=2 \
    SLURM_PROCID=1 PMI_RANK=1 PMI_SIZE=2 -- --comm gloo --rendezvous-timeout 1
mkdir nompi; echo no library > nompi/libgradcc_mpi.so
wrong slurm-no-mpi 76 'at 127.0.0.1 ports 15020 to 15035 within' LD_LIBRARY_PATH=nompi SLURM_STEP_NODELIST=127.0.0.1 SLURM_JOB_ID=3000019 SLURM_STEP_ID=0 \
    SLURM_NTASKS=2 SLURM_PROCID=1 PMIX_RANK=1 -- --rendezvous-timeout 1
wrong no-back-end 2 '--comm tin: wants auto, mpi or gloo' -- --world-size 2 --rank 0 --rendezvous a:1 --comm tin
fake='#include "wire/wire.h"
static const char *no(RtWireOpen *o) { return o->size > 1 ? "no luck" : 0; }
const RtWire rt_wire = { .abi = ABI, .name = "gloo", .open = no };'
for abi in RT_WIRE_ABI 99; do
    mkdir fake$abi
    echo "$fake" | ${CC:-gcc} -x c - -shared -fPIC -DABI=$abi -I"$root/runtime" -o fake$abi/libgradcc_gloo.so
done
wrong other-version 2 'started by flags, and the back end gloo cannot be loaded: it is of another version of gradcc' \
    LD_LIBRARY_PATH=fake99 -- --world-size 2 --rank 0 --rendezvous a:1
port=$((port + 1))
LD_LIBRARY_PATH=fakeRT_WIRE_ABI gloo no-start 2 ./gpt --data input.txt --dims T=24 --out none --batch 8
says no-start "76 76" no-start.1.log 'the back end gloo cannot start: no luck'
cp "$BUILD/libgradcc_mpi.so" fake99/ 2> /dev/null && wrong which-others 2 'there is MPI, for ranks that mpirun or srun starts here' \
    LD_LIBRARY_PATH=fake99 -- --world-size 2 --rank 0 --rendezvous a:1
wrong not-gloo 2 '--comm gloo: ranks started by MPI talk through MPI' OMPI_COMM_WORLD_SIZE=2 -- --comm gloo
wrong not-mpi 2 '--comm mpi: ranks started by flags talk through Gloo' -- --world-size 2 --rank 0 --rendezvous a:1 --comm mpi
wrong one-rank 2 '--comm tin: wants auto, mpi or gloo' -- --comm tin
wrong comm-dtype 2 '--comm-dtype fp8: wants fp32 or bf16' -- --world-size 2 --rank 0 --rendezvous localhost:$((port + 6)) \
    --rendezvous-timeout 1 --comm-dtype fp8
wrong comm-dtype-tree 2 '--comm-dtype bf16 rounds what ranks send, so --tree cannot give the same bits' -- --world-size 2 \
    --rank 0 --rendezvous a:1 --comm-dtype bf16 --tree 2
gloo interface 2 $run --out none --interface nowhere0 --rendezvous-timeout 2
for r in 0 1; do
    says interface-$r "2 2" interface.$r.log 'error: --interface nowhere0: this host has no interface of that name with an address'
done
port=$((port + 1)) pids=() codes=
for r in 0 2; do
    timeout 30 $run --out none --world-size 3 --rank $r --rendezvous localhost:$port --rendezvous-timeout 2 > missing.$r.log 2>&1 & pids+=($!)
done
for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
for r in 0 2; do says missing-$r "76 76" missing.$r.log 'error: 1 of 3 ranks did not come within 2 s' '  rank 1 MISSING'; done
wrong no-master-there 76 'MASTER_ADDR and MASTER_PORT name it' RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost \
    MASTER_PORT=$((port + 9)) -- --rendezvous-timeout 1
wrong no-first 76 'is that its address? --rendezvous names it; --rendezvous-timeout sets how long to wait' -- --world-size 2 --rank 1 --rendezvous localhost:$((port + 3)) --rendezvous-timeout 1
python3 -c "
import socket, time
s = socket.socket(); s.bind(('', 0)); s.listen()
print(s.getsockname()[1], flush=True); time.sleep(60)" > taken.port & taken=$!
while [ ! -s taken.port ]; do sleep 0.1; done
wrong taken 2 "rank 0 cannot listen at port $(cat taken.port): Address already in use" -- --world-size 2 --rank 0 --rendezvous localhost:$(cat taken.port)
wrong taken-1 76 "rank 1 found no rank 0 at localhost port $(cat taken.port) within 1 s: Connection timed out" -- --world-size 2 --rank 1 \
    --rendezvous localhost:$(cat taken.port) --rendezvous-timeout 1
kill $taken; wait $taken 2> /dev/null
port=$((port + 5))
gloo batch 2 ./gpt --data input.txt --dims T=24 --out none --batch 9
says batch "2 2" batch.1.log "batch = 9 does not divide into 1 micro-step on each of 2 ranks" "batch 8 or 10"
gloo few 2 ./gpt --data input.txt --dims T=24 --out none --batch 1
says few "2 2" few.0.log "hint: batch 2"
gloo wide 2 $run --out none --comm-dtype bf16
for r in 0 1; do says wide-$r "2 2" wide.$r.log '--comm-dtype bf16 is for gradients of fp32, and those of chargpt are fp64'; done

# Ranks that do not come are named before those that have.
port=$((port + 1)) pids=()
for r in 30 0; do
    timeout 30 ./gpt --data input.txt --dims T=24 --out none --rank $r --world-size 40 --rendezvous localhost:$port \
        --rendezvous-timeout 2 > missing-many.$r.log 2>&1 & pids+=($!)
done
codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says missing-many "76 76" missing-many.30.log '38 of 40 ranks did not come within 2 s' '  rank 30   '
[ "$(grep -c . missing-many.30.log)$(sed -n 2,3p missing-many.30.log | tr -d '\n')" = "6  rank 1 to 29 MISSING  rank 31 to 39 MISSING" ] &&
    ok missing-first || bad missing-first "$(cat missing-many.30.log)"
# Two processes are rank 0: at a port of flags, and where the port behind it would be free.
for agent in False True; do
    port=$((port + 20)) pids=()
    for r in 0 0 1; do
        env TORCHELASTIC_USE_AGENT_STORE=$agent RANK=$r WORLD_SIZE=3 MASTER_ADDR=localhost MASTER_PORT=$port timeout 60 \
            $run --out none --rendezvous-timeout 30 > two-first$agent.${#pids[@]}.log 2>&1 & pids+=($!)
    done
    codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
    for r in 0 1 2; do says two-first$agent-$r "2 2 2" two-first$agent.$r.log 'two processes have the rank 0: process '; done
done
port=$((port + 20))
agent="TORCHELASTIC_USE_AGENT_STORE=True WORLD_SIZE=2 MASTER_ADDR=localhost"
wrong ports 76 "rank 1 found no rank 0 at localhost ports $((port + 1)) to $((port + 16)) within 1 s" $agent RANK=1 \
    MASTER_PORT=$port -- --rendezvous-timeout 1
for r in 0 1; do
    wrong last-port-$r 2 'rank 0 needs a port behind 65535, and there is none' $agent RANK=$r MASTER_PORT=65535 --
done
# A host with an address that does not answer, before the one that does.
echo '#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <string.h>
int getaddrinfo(const char *host, const char *port, const struct addrinfo *h, struct addrinfo **to) {
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) = dlsym(RTLD_NEXT, "getaddrinfo");
    if (!host || strcmp(host, "two.addresses")) return real(host, port, h, to);
    int error = real("127.0.0.2", port, h, to);
    return error ? error : real("127.0.0.1", port, h, &(*to)->ai_next);
}' | ${CC:-gcc} -x c - -shared -fPIC -o libtwo.so -ldl
port=$((port + 1))
python3 -c "
import socket, time
s = socket.socket(); s.bind(('127.0.0.2', $port)); s.listen(0)
for i in range(3):
    c = socket.socket(); c.setblocking(False); c.connect_ex(('127.0.0.2', $port)); globals()['c%d' % i] = c
time.sleep(60)" & silent=$!
sleep 0.3
pids=()
for r in 0 1; do
    host=127.0.0.1; [ $r = 1 ] && host=two.addresses
    env LD_PRELOAD=./libtwo.so timeout 60 $run --out addresses --rank $r --world-size 2 --rendezvous $host:$port --interface lo \
        > addresses.$r.log 2>&1 & pids+=($!)
done
codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
kill $silent; wait $silent 2> /dev/null
says addresses "0 0" addresses.0.log 'done     step 20'
# More connections than this process may have.
port=$((port + 1))
python3 -c "
import socket, time
held = []
while len(held) < 40:
    try: held.append(socket.create_connection(('localhost', $port)))
    except OSError: time.sleep(0.1)
time.sleep(60)" & many=$!
(ulimit -n 30; exec timeout 30 ./gpt --data input.txt --dims T=24 --out none --rank 0 --world-size 2 --rendezvous localhost:$port) \
    > full.log 2>&1; codes=" $?"
kill $many; wait $many 2> /dev/null
says full 2 full.log 'rank 0 has no descriptors left for connections of 2 ranks: Too many open files' '3 for each rank and 100 (ulimit -Hn)'

# differ NAME TEXT OPTIONS-OF-1: rank 0 and rank 1 do not agree
differ() {
    local name=$1 text=$2 a b; shift 2
    port=$((port + 1))
    ${zero:-./gpt} --data input.txt --dims T=24 --out none --batch 8 --rank 0 --world-size 2 --rendezvous localhost:$port \
        --rendezvous-timeout 30 > $name.0.log 2>&1 & a=$!
    "$@" --dims T=24 --out none --batch 8 --rank 1 --world-size ${world:-2} --rendezvous localhost:$port \
        --rendezvous-timeout 30 > $name.1.log 2>&1 & b=$!
    wait $a; codes=" $?"; wait $b; codes="$codes $?"
    says $name "2 2" $name.0.log "$text"
    grep -qF -- "$text" $name.1.log || bad $name-both "rank 1 says: $(cat $name.1.log)"
}
differ other-task 'ranks were started to do different things:' ./gpt --data input.txt --dry-run
grep -q 'rank 1    --dry-run, by processors' other-task.0.log && ok other-task-table || bad other-task-table "$(cat other-task.0.log)"
port=$((port + 1)) pids=()
for r in 0 1; do
    env RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port timeout 30 ./gpt generate --checkpoint one > text.$r.log 2>&1 &
    pids+=($!)
done
codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
says generate "2 2" text.0.log 'generate writes one text, and was started by torchrun on 2 ranks' 'hint: start it alone'
./gpt --comm-check > check-one.log 2>&1; codes=" $?"
says check-one 0 check-one.log 'comm-check: one rank, which exchanges nothing: a launcher (mpirun, torchrun) or --rank starts more'
./gpt --help > help.log; codes=" $?"
says help 0 help.log 'several ranks: mpirun -n 4 ./gpt' '76 a rank was lost or late'
(cat input.txt; echo more) > other.txt
"$GRADCC" "$root/models/chargpt.model" --precision=fp64 $sizes -D rate=0.1 -o other >&2
differ other-program 'ranks would not train the same model:' ./other --data input.txt
differ other-settings '"lr": 0.5' ./gpt --data input.txt --lr 0.5
differ other-seed '"seed": 7' ./gpt --data input.txt --seed 7
differ other-data 'data: ' ./gpt --data other.txt
differ other-products 'RT_MATMUL: plain' env RT_MATMUL=plain ./gpt --data input.txt
differ other-interface '--interface nowhere0: this host has no interface of that name' ./gpt --data input.txt --interface nowhere0
differ other-gloo 'sums by: Gloo 9.9.9' faulty version ./gpt --data input.txt
if nm -D tree | grep -q ' U dnnl_version'; then
    echo 'const int *dnnl_version(void) { static const int v[] = { 9, 9, 9 }; return v; }' |
        ${CC:-gcc} -x c - -shared -fPIC -o libversion.so
    zero=./tree differ other-onednn 'products by: oneDNN 9.9.9' env LD_PRELOAD=./libversion.so ./tree --data input.txt
fi
# Folders with the same name, and other weights in them.
for r in 0 1; do
    mkdir own$r
    ./gpt --data input.txt --dims T=24 --batch 8 --steps 2 --eval 0 --save 0 --warmup 0 --seed $r --out own$r/run > own.log 2>&1
done
# rank_in NAME TEXT OPTION...: as differ, each rank in its own folder
rank_in() {
    local name=$1 text=$2 r pids=(); shift 2
    port=$((port + 1)) codes=
    for r in 0 1; do
        (cd own$r && exec timeout 60 ../gpt "$@" --seed 1 --rank $r --world-size 2 --rendezvous localhost:$port) > $name.$r.log 2>&1 &
        pids+=($!)
    done
    for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
    for r in 0 1; do says $name-$r "2 2" $name.$r.log "$text" '  rank 0    parameters: ' '  rank 1    parameters: '; done
}
rank_in other-weights 'ranks would not train the same model:' --data ../input.txt --resume run --steps 4
rank_in other-weights-eval 'ranks would not evaluate the same model:' eval --data ../input.txt --out run
gloo eval-ranks 2 ./gpt eval --data input.txt --out gloo2
./gpt eval --data input.txt --out gloo2 > eval.log 2>&1
says eval-ranks "0 0" eval-ranks.0.log "$(grep '^loss ' eval.log)"
world=3 differ other-world 'was told of 3 ranks, and rank 0 of 2' ./gpt --data input.txt
port=$((port + 1)) pids=()
for r in 0 1 1; do
    ./gpt --data input.txt --dims T=24 --out none --batch 9 --rank $r --world-size 3 --rendezvous localhost:$port \
        --rendezvous-timeout 30 > same-rank.${#pids[@]}.log 2>&1 &
    pids+=($!)
done
codes=; for r in "${pids[@]}"; do wait "$r"; codes="$codes $?"; done
for r in 0 1 2; do says same-rank-$r "2 2 2" same-rank.$r.log 'two processes have the rank 1: process '; done
