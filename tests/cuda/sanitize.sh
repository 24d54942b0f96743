#!/usr/bin/env bash
# compute-sanitizer (memcheck, racecheck, initcheck) on two small models, or, rehearsing, the same
# programs in the simulator under other orders of threads and streams.
# Usage: sanitize.sh cuda|simulator; the exit code is 0 when nothing was found.
set -u
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
export RT_CUDA_TUNE=off
target=${1:-cuda} work=$BUILD/device/sanitize failed=0
PATH=$PATH:/usr/local/cuda/bin:/usr/local/cuda/compute-sanitizer
rm -rf "$work"; mkdir -p "$work"
head -c 20000 "$root/grammar/LANGUAGE.md" | tr -c 'a-z \n' ' ' > "$work/input.txt"
cp "$root/models/digits.csv.gz" "$work"

# build NAME MODEL OPTIONS...
build() {
    local name=$1 model=$2; shift 2
    if [ "$target" = simulator ]; then
        "$GRADCC" --target=cuda --emit=cuda "$@" "$root/models/$model" -o "$work/$name.cu" &&
            "$root/tests/cudasim/cc.sh" --runtime -o "$work/$name" "$work/$name.cu"
    else
        "$GRADCC" --target=cuda --cflags=-lineinfo "$@" "$root/models/$model" -o "$work/$name"
    fi
}

run() {
    local name=$1; shift
    (cd "$work" && "./$name" --steps 2 --eval 2 --save 0 --out none --batch 8 --accumulate 2 "$@") \
        > "$work/$name.out" 2>&1
}

# check NAME ARGUMENTS...
check() {
    local name=$1 tool order rc; shift
    if [ "$target" = simulator ]; then
        for order in forward:late reverse:early 7:7; do
            if CUDASIM_ORDER=${order%:*} CUDASIM_STREAMS=${order#*:} run "$name" "$@"; then
                echo "$name, order $order: nothing found"
            else echo "$name, order $order: exit code $?"; tail -n 15 "$work/$name.out"; failed=1; fi
        done
        return
    fi
    for tool in memcheck racecheck initcheck; do
        rc=0
        (cd "$work" && compute-sanitizer --tool $tool --error-exitcode 9 "./$name" --steps 2 --eval 2 --save 0 \
            --out none --batch 8 --accumulate 2 "$@") > "$work/$name.$tool.out" 2>&1 || rc=$?
        echo "$name, $tool: exit code $rc, $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' "$work/$name.$tool.out" | tail -n 1)"
        [ $rc -eq 0 ] || { failed=1; tail -n 25 "$work/$name.$tool.out"; }
    done
}

if [ "$target" != simulator ] && ! command -v compute-sanitizer > /dev/null; then
    echo "compute-sanitizer is not here"; exit 1
fi
build digits digits_mlp.model || exit 1
build gpt chargpt.model --precision=bf16 -D V=28 -D C=128 -D H=2 -D L=2 || exit 1
check digits --data digits.csv.gz
check gpt --data input.txt --dims T=48
exit $failed
