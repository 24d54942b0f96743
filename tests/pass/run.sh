#!/usr/bin/env bash
# Tests of the middle passes: IR files with the text before and after, rules on numbers, gradients
# of graphs by hand and of random graphs against central differences. With BLESS=1 the text after is rewritten.
set -u
cd "$(dirname "$0")"
BUILD=${BUILD:-../../build} CC=${CC:-gcc}
out=$BUILD/tests/pass
mkdir -p "$out"
flags="-std=c11 -D_GNU_SOURCE -O1 -g -Wall -Wextra -I../../compiler -I."
objects=$(find "$BUILD/compiler" -name '*.o' ! -name main.o | sort)
grep -q fsanitize "$BUILD/rt.libs" 2>/dev/null && flags="$flags -fsanitize=address,undefined"
# shellcheck disable=SC2086
rm -f "$out/compiler.a" && ar qcs "$out/compiler.a" $objects
for tool in passes test_grad test_random; do
    # shellcheck disable=SC2086
    if ! $CC $flags -o "$out/$tool" $tool.c "$out/compiler.a" -lm; then
        echo "not ok pass build: $tool.c does not compile"
        exit 1
    fi
done

for file in */*.ir; do
    name=pass/${file%.ir}
    passes=$(sed -n 's/^--- //p' "$file")
    sed '1,/^---/d' "$file" > "$out/want"
    # shellcheck disable=SC2086
    "$out/passes" "$file" $passes > "$out/got" 2>&1
    if [ -n "${BLESS:-}" ]; then
        { sed '/^---/q' "$file"; cat "$out/got"; } > "$out/blessed" && cp "$out/blessed" "$file"
    fi
    if cmp -s "$out/want" "$out/got"; then
        echo "ok $name"
    elif [ -n "${BLESS:-}" ]; then
        echo "ok $name"
    else
        echo "not ok $name: the text after $passes differs"
        diff "$out/want" "$out/got" >&2
    fi
done

if "$out/passes" --check-rules > "$out/rules" 2>&1; then
    echo "ok pass/rules: $(tail -n 1 "$out/rules")"
else
    echo "not ok pass/rules: $(head -n 1 "$out/rules")"
fi
"$out/test_grad"
"$out/test_random" 60
for seed in 10402 12334; do "$out/test_random" 1 $seed; done    # steep: a step of 1e-4 is too long
exit 0
