#!/usr/bin/env bash
# Dangerous arithmetic: gradcc says on stderr exactly what FILE.err holds, and compiles the model all
# the same. A model may begin with `# options: --precision=fp16`. No other model of the project has
# such a warning, in any precision. BLESS=1 rewrites the .err files.
set -u
cd "$(dirname "$0")"
: "${BUILD:=../../build}" "${GRADCC:=$BUILD/gradcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT

for model in *.model; do
    name=lint/${model%.model} golden=${model%.model}.err
    options=$(sed -n '1s/^# options: //p' "$model")
    # shellcheck disable=SC2086
    "$GRADCC" --emit=c $options "$model" > "$work/out" 2> "$work/err" ||
        { echo "not ok $name: exit code $?"; continue; }
    [ -n "${BLESS:-}" ] && cat "$work/err" > "$golden"
    if difference=$(diff "$golden" "$work/err"); then echo "ok $name"
    else echo "$difference" >&2; echo "not ok $name: the messages differ from $golden"; fi
done

# quiet NAME OPTIONS: no warning of this group
quiet() {
    if "$GRADCC" --emit=c domains.model $2 2>&1 > "$work/out" | grep -q Wnumerics || [ ! -s "$work/out" ]
    then echo "not ok lint/$1: $2 does not silence"; else echo "ok lint/$1"; fi
}
quiet none -w
quiet group -Wno-numerics
if "$GRADCC" --emit=c masks.model -Wno-numerics 2>&1 > "$work/out" | grep -q Wunused
then echo "ok lint/other-group"; else echo "not ok lint/other-group: -Wno-numerics silences others"; fi

# No false alarm.
awk -v dir="$work" '
    /^```model$/ { count++; out = sprintf("%s/language_%02d.model", dir, count); next }
    /^```/       { out = ""; next }
    out != ""    { print > out }' ../../grammar/LANGUAGE.md
alarms=
for model in ../../models/[!p]*.model ../run/*.model ../grad/*.model ../emit/*.model "$work"/*.model; do
    for precision in fp32 bf16 fp16; do
        alarms+=$("$GRADCC" --emit=grad --precision=$precision "$model" 2>&1 > "$work/out" | grep Wnumerics)
    done
done
if [ -z "$alarms" ]; then echo "ok lint/no-false-alarm"
else echo "$alarms" >&2; echo "not ok lint/no-false-alarm: $(head -n 1 <<< "$alarms")"; fi
