#!/usr/bin/env bash
# Readers of data and checkpoints on damaged files, under the address and undefined-behaviour sanitizers.
set -u
runtime=../../runtime
flags="-std=c11 -D_GNU_SOURCE -O1 -g -march=native -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Werror"
flags="$flags -fsanitize=address,undefined -fno-sanitize-recover=all"
if ! $CC $flags -I$runtime fuzz.c $runtime/data/*.c $runtime/checkpoint/*.c $runtime/core/base.c \
        $runtime/core/params.c $runtime/cpu/place.c -Wl,--wrap=rt_fail,--wrap=rt_warn -ljansson -lz -lm -o "$work/fuzz" \
        2> "$work/fuzz.log"; then
    echo "not ok runtime/fuzz: does not compile"
    cat "$work/fuzz.log" >&2
    exit 0
fi
dir=$(mktemp -d /dev/shm/gradcc-fuzz-XXXXXX 2> /dev/null || mktemp -d)
if (cd "$dir" && ASAN_OPTIONS=detect_leaks=0 timeout 300 "$work/fuzz" "${FUZZ_ROUNDS:-6000}" "${FUZZ_SEED:-1}") \
        > "$work/fuzz.log" 2>&1; then
    echo "ok runtime/fuzz"
else
    echo "not ok runtime/fuzz: FUZZ_ROUNDS=${FUZZ_ROUNDS:-6000} FUZZ_SEED=${FUZZ_SEED:-1}"
    tail -40 "$work/fuzz.log" >&2
fi
rm -rf "$dir"
