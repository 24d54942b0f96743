#!/usr/bin/env bash
# Who may include whom, and what every file keeps to: head comment, lengths, no leftover marks.
# Prints `ok` or `not ok` per rule; the details go to stderr.
set -u
cd "$(dirname "$0")/.."
failed=0

# rule NAME "files" "allowed headers, as a regular expression"
rule() {
    local name=$1 files=$2 allowed=$3 bad
    # shellcheck disable=SC2086
    bad=$(grep -nHE '^#include "' $files 2>/dev/null | grep -vE "#include \"($allowed)\"")
    report "$name" "$bad"
}

report() {
    if [ -z "$2" ]; then
        echo "ok layering/$1"
    else
        echo "$2" >&2
        echo "not ok layering/$1: $(echo "$2" | head -n 1)"
        failed=1
    fi
}

base='base/base\.h'
type="$base|front/type\.h"
tree="$base|front/ast\.h|front/syntax\.h"
ir="$type|ir/ir\.h|ir/program\.h|op/op\.h|op/ops\.def"

rule base    'compiler/base/*.[ch]' "$base"
rule type    'compiler/front/type.[ch] compiler/front/poly.[ch]' "$type|front/poly\.h"
rule tree    'compiler/front/ast*.[ch] compiler/front/syntax*.[ch] compiler/front/include*.c' "$tree"
rule grammar 'grammar/*.l grammar/*.y' "$tree|parser\.h|lexer\.h"
rule sem     'compiler/front/sem*.[ch]' "$tree|$type|front/sem[a-z_]*\.h"
rule lower   'compiler/front/lower*.[ch]' "$tree|$ir|front/sem\.h|front/lower[a-z_]*\.h"
rule ir      'compiler/ir/*.[ch]' "$ir|ir/[a-z_]*\.h|op/rows\.h"
rule op      'compiler/op/*.[ch]' "$ir|op/[a-z_]*\.(h|def)"
rule emit    'compiler/emit/*.[ch]' "$ir|pass/kernel\.h|emit/[a-z_]*\.h"
rule runtime 'runtime/*.h runtime/*/*.[ch] runtime/cuda/*.cu' '(rt|num|run)\.h|[a-z_]+/[a-z_]+\.h|[a-z_]+\.h'
rule rt      'runtime/rt.h' 'num\.h'

# A pass sees the IR, the kernel IR and the headers of its own family (pass/fuse.h for fuse_*.c).
bad=
for f in compiler/pass/*.c compiler/pass/*.h; do
    family=$(basename "$f" | sed 's/[_.].*//')
    bad+=$(grep -nHE '^#include "' "$f" |
           grep -vE "#include \"($ir|pass/(pass|kernel)\.h|pass/$family[a-z_]*\.h|pass/rules\.def)\"")
done
report pass "$bad"

# The compiler and the runtime share text, never files.
report apart "$(grep -rnE '#include "(\.\./)*(runtime/|rt\.h|run\.h|num\.h)' compiler grammar
                grep -rnE '#include "(\.\./)*compiler/' runtime)"

# A library of the system is known to the files that stand for it.
report libraries "$(grep -rnE '#include <(oneapi/)?dnnl' runtime compiler | grep -v '^runtime/cpu/[a-z_]*onednn'
                    grep -rnE '#include <(mpi|nccl|cuda)' runtime compiler | grep -vE '^runtime/(wire|cuda)/')"

sources=$(ls compiler/*.[ch] compiler/*/*.[ch] runtime/*.h runtime/*/*.[ch] runtime/cuda/*.cu runtime/cuda/ptx/*.h \
             grammar/*.[ly])
# Of the tests too, but for tables that a program wrote ("clang-format off").
tests=$(grep -L 'clang-format off' tests/*/*.[ch] tests/*/*.cu tests/*/*.cc tests/*/*/*.[ch] tests/*/*/*.cu tests/*/*/*.cc \
            2> /dev/null | grep -v '^tests/emit/')
# shellcheck disable=SC2086
report columns "$(LC_ALL=C.UTF-8 awk 'length($0) > 100 { print FILENAME ":" FNR ": " length($0) " columns" }' \
    $sources $tests README.md Makefile)"
# shellcheck disable=SC2086
report lines "$(wc -l $sources | awk '$2 != "total" && $1 >= 800 { print $2 ": " $1 " lines" }')"
# shellcheck disable=SC2086
report functions "$(awk 'FNR == 1 { start = 0 } /^\{/ { start = FNR }
    /^\}/ && start { if (FNR - start >= 70) print FILENAME ":" start ": " FNR - start " lines"; start = 0 }' \
    $(echo "$sources" | grep '\.cu*$'))"
# shellcheck disable=SC2086
report heads "$(for f in $sources; do head -n 3 "$f" | grep -qE '^ ?(/\*|\*)' || echo "$f: no head comment"; done)"
# shellcheck disable=SC2086
report marks "$(grep -nE '\b(TODO|FIXME|XXX|HACK)\b' $sources)"
# Numbers that both sides know: the compiler plans with them, the runtime allocates by them.
number() { sed -nE "s/.*\\b$1( =)? +([0-9]+).*/\\2/p" "$2" | head -n 1; }
same() {
    local a b
    a=$(number "$1" "$2") b=$(number "$3" "$4")
    [ -n "$a" ] && [ "$a" = "$b" ] || echo "$1 in $2 is '$a', $3 in $4 is '$b'"
}
report numbers "$(same CHUNKS compiler/emit/c.c RT_CHUNKS runtime/rt.h
                  same ALIGN compiler/emit/c.c RT_ALIGN runtime/rt.h
                  same ALIGN compiler/emit/cu.c RT_DEVICE_ALIGN runtime/cuda/device.h
                  for name in DIGITS SORT_LEAST SORT_BLOCKS PART; do
                      same $name compiler/emit/explain_traffic.c $name runtime/cuda/scatter.cu
                  done
                  same MANY compiler/front/sem.c RT_MAX_SLOTS runtime/rt.h
                  same MANY compiler/front/sem.c RT_MAX_DIMS runtime/rt.h
                  same RANK_MAX compiler/front/type.h RT_MAX_RANK runtime/rt.h
                  same DEPTH_MAX compiler/pass/kernel.h RT_MAX_STACKS runtime/rt.h)"

# Layout: another version of clang-format breaks some lines elsewhere, so only one is asked.
version=$(clang-format --version 2> /dev/null | sed -n 's/.*version \([0-9]*\).*/\1/p')
if [ "$version" = 14 ]; then
    code=$(git ls-files '*.c' '*.h' '*.cu' '*.cc' 2> /dev/null | grep -v '^tests/emit/')
    # shellcheck disable=SC2086
    report format "$(clang-format --dry-run ${code:-$(ls compiler/*.[ch] compiler/*/*.[ch] runtime/*.h \
        runtime/*/*.[ch])} 2>&1 | grep warning:)"
else
    echo "skip layering/format: clang-format 14 wanted, ${version:-none} is here"
fi
exit $failed
