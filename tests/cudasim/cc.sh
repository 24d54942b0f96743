#!/usr/bin/env bash
# Compiles programs for the simulator: cc.sh [g++ options] -o PROGRAM FILE.cu|.cc|.c|.o|.a ...
# -c -o FILE.o FILE.cu compiles only. Honours BUILD (objects of the simulator lie in $BUILD/cudasim,
# made once, under a lock), CXX, CC. .cu files are checked (see sim.h), other files are plain.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
BUILD=${BUILD:-$root/build}
CXX=${CXX:-g++}
sim=$BUILD/cudasim
common=(-g -O1 -ffp-contract=off -fno-pie -Wall -Wextra -Wno-unknown-pragmas)
include=(-DRT_SIMULATOR -I"$here/include" -I"$root/runtime" -I"$root/runtime/cuda")
checked=(-std=c++20 -fsanitize=thread,alignment,bounds-strict --param=tsan-instrument-func-entry-exit=0
         --param=tsan-distinguish-volatile=1 -fno-ipa-reference -fno-exceptions -Wno-tsan
         -Wno-unused-function -Wno-unused-parameter -Wno-attributes)

# The simulator itself: what changed is compiled again.
library() {
    mkdir -p "$sim"
    exec 9> "$sim/lock"
    flock 9
    local newest source object pids=
    newest=$(ls -t "$here"/*.h "$here"/include/*.h "$here/cc.sh" | head -n 1)
    for source in "$here"/*.cc; do
        object=$sim/$(basename "$source" .cc).o
        if [ ! "$object" -nt "$source" ] || [ ! "$object" -nt "$newest" ]; then
            "$CXX" -std=c++20 -O2 "${common[@]}" -Wshadow -fno-omit-frame-pointer -I"$here/include" \
                -c -o "$object" "$source" & pids="$pids $!"
        fi
    done
    for pid in $pids; do wait "$pid"; done
    exec 9>&-
}

out=a.out only= objects=() options=() sources=()
while [ $# -gt 0 ]; do
    case $1 in
    -o) out=$2; shift ;;
    -c) only=1 ;;
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
    *.cu) "$CXX" "${common[@]}" "${include[@]}" "${checked[@]}" "${options[@]}" -x c++ -c \
              -o "$object" "$source" ;;
    *.cc) "$CXX" -std=c++20 "${common[@]}" "${include[@]}" "${options[@]}" -c -o "$object" "$source" ;;
    *.c) "${CC:-gcc}" -std=c11 -D_GNU_SOURCE "${common[@]}" "${include[@]}" "${options[@]}" -c \
              -o "$object" "$source" ;;
    esac
    made+=("$object")
done
[ -n "$only" ] && exit 0
library
"$CXX" -no-pie -o "$out" "${made[@]}" "${objects[@]}" "$sim"/*.o "${options[@]}" -lpthread -lm
