#!/usr/bin/env bash
# Runs every example of grammar/LANGUAGE.md. The word behind the fence says what it is:
#   model            a whole program: gradcc --emit=c and --emit=cuda accept it without a word
#   model-error      a whole program that is refused; each comment "# error: TEXT" in it is found in
#                    the messages
#   file NAME        a file that later examples include
#   declarations, statements, settings    a piece of one: it parses
# Other fences (text, sh, c) are not run. A test is named by the line of its fence.
set -u
cd "$(dirname "$0")/.."
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT

# One file per example, LINE-KIND.model, wrapped so that a piece becomes a whole file.
awk -v folder="$folder" '
    /^```/ && !inside {
        kind = substr($1, 4); inside = 1; path = ""
        if (kind == "file")
            path = folder "/" $2
        else if (kind ~ /^(model|model-error|declarations|statements|settings)$/)
            path = sprintf("%s/%04d-%s.model", folder, NR, kind)
        if (path != "") printf "" > path
        if (kind == "statements") print "layer piece() {" > path
        if (kind == "settings") print "train {" > path
        next
    }
    /^```/ && inside {
        if (kind == "statements" || kind == "settings") print "}" > path
        if (path != "") close(path)
        inside = 0
        next
    }
    inside && path != "" { print > path }
' grammar/LANGUAGE.md

cd "$folder" || exit 1
for example in [0-9]*-*.model; do
    kind=${example#*-}; kind=${kind%.model}
    name=language/line-${example%.model}
    case $kind in model*) emit=c ;; *) emit=ast ;; esac
    "$GRADCC" --emit=$emit "$example" > out 2> err
    code=$?
    if [ $emit = c ] && [ $code -eq 0 ]; then
        "$GRADCC" --emit=cuda "$example" > out 2> err
        code=$?
    fi
    why=
    if [ "$kind" = model-error ]; then
        [ $code -eq 1 ] || why="exit code $code, not 1"
        grep -q '# error: ' "$example" || why="no comment '# error:' says what is wrong"
        while read -r text; do
            grep -qF -- "$text" err || why="the messages lack: $text"
        done < <(sed -n 's/^.*# error: //p' "$example")
    elif [ $code -ne 0 ]; then
        why="exit code $code: $(head -n 1 err)"
    elif [ -s err ]; then
        why="it prints: $(head -n 1 err)"
    fi
    if [ -z "$why" ]; then
        echo "ok $name"
    else
        cat "$example" err >&2
        echo "not ok $name: $why"
    fi
done
