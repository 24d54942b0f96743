#!/usr/bin/env bash
# Unit tests of the runtime: each test_*.c is one program (cmocka), linked with the library; and
# each check_*.sh is a script that prints result lines itself (it gets the folder $work).
set -u
cd "$(dirname "$0")"
BUILD=${BUILD:-../../build} CC=${CC:-gcc}
work=$BUILD/test-runtime
mkdir -p "$work"
export work BUILD CC OMP_NUM_THREADS=${OMP_NUM_THREADS:-2}
flags="-std=c11 -D_GNU_SOURCE -O2 -g -march=native -fopenmp -ffp-contract=off"
flags="$flags -Wall -Wextra -Wshadow -Wconversion -Werror"
libs=$(cat "$BUILD/rt.libs")
case $libs in *dnnl*) flags="$flags -DHAVE_ONEDNN" ;; esac

one() {
    local source=$1 name=${1#test_}; name=${name%.c}
    if ! $CC $flags -I../../runtime "$source" "$BUILD/libgradcc_rt.a" -lcmocka $libs \
            -o "$work/$name" 2> "$work/$name.log"; then
        echo "not ok runtime/$name: does not compile"
        cat "$work/$name.log" >&2
        return
    fi
    mkdir -p "$work/$name.dir"
    (cd "$work/$name.dir" && CMOCKA_MESSAGE_OUTPUT=TAP timeout 300 "$work/$name") \
        > "$work/$name.tap" 2> "$work/$name.log"
    local rc=$?
    sed -n "s|^ok [0-9]* - |ok runtime/$name/|p; s|^not ok [0-9]* - \(.*\)|not ok runtime/$name/\1: see below|p" \
        "$work/$name.tap"
    if grep -q '^not ok' "$work/$name.tap"; then cat "$work/$name.tap" "$work/$name.log" >&2
    elif [ $rc -ne 0 ]; then
        echo "not ok runtime/$name: ended with exit code $rc"
        cat "$work/$name.log" >&2
    fi
}

for source in test_*.c; do
    [ -e "$source" ] || continue
    while [ "$(jobs -rp | wc -l)" -ge 2 ]; do wait -n; done
    one "$source" &
done
wait
for script in check_*.sh; do
    [ -e "$script" ] || continue
    if [ -x "$script" ]; then "./$script"
    else echo "not ok runtime/$script: not executable"; fi
done
exit 0
