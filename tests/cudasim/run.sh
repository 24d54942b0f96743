#!/usr/bin/env bash
# The simulator's own tests: correct programs pass under all orders, planted faults are found, what
# is not modelled does not compile. Other parts: every lib*.sh beside this file.
set -u
cd "$(dirname "$0")"
BUILD=${BUILD:-../../build}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
export BUILD
work=$BUILD/cudasim/tests
mkdir -p "$work"
if ! command -v "${CXX:-g++}" > /dev/null; then
    echo "skip cudasim: no C++ compiler (g++) is here"
    exit 0
fi

if ./cc.sh --help | grep -q '^--runtime: links runtime/cuda too'; then echo "ok cudasim/help"
else echo "not ok cudasim/help: $(./cc.sh --help | head -n 1)"; fi

# build NAME: test_NAME.cu as a program
build() {
    if ! ./cc.sh -o "$work/$1" "test_$1.cu" 2> "$work/$1.err"; then
        cat "$work/$1.err" >&2
        echo "not ok cudasim/$1: does not compile"
        return 1
    fi
}

# good CASE: under every order of threads and of streams
good() {
    local order streams
    for order in forward reverse 1 2 3; do
        for streams in late early 1 2; do
            if ! CUDASIM_ORDER=$order CUDASIM_STREAMS=$streams "$work/good" "$1" \
                > "$work/out" 2>&1; then
                echo "not ok cudasim/$1: order $order, streams $streams: $(head -n 1 "$work/out")"
                return
            fi
        done
    done
    echo "ok cudasim/$1"
}

# fault CASE TEXT: under the default orders and some others; TEXT may be `one|other`, since what is
# found first depends on the order
fault() {
    local name=$1 orders rc
    for orders in 'CUDASIM_ORDER=1' 'CUDASIM_ORDER=forward' 'CUDASIM_STREAMS=3'; do
        env "$orders" "$work/faults" "$name" > "$work/out" 2>&1
        rc=$?
        if [ $rc -ne 99 ]; then
            echo "not ok cudasim/fault/$name: $orders: exit code $rc, $(head -n 1 "$work/out")"
            return
        fi
        if ! grep -qF -e "${2%|*}" -e "${2#*|}" "$work/out" ||
           [ "$(wc -l < "$work/out")" -ne 1 ]; then
            echo "not ok cudasim/fault/$name: $orders: $(head -n 2 "$work/out")"
            return
        fi
    done
    echo "ok cudasim/fault/$name"
}

# refused NAME TEXT CODE: a kernel that does not compile
refused() {
    printf '#include <cuda_runtime.h>\n%s\n' "$3" > "$work/refused.cu"
    if ./cc.sh -c -o "$work/refused.o" "$work/refused.cu" 2> "$work/refused.err"; then
        echo "not ok cudasim/refused/$1: compiles"
    elif grep -q "$2" "$work/refused.err"; then
        echo "ok cudasim/refused/$1"
    else
        echo "not ok cudasim/refused/$1: $(grep error "$work/refused.err" | head -n 1)"
    fi
}

# example N: the Nth program of README.md, into $work/example.cu
example() { awk -v n="$1" '/^```/ { in_one = /^```cuda$/; k += in_one; next } in_one && k == n' README.md > "$work/example.cu"; }
example 1
if ./cc.sh -o "$work/example" "$work/example.cu" 2> "$work/example.err" && [ "$("$work/example" 2>&1)" = 1 ]; then
    echo "ok cudasim/readme"
else echo "not ok cudasim/readme: $(head -n 1 "$work/example.err")"; fi
sed -i 's/i < n/i <= n/' "$work/example.cu"
./cc.sh -o "$work/example" "$work/example.cu" 2> "$work/example.err"; "$work/example" > "$work/out" 2>&1
if [ $? -eq 99 ] && grep -q 'kernel add_one, block (1,0,0)' "$work/out"; then echo "ok cudasim/readme-fault"
else echo "not ok cudasim/readme-fault: $(head -n 1 "$work/out")"; fi
example 2
if ./cc.sh -c -o "$work/example.o" "$work/example.cu" 2> "$work/example.err"; then echo "ok cudasim/readme-runtime"
else echo "not ok cudasim/readme-runtime: $(grep error "$work/example.err" | head -n 1)"; fi

if build good; then
    while read -r name _; do good "$name"; done < <("$work/good")
fi
if build faults; then
    while read -r name text; do fault "$name" "$text"; done < <("$work/faults")
fi
# traffic KERNEL COLUMNS: its line in the table, without the name
traffic() {
    local found
    found=$(awk -v k="$1" '$1 == k { print $2, $3, $4, $5, $6, $7, $8, $9, $10 }' "$work/traffic.txt")
    if [ "$found" = "$2" ]; then
        echo "ok cudasim/traffic/$1"
    else
        echo "not ok cudasim/traffic/$1: $found"
    fi
}

if build traffic; then
    CUDASIM_TRAFFIC=$work/traffic.txt "$work/traffic"
    traffic straight '1 16384 16384 32768 32768 1.00 100% 1.00 32768'
    traffic strided '1 1024 1024 2048 2048 1.00 12% 1.00 2048'
    traffic twice '1 2048 1024 2048 2048 1.00 100% 1.00 3072'
    traffic each_row '4 8192 4096 12288 8704 1.41 100% 1.00 8704'
    traffic transpose_0 '1 4096 4096 8192 8192 1.00 100% 16.50 8192'
    traffic transpose_1 '1 4096 4096 8192 8192 1.00 100% 1.00 8192'
fi
refused float_atomic 'atomicAdd of a float' \
    '__global__ void k(float *x) { atomicAdd(x, 1.0f); }'
refused active_mask '__activemask' '__global__ void k(unsigned *x) { *x = __activemask(); }'
refused clock 'clock64' '__global__ void k(long long *x) { *x = clock64(); }'
refused constant '__constant__' \
    '__constant__ float t[4]; __global__ void k(float *x) { *x = t[1]; }'
refused argument_count 'another number' \
    '__global__ void k(float *x); void f(void) { cudasim_launch(0, "k", 1, 1, 0, k); }'
for part in lib*.sh; do
    "./$part" || echo "not ok cudasim/$part: exit code $?"
done
exit 0
