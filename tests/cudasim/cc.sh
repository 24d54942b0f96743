#!/usr/bin/env bash
# Compiles programs for the simulator: cc.sh [g++ options] -o PROGRAM FILE.cu|.cc|.c|.o|.a ...
# -c -o FILE.o FILE.cu compiles only. Honours BUILD (objects of the simulator lie in $BUILD/cudasim,
# made once, under a lock), CXX, CC. .cu files are checked (see sim.h), other files are plain.
# --runtime: links runtime/cuda too, made for the simulator, and the C that `make` built of the
# runtime: so make comes first. --help: this text.
set -eu
if [ "${1:-}" = --help ]; then sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0; fi
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
BUILD=${BUILD:-$root/build}
CXX=${CXX:-g++}
sim=$BUILD/cudasim
common=(-g -O1 -ffp-contract=off -fno-pie -Wall -Wextra -Wno-unknown-pragmas)
include=(-DRT_SIMULATOR -I"$here/include" -I"$root/runtime" -I"$root/runtime/cuda")
# Structures are loaded and stored whole, as the device does with its vectors (no-tree-sra).
# Copies and fills that the compiler writes are calls, so that they are checked.
strings=()
[ "$(uname -m)" = x86_64 ] &&
    strings=(-mmemcpy-strategy=libcall:-1:noalign -mmemset-strategy=libcall:-1:noalign)
checked=(-std=c++20 -fsanitize=thread,alignment,bounds-strict
         --param=tsan-instrument-func-entry-exit=0 --param=tsan-distinguish-volatile=1
         "${strings[@]}" -fno-tree-sra -fno-ipa-sra -fno-ipa-reference -fno-exceptions -Wno-tsan
         -Wno-unused-function -Wno-unused-parameter -Wno-attributes
         -Wno-missing-field-initializers)

# compile OBJECT SOURCE HEADER: unless the object is newer than both; two at a time
compile() {
    [ "$1" -nt "$2" ] && [ "$1" -nt "$3" ] && return
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    case $2 in
    *.cu) checked "$1" "$2" & ;;
    *.cc) "$CXX" -std=c++20 -O2 "${common[@]}" -Wshadow -I"$here/include" -I"$root/runtime" -c \
              -o "$1" "$2" & ;;
    esac
    started+=($!)
}

# checked OBJECT SOURCE [OPTIONS]: memcpy and its like are checked under names of the simulator
checked() {
    "$CXX" "${common[@]}" "${include[@]}" "${checked[@]}" "${@:3}" -x c++ -c -o "$1.tmp" "$2"
    objcopy --redefine-sym memcpy=cudasim_memcpy --redefine-sym memmove=cudasim_memmove \
            --redefine-sym memset=cudasim_memset "$1.tmp" "$1"
    rm -f "$1.tmp"
}

# The simulator itself and, asked for, runtime/cuda: what changed is compiled again.
library() {
    mkdir -p "$sim/runtime"
    exec 9> "$sim/lock"
    flock 9
    local newest source
    started=()
    newest=$(ls -t "$here"/*.h "$here"/include/*.h "$root/runtime/half.h" \
                "$root/runtime/cuda/cudnn_api.h" "$root/runtime/cuda/nccl_api.h" "$here/cc.sh" | head -n 1)
    for source in "$here"/*.cc; do
        compile "$sim/$(basename "$source" .cc).o" "$source" "$newest"
        library+=("$sim/$(basename "$source" .cc).o")
    done
    if [ -n "$runtime" ]; then
        newest=$(ls -t "$newest" "$root"/runtime/*.h "$root"/runtime/{comm,cuda,optim}/*.h | head -n 1)
        for source in "$root"/runtime/cuda/*.cu; do
            compile "$sim/runtime/$(basename "$source" .cu).o" "$source" "$newest"
            library+=("$sim/runtime/$(basename "$source" .cu).o")
        done
        for source in "$root"/runtime/{core,comm,data,checkpoint,optim}/*.c; do # objects may be stale
            source=${source#"$root"/}
            library+=("$BUILD/${source%.c}.o")
        done
        library+=(-ljansson -lz -fopenmp)
    fi
    for pid in "${started[@]}"; do wait "$pid"; done
    exec 9>&-
}

out=a.out only= runtime= library=() objects=() options=() sources=()
while [ $# -gt 0 ]; do
    case $1 in
    -o) out=$2; shift ;;
    -c) only=1 ;;
    --runtime) runtime=1 ;;
    *.cu|*.cc|*.c) sources+=("$1") ;;
    *.o|*.a) objects+=("$1") ;;
    *) options+=("$1") ;;
    esac
    shift
done

work=$(mktemp -d "${TMPDIR:-/tmp}/cudasim.XXXXXX")
trap 'rm -rf "$work"' EXIT
made=()
for i in "${!sources[@]}"; do
    source=${sources[$i]} object=$work/$i.o
    [ -n "$only" ] && object=$out
    case $source in
    *.cu) checked "$object" "$source" "${options[@]}" ;;
    *.cc) "$CXX" -std=c++20 "${common[@]}" "${include[@]}" "${options[@]}" -c -o "$object" \
              "$source" ;;
    *.c) "${CC:-gcc}" -std=c11 -D_GNU_SOURCE "${common[@]}" "${include[@]}" "${options[@]}" -c \
              -o "$object" "$source" ;;
    esac
    made+=("$object")
done
[ -n "$only" ] && exit 0
library
"$CXX" -no-pie -o "$out" "${made[@]}" "${objects[@]}" "${library[@]}" "${options[@]}" \
    -lpthread -ldl -lm
