#!/usr/bin/env bash
# Wrong models: gradcc says on stderr exactly what FILE.err holds, prints nothing, and exits with 1,
# or with 2 where options alone are wrong.
# syntax_*.model are only parsed, all others are compiled to C. A model may begin with the line
# `# options: -D V=3` to pass options; `# options, exit 2: ...` where they are wrong. An .err without its .model is what a missing file gives.
# BLESS=1 rewrites the .err files. Usage: run.sh [PREFIX], for those whose names begin with it.
set -u
cd "$(dirname "$0")"
out=$(mktemp); err=$(mktemp); trap 'rm -f "$out" "$err"' EXIT

for model in $(ls -- "${1:-}"*.model "${1:-}"*.err | sed 's/\.[a-z]*$/.model/' | sort -u); do
    name=errors/${model%.model}
    golden=${model%.model}.err
    case $model in syntax_*) emit=ast ;; *) emit=c ;; esac
    options=$([ -f "$model" ] && sed -n '1s/^# options[^:]*: //p' "$model" | tr -d '\0')
    want=$([ -f "$model" ] && sed -n '1s/^# options, exit \(2\): .*/\1/p' "$model" | tr -d '\0')
    # shellcheck disable=SC2086
    "$GRADCC" --emit=$emit $options "$model" > "$out" 2> "$err"
    code=$?
    [ -n "${BLESS:-}" ] && cat "$err" > "$golden"
    if [ $code -ne "${want:-1}" ]; then
        cat "$err" >&2
        echo "not ok $name: exit code $code, not ${want:-1}"
    elif [ -s "$out" ]; then
        echo "not ok $name: something on stdout"
    elif difference=$(diff "$golden" "$err" 2>&1); then
        echo "ok $name"
    else
        echo "$difference" >&2
        echo "not ok $name: the messages differ from $golden"
    fi
done
