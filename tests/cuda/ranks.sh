#!/usr/bin/env bash
# Several ranks of CUDA programs, processes of the simulator's NCCL: that they train the same model as
# one, whatever runs when; that they end together with one message when something is wrong.
# Usage: ranks.sh (from run.sh); prints ok and not ok lines.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
tmp=$(mktemp -d)
trap 'kill -KILL $(jobs -p) 2> /dev/null; rm -rf "$tmp"' EXIT
cd "$tmp" || exit 1
export CI=1 OMP_NUM_THREADS=1 RT_CUDA_CACHE=none CUDASIM_DEVICES=4
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT

ok() { echo "ok cuda/ranks/$1"; }
bad() { echo "not ok cuda/ranks/$1: $2"; }
port=$((26500 + $$ % 5500)) # below those that the system gives

# build NAME MODEL OPTION...: NAME.gpu
build() {
    local name=$1 model=$2; shift 2
    "$GRADCC" --target=cuda --emit=cuda "$@" "$root/models/$model.model" -o "$name.cu" >&2 &&
        "$root/tests/cudasim/cc.sh" --runtime -w -rdynamic -o "$name.gpu" "$name.cu" >&2 && return
    bad "$name" "does not compile"
    return 1
}
# ranks NAME N PROGRAM OPTION...: their output in NAME.0.log, ..., exit codes in codes; one=VARIABLE=VALUE
# is for rank 1 alone
ranks() {
    local name=$1 n=$2 r pids=; shift 2
    port=$((port + 1)) codes=
    for ((r = 0; r < n; r++)); do
        own=X=; [ $r = 1 ] && own=${one:-X=}
        env "$own" timeout 150 "$@" --rank $r --world-size "$n" --rendezvous localhost:$port > "$name.$r.log" 2>&1 &
        pids="$pids $!"
    done
    for r in $pids; do wait "$r"; codes="$codes $?"; done
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
# same NAME FOLDER FOLDER [BOUND]: parameters after the last step agree to 1e-12
same() {
    local found name=$1; shift
    found=$(PYTHONPATH=$root/tests python3 "$root/tests/ranks/same.py" "$@" 2>&1) && ok "$name" || bad "$name" "$found"
}
# bits NAME FOLDER FOLDER: byte for byte
bits() {
    cmp -s "$2"/step-*/model.safetensors "$3"/step-*/model.safetensors && ok "$1" || bad "$1" "other bits"
}

# ---- the same model: 20 updates, fp64 ------------------------------------------------------------

head -c 20000 "$root/grammar/LANGUAGE.md" | tr -c 'a-z \n' ' ' > input.txt
run="--data input.txt --steps 20 --batch 12 --eval 0 --save 20 --dims T=8 --seed 3"
build chargpt chargpt --precision=fp64 -D V=28 -D C=16 -D H=1 -D L=2 -D Tmax=8 -D rate=0.1 || exit 0
./chargpt.gpu $run --out one --accumulate 4 > one.log 2>&1 || bad one "$(tail -n 1 one.log)"
for n in 2 3 4; do
    ranks on$n $n ./chargpt.gpu $run --out on$n
    says on$n "$(printf '0 %.0s' $(seq $n) | sed 's/ $//')" on$n.0.log "ranks    $n, started by flags" 'sums by NCCL 2.28.9' \
        "batch    12 samples per update = $n ranks with 1 micro-step of $((12 / n))" 'one allocation, as planned' \
        'bytes allocated, as planned' 'sums of gradients took'
    same on$n-parameters one on$n
done
grep -q 'cuda:0' on2.0.log && ok devices || bad devices "$(grep device on2.0.log)"

# GPT-2, small: tokens of shards.
python3 -c "
import array
text = open('input.txt', 'rb').read()
for name, part in (('train.bin', text[:9000]), ('val.bin', text[9000:9200])):
    with open(name, 'wb') as out:
        array.array('i', [20240520, 1, len(part)] + [0] * 253).tofile(out)
        array.array('H', [c % 32 for c in part]).tofile(out)"
small="--data train.bin --val-data val.bin --steps 20 --batch 12 --eval 0 --save 20 --dims T=8"
if build gpt2 gpt2 --precision=fp64 -D V=32 -D C=8 -D H=1 -D L=2 -D Tmax=8; then
    ./gpt2.gpu $small --out gpt2-1 --accumulate 4 > gpt2.log 2>&1 || bad gpt2 "$(tail -n 1 gpt2.log)"
    for n in 2 3 4; do
        ranks gpt2-$n $n ./gpt2.gpu $small --out gpt2-$n --accumulate 1
        says gpt2-$n "$(printf '0 %.0s' $(seq $n) | sed 's/ $//')" gpt2-$n.0.log "$n ranks with 1 micro-step of $((12 / n))"
        same gpt2-$n-parameters gpt2-1 gpt2-$n
    done
fi

# A checkpoint goes on with another number of ranks, and on processors.
cp -r on2 on2-3; cp -r on2 on2-1; cp -r on2 on2-cpu
more="$run --steps 24 --resume auto"
"$GRADCC" "$root/models/chargpt.model" --precision=fp64 -D V=28 -D C=16 -D H=1 -D L=2 -D Tmax=8 -D rate=0.1 -o chargpt.cpu
ranks go3 3 ./chargpt.gpu $more --out on2-3
says resume-3 "0 0 0" go3.0.log 'resume   on2-3/step-00000020: step 20'
./chargpt.gpu $more --out on2-1 > go1.log 2>&1 || bad resume-1 "$(tail -n 1 go1.log)"
same resume on2-1 on2-3
if [ -e "$BUILD/libgradcc_gloo.so" ]; then
    ranks gocpu 2 ./chargpt.cpu $more --out on2-cpu
    says resume-cpu "0 0" gocpu.0.log 'sums by Gloo'
    same resume-cpu-parameters on2-1 on2-cpu 1e-9
fi

# ---- the same bits, whatever runs when ----------------------------------------------------------

# Several sums a step, micro-steps of which only the last one sums, graphs.
digits="--data $root/models/digits.csv.gz --batch 16 --eval 0 --steps 6 --save 6 --accumulate 2 --bucket 0.02"
build digits digits_mlp || exit 0
ranks plain 2 ./digits.gpu $digits --out plain
says plain "0 0" plain.0.log 'sums     of gradients in 2 parts'
for way in RT_CUDA_GRAPH=0 RT_CUDA_SYNC=1 CUDASIM_STREAMS=early CUDASIM_STREAMS=5 CUDASIM_ORDER=reverse; do
    export "${way?}"
    ranks way 2 ./digits.gpu $digits --out way-$way
    unset "${way%%=*}"
    says $way "0 0" way.0.log
    bits $way-bits plain way-$way
done
# The simulator's communicators answer "in progress", as NCCL's do; where a user has it so, they block.
export NCCL_COMM_BLOCKING=1
ranks blocking 2 ./digits.gpu $digits --out blocking
unset NCCL_COMM_BLOCKING
says blocking "0 0" blocking.0.log 'NCCL_COMM_BLOCKING=1'
bits blocking-bits plain blocking
# All ranks record graphs, or none: the simulator reports a sum that is in a graph of one alone.
for own in RT_CUDA_GRAPH=0 RT_CUDA_PROFILE=$tmp/profile.txt; do
    one=$own ranks graphs 2 ./digits.gpu $digits --out graphs-${own%%=*}
    says one-${own%%=*} "0 0" graphs.0.log
    bits one-${own%%=*}-bits plain graphs-${own%%=*}
done
ranks narrow 3 ./digits.gpu $digits --batch 12 --out narrow --comm-dtype bf16
says bf16 "0 0 0" narrow.0.log
ranks wide 3 ./digits.gpu $digits --batch 12 --out wide
same bf16-near wide narrow 2e-3
cmp -s wide/step-*/model.safetensors narrow/step-*/model.safetensors && bad bf16-bits "nothing was rounded" || ok bf16-bits

# --tree 4: 1, 2 and 4 ranks.
build tree chargpt -D V=28 -D C=16 -D H=1 -D L=1 -D Tmax=8 -D rate=0.1 || exit 0
run_tree="--data input.txt --steps 4 --batch 16 --accumulate 2 --eval 0 --save 4 --dims T=8 --tree 4"
./tree.gpu $run_tree --out tree1 > tree1.log 2>&1 || bad tree1 "$(tail -n 1 tree1.log)"
for n in 2 4; do
    ranks tree$n $n ./tree.gpu $run_tree --out tree$n
    says tree$n "$(printf '0 %.0s' $(seq $n) | sed 's/ $//')" tree$n.0.log 'one allocation, as planned'
    bits tree$n-bits tree1 tree$n
done

# ---- each kind of exchange ----------------------------------------------------------------------

ranks check 4 ./digits.gpu --comm-check
for r in 0 1 2 3; do
    says check-$r "0 0 0 0" check.$r.log "comm-check rank $r: all-reduce                   6" \
        "comm-check rank $r: all-gather, sum              6" "comm-check rank $r: broadcast                    42" \
        "comm-check rank $r: reduce-scatter               $((6 + 400 * r))" \
        "comm-check rank $r: send and receive             $(((r + 3) % 4))" "comm-check rank $r: a large sum                  1"
    grep -q WRONG check.$r.log && bad check-wrong-$r "$(grep WRONG check.$r.log)"
done
if [ -e "$BUILD/libgradcc_mpi.so" ] && command -v mpirun > /dev/null; then # MPI tells the ranks, NCCL sums
    LD_LIBRARY_PATH=$BUILD timeout 100 mpirun --oversubscribe -n 2 ./digits.gpu $digits --out mpi > mpi.log 2>&1; codes=" $?"
    says mpirun 0 mpi.log 'ranks    2, started by MPI' 'sums by NCCL'
    bits mpirun-bits plain mpi
fi

# ---- the end of one is the end of all -----------------------------------------------------------

$CC -shared -fPIC -w -o odd.so "$here/odd_nccl.c" || bad odd "does not compile"
forever="./digits.gpu --data $root/models/digits.csv.gz --batch 16 --eval 0 --save 0 --steps 100000 --comm-timeout 4"
# lost NAME SIGNAL RANK CODE TEXT
lost() {
    local name=$1 signal=$2 who=$3 code=$4 text=$5 r rc i pids=()
    port=$((port + 1))
    for r in 0 1; do
        $forever --out $name --rank $r --world-size 2 --rendezvous localhost:$port > $name.$r.log 2>&1 &
        pids[r]=$!
    done
    for ((i = 0; i < 300; i++)); do
        [ "$(grep -c '"train/loss"' $name/metrics.jsonl 2> /dev/null)" -gt 3 ] 2> /dev/null && break
        sleep 0.1
    done
    kill -"$signal" "${pids[who]}"
    for r in 0 1; do
        [ $r = "$who" ] && [ "$signal" = STOP ] && continue
        timeout 30 tail --pid="${pids[r]}" -f /dev/null || { bad $name "rank $r goes on"; kill -KILL "${pids[r]}"; }
        wait "${pids[r]}" 2> /dev/null; rc=$?
        [ $r = "$who" ] && [ "$signal" = KILL ] && continue
        if [ $rc = "$code" ] && { [ -z "$text" ] || grep -qE "$text" $name.$r.log; } &&
           { [ $code != 76 ] || grep -q "^rank $r was in exchange [0-9]* then: " $name.$r.log; }; then ok $name-$r
        else bad $name-$r "exit code $rc: $(tail -n 2 $name.$r.log)"; fi
    done
    kill -KILL "${pids[who]}" 2> /dev/null; wait "${pids[who]}" 2> /dev/null
}
lost killed KILL 1 76 'rank 1 \(.*, process [0-9]*\) is gone: it ended, or its host was cut off'
lost stopped STOP 1 76 'rank 1 \(.*\) has given no sign of life for [45] s'
lost terminated TERM 1 75 ''
[ -e terminated/step-*/manifest.json ] && ok terminated-saved || bad terminated-saved "$(cat terminated.0.log)"
ODD_NCCL=sleep:20 one=RT_NCCL=$tmp/odd.so ranks late 2 $forever --out none
says late "76 76" late.0.log 'rank 1 (' ' is at exchange' 'has waited for 4 s' 'echo verbose status | nc localhost 28028'
one=CUDASIM_FAIL=ncclAllReduce:18:ncclSystemError ranks failing 2 $forever --out none
says failing "76 76" failing.0.log 'the sum of gradients 1 of 1, fc2.bias to fc1.weight (digits_mlp.model:' \
    'failed: ncclAllReduce: unhandled system error' 'hint: NCCL_DEBUG=WARN tells more; in a container --shm-size=1g'
ODD_NCCL=broken:200 one=RT_NCCL=$tmp/odd.so ranks async 2 $forever --out none
says async "76 76" async.0.log 'failed: an exchange that was queued: internal error'
# A call that never comes back, at the start and at the end.
ODD_NCCL=stuck:ncclCommInitRankConfig one=RT_NCCL=$tmp/odd.so ranks stuck 2 $forever --rendezvous-timeout 4 --out none
says stuck-start "76 76" stuck.0.log 'the start of NCCL has waited for 4 s'
ODD_NCCL=stuck:ncclCommFinalize one=RT_NCCL=$tmp/odd.so ranks stuck-end 2 $forever --steps 2 --out none
says stuck-end-0 "76 76" stuck-end.0.log 'the end of NCCL has waited for 4 s'
says stuck-end-1 "76 76" stuck-end.1.log 'the end of NCCL has waited for 4 s'
ranks nonfinite 2 ./digits.gpu $digits --out nonfinite --lr 1e30
says nonfinite "1 1" nonfinite.1.log '[rank 1] error: rank 0 (' 'saved in nonfinite/crash'

# ---- what is wrong before the first step ----------------------------------------------------------

# wrong NAME CODES TEXT OPTION...: on both ranks
wrong() {
    local name=$1 wanted=$2 text=$3; shift 3
    ranks $name 2 ./digits.gpu $digits --out none "$@"
    says $name-0 "$wanted" $name.0.log "$text"
    says $name-1 "$wanted" $name.1.log "$text"
}
wrong one-gpu '2 2' 'ranks 0 and 1 are on one GPU, PCI 0000:01:00.0' --device 0
grep -q 'hint: as many ranks on a host as GPUs; --local-rank, --device and CUDA_VISIBLE_DEVICES say which has which' one-gpu.0.log &&
    ok one-gpu-hint || bad one-gpu-hint "$(cat one-gpu.0.log)"
CUDASIM_DEVICES=2 wrong too-many '2 2' 'this is rank 5 of its host, and the program sees 2 GPUs' --local-rank 5
"$GRADCC" "$root/models/digits_mlp.model" -o digits.cpu
port=$((port + 1))
timeout 60 ./digits.gpu $digits --out none --rank 0 --world-size 2 --rendezvous localhost:$port > mixed.0.log 2>&1 & first=$!
timeout 60 ./digits.cpu $digits --out none --rank 1 --world-size 2 --rendezvous localhost:$port > mixed.1.log 2>&1; codes=" $?"
wait $first; codes=" $?$codes"
says mixed "2 2" mixed.1.log 'ranks were started to do different things:' 'rank 0    train, by GPUs' 'rank 1    train, by processors'
wrong gloo '2 2' '--comm gloo: wants auto or nccl: this program is for GPUs' --comm gloo
RT_NCCL=/none wrong missing '1 1' 'NCCL, which sums over GPUs, is missing: '
echo 'int ncclGetVersion(int *v) { *v = 22809; return 0; }' | $CC -shared -fPIC -x c - -o empty.so
RT_NCCL=$tmp/empty.so wrong empty '1 1' 'NCCL is too old: it has no ncclGetUniqueId'
export RT_NCCL=$tmp/odd.so
ODD_NCCL=old wrong old '1 1' 'NCCL is too old: version 2.14.3, wanted 2.18'
ODD_NCCL=nothing wrong no-sum '1 1' 'NCCL adds up 1 to 2 to '
unset RT_NCCL
ODD_NCCL=other one=RT_NCCL=$tmp/odd.so wrong versions '2 2' 'rank 0 has NCCL 2.28.9, rank 1 2.30.7'
CUDASIM_FAIL=ncclCommInitRank:1:ncclInvalidUsage wrong no-start '76 76' 'the start of NCCL failed: ncclCommInitRankConfig: invalid usage'
NCCL_DEBUG=WARN ranks variables 2 ./digits.gpu $digits --steps 1 --out none
says variables "0 0" variables.0.log 'sums by NCCL 2.28.9, NCCL_DEBUG=WARN'
one=NCCL_SOCKET_IFNAME=eth1 ranks own-variable 2 ./digits.gpu $digits --steps 1 --out none
says own-variable "0 0" own-variable.0.log 'sums by NCCL 2.28.9'
one=NCCL_ALGO=Ring ranks other-variable 2 ./digits.gpu $digits --steps 1 --out none
says other-variable "2 2" other-variable.0.log 'NCCL_ALGO: unset' 'NCCL_ALGO: Ring'
export RANK=0 WORLD_SIZE=1 LOCAL_RANK=2
./digits.gpu $digits --steps 1 --out none > alone.log 2>&1; codes=" $?"
unset RANK WORLD_SIZE LOCAL_RANK
says alone 0 alone.log 'device   cuda:0'
