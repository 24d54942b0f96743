#!/usr/bin/env bash
# compute-sanitizer (memcheck with the library's products, racecheck and initcheck with our own) on
# two small models, or, rehearsing, the same programs in the simulator under other orders of threads
# and streams. A tool that is not here or refuses the device is skipped, with what it says.
# Usage: sanitize.sh cuda|simulator [build]; the exit code is 0 when nothing was found. build: only
# compiles the programs, which are found then while they are newer than the runtime.
set -u
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
export RT_CUDA_TUNE=off RT_CUDA_CACHE=none OMP_WAIT_POLICY=passive
target=${1:-cuda} work=$BUILD/device/sanitize
refusal="device not supported|LibraryNotLoaded|failed to initialize"
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin:${CUDA_HOME:-/usr/local/cuda}/compute-sanitizer
mkdir -p "$work"
head -c 20000 "$root/grammar/LANGUAGE.md" | tr -c 'a-z \n' ' ' > "$work/input.txt"
cp "$root/models/digits.csv.gz" "$work"

# build NAME MODEL OPTIONS...
build() {
    local name=$1 model=$2; shift 2
    if [ "$target" = simulator ]; then
        "$GRADCC" --target=cuda --emit=cuda "$@" "$root/models/$model" -o "$work/$name.cu" &&
            "$root/tests/cudasim/cc.sh" --runtime -o "$work/$name" "$work/$name.cu"
    elif [ ! "$work/$name" -nt "$BUILD/libgradcc_rt_cuda.a" ]; then
        "$GRADCC" --target=cuda --cflags=-lineinfo "$@" "$root/models/$model" -o "$work/$name"
    fi
}

# run NAME LOG COMMAND... -- ARGUMENTS...: the program, by this command
run() {
    local name=$1 log=$2 command=(); shift 2
    while [ "$1" != -- ]; do command+=("$1"); shift; done
    (cd "$work" && "${command[@]}" "./$name" --steps 2 --eval 2 --save 0 --out none --batch 8 --accumulate 2 \
        "${@:2}") > "$log" 2>&1
}

# order NAME ARGUMENTS...: in the simulator
order() {
    local name=$1 order rc wrong=0; shift
    for order in forward:late reverse:early 7:7; do
        rc=0
        run "$name" "$work/$name.out" env CUDASIM_ORDER=${order%:*} CUDASIM_STREAMS=${order#*:} -- "$@" || rc=$?
        if [ $rc -eq 0 ]; then echo "$name, order $order: nothing found"
        else echo "$name, order $order: exit code $rc"; tail -n 15 "$work/$name.out"; wrong=1; fi
    done
    return $wrong
}

# check TOOL NAME ARGUMENTS...: on a device
check() {
    local tool=$1 name=$2 rc=0 plain=(RT_MATMUL=plain) log; shift 2
    [ "$tool" = memcheck ] && plain=()
    log=$work/$name.$tool.out
    run "$name" "$log" env "${plain[@]}" timeout 100 compute-sanitizer --tool "$tool" --error-exitcode 9 -- "$@" || rc=$?
    if grep -qiE "$refusal" "$log"; then
        echo "skip $name, $tool: $(grep -m1 -iE "$refusal" "$log")"
        return
    fi
    echo "$name, $tool: exit code $rc, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$log" | tail -n 1)"
    [ $rc -eq 0 ] || { tail -n 25 "$log"; return 1; }
}

build digits digits_mlp.model & one=$!
build gpt chargpt.model --precision=bf16 -D V=28 -D C=128 -D H=2 -D L=2 & two=$!
wait $one && wait $two || exit 1
[ "${2:-}" = build ] && exit
digits="--data digits.csv.gz" gpt="--data input.txt --dims T=48" failed=0 pids=()
# shellcheck disable=SC2086
if [ "$target" = simulator ]; then
    order digits $digits || failed=1
    order gpt $gpt || failed=1
elif command -v compute-sanitizer > /dev/null; then
    for tool in memcheck racecheck initcheck; do # together: a GPU has room for all of them
        check $tool digits $digits & pids+=($!)
        check $tool gpt $gpt & pids+=($!)
    done
    for pid in "${pids[@]}"; do wait "$pid" || failed=1; done
else
    echo "skip: compute-sanitizer is not here"
fi
exit $failed
