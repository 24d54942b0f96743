#!/usr/bin/env bash
# The IR: dims, text out and in, messages of the reader, the checker, rewriting, draws.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-$here/../../build}
objects=$(ls "$build"/compiler/{base,ir,op}/*.o "$build"/compiler/front/{type,poly}.o) || exit 1
mkdir -p "$build/tests"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra ${SAN:+-fsanitize=address,undefined} \
    -I"$here/../../compiler" -I"$here/../../runtime" "$here/test_ir.c" $objects \
    -o "$build/tests/test_ir" -lm >&2 || exit 1
"$build/tests/test_ir" "$here"/*.ir "$here"/../ops/*.ir
