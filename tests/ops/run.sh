#!/usr/bin/env bash
# Every row of the op table: values, reverse mode, forward mode, gradient of gradient (test_ops.c).
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=${BUILD:-$here/../../build}
objects=$(ls "$build"/compiler/{base,ir,op}/*.o "$build"/compiler/front/{type,poly}.o \
             "$build"/compiler/pass/grad*.o) || exit 1
mkdir -p "$build/tests"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra ${SAN:+-fsanitize=address,undefined} \
    -I"$here/../../compiler" "$here/test_ops.c" $objects -o "$build/tests/test_ops" -lm >&2 || exit 1
"$build/tests/test_ops" "$here"
