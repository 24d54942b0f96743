#!/usr/bin/env bash
# A build without oneDNN: it builds, and the gradients of whole models are as they should be.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
plain=$BUILD/plain
mkdir -p "$plain"
cp -a "$BUILD/compiler" "$BUILD/grammar" "$plain/"      # the compiler is the same
if ! make -s -C "$root" BUILD="$plain" ONEDNN=0 CUDA=0 CC="$CC" all > "$plain/build.log" 2>&1; then
    echo "not ok plain/build: $(tail -n 1 "$plain/build.log")"; exit 1
fi
if grep -q dnnl "$plain/rt.libs"; then echo "not ok plain/build: it links oneDNN"; else echo "ok plain/build"; fi
BUILD=$plain GRADCC=$plain/gradcc "$root/tests/grad/run.sh" | sed 's/^\(ok\|not ok\) /&plain\//'

# Products of bf16 operands have one way only there, and who asks for the other one is told.
if $CC -std=c11 -D_GNU_SOURCE -O2 -fopenmp -ffp-contract=off -I"$root/runtime" "$root/tests/runtime/test_products.c" \
        "$plain/libgradcc_rt.a" -lcmocka $(cat "$plain/rt.libs") -o "$plain/products" 2> "$plain/products.log" &&
        RT_MATMUL_BF16=native "$plain/products" > "$plain/products.log" 2>&1; then
    echo "ok plain/products"
else
    echo "not ok plain/products: see $plain/products.log"
fi
if grep -q 'bf16 products cannot be native here: they are computed in fp32, which agrees to rounding' "$plain/products.log"
then echo "ok plain/products_are_told"; else echo "not ok plain/products_are_told: no warning"; fi
