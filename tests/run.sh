#!/usr/bin/env bash
# Runs the tests: tests/AREA/run.sh for each area, two areas at a time (JOBS), and
# the checks tests/*.sh. Programs of the areas use two threads each (OMP_NUM_THREADS).
# Usage: tests/run.sh [AREA ...]; "long" as only word: the areas whose run.sh has "# long" in line 2.
# An area prints lines `ok NAME`, `not ok NAME: why`, `skip NAME: why`; this script prints failures,
# skips and the closing count.
set -u
cd "$(dirname "$0")/.."
export BUILD=${BUILD:-build} CC=${CC:-gcc}
case $BUILD in /*) ;; *) BUILD=$PWD/$BUILD ;; esac
export GRADCC=$BUILD/gradcc OMP_NUM_THREADS=${OMP_NUM_THREADS:-2} LC_ALL=C
results=$BUILD/test-results
rm -rf "$results"; mkdir -p "$results"

list() {
    local s
    for s in tests/*/run.sh tests/layering.sh tests/messages.sh tests/language.sh; do
        [ "$s" = tests/bench/run.sh ] && continue
        if sed -n 2p "$s" | grep -q '^# long'; then [ "$want" = long ] && echo "$s"
        else [ "$want" = long ] || echo "$s"; fi
    done
}

run_one() {
    local s=$1 name start end rc=0
    name=${s#tests/}; name=${name%/run.sh}; name=${name%.sh}
    start=$(date +%s)
    if [ -x "$s" ]; then
        "$s" > "$results/$name.out" 2> "$results/$name.err" || rc=$?
    else
        echo "not ok $name: $s is missing or not executable" > "$results/$name.out"
    fi
    end=$(date +%s)
    if [ $rc -ne 0 ] && ! grep -q '^not ok ' "$results/$name.out"; then
        echo "not ok $name: the script ended with exit code $rc" >> "$results/$name.out"
    fi
    if ! grep -Eq '^(ok|not ok|skip) ' "$results/$name.out"; then
        echo "not ok $name: no test ran" >> "$results/$name.out"
    fi
    printf '%-12s %4d passed %3d failed %3d skipped  %4d s\n' "$name" \
        "$(grep -c '^ok ' "$results/$name.out")" "$(grep -c '^not ok ' "$results/$name.out")" \
        "$(grep -c '^skip ' "$results/$name.out")" $((end - start))
    grep -E '^(not ok|skip) ' "$results/$name.out" | sed 's/^/    /'
    if grep -q '^not ok ' "$results/$name.out" && [ -s "$results/$name.err" ]; then
        tail -n 40 "$results/$name.err" | sed 's/^/    | /'
    fi
}

want=short; areas=
if [ "${1:-}" = long ]; then want=long; shift; fi
if [ $# -gt 0 ]; then
    for a in "$@"; do [ -e "tests/$a/run.sh" ] && areas="$areas tests/$a/run.sh" || areas="$areas tests/$a.sh"; done
else
    areas=$(list)
fi
for s in $areas; do
    while [ "$(jobs -rp | wc -l)" -ge "${JOBS:-2}" ]; do wait -n; done
    run_one "$s" &
done
wait
passed=$(cat "$results"/*.out 2>/dev/null | grep -c '^ok ')
failed=$(cat "$results"/*.out 2>/dev/null | grep -c '^not ok ')
skipped=$(cat "$results"/*.out 2>/dev/null | grep -c '^skip ')
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
