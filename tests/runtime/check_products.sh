#!/usr/bin/env bash
# The tests of products of 16-bit operands once more: bf16 by the processor's own instructions, and
# on the plain path alone. A word that RT_MATMUL_BF16 does not know is an error.
set -u
again() { # NAME VARIABLE=VALUE
    if [ -x "$work/products" ] &&
            (cd "$work" && env "$2" ./products) > "$work/products_$1.log" 2>&1; then
        echo "ok runtime/products_$1"
    else
        echo "not ok runtime/products_$1: $2 $work/products"
        grep -A3 '^not ok\|\[  ERROR' "$work/products_$1.log" | tail -8 >&2
    fi
}
again native RT_MATMUL_BF16=native
again plain RT_MATMUL=plain
(cd "$work" && RT_MATMUL_BF16=fast ./products) > "$work/products_unknown.log" 2>&1
if grep -q 'RT_MATMUL_BF16=fast is none of native|unpack' "$work/products_unknown.log"; then
    echo "ok runtime/products_unknown_is_told"
else
    echo "not ok runtime/products_unknown_is_told: no message"
fi
