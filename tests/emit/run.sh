#!/usr/bin/env bash
# Golden files of models of a page. In C: tiny, scan and stack whole; the others without the sections
# that show nothing new of them. In CUDA: tiny whole, of stack and halves what differs from C. And what
# holds of every emitted file: no warnings with two compilers, with and without OpenMP; lines of 100
# columns; the same results with any number of threads; as many lines for 12 layers as for 2.
# BLESS=1 rewrites the golden files.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
warn="-std=c11 -O1 -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Werror -I$root/runtime"

# The part of an emitted file that its golden file holds: the sections that show something.
part() { # MODEL.c or MODEL.cu
    case $1 in
        again.c|heads.c|names.c) sed '/^\/\* ---- 7 /,$d' ;;
        halves.c)                sed '/^\/\* ---- 8 /,$d' ;; # 7 writes the 16-bit copy
        stack.cu)                sed '/^\/\* ---- 7 /,$d' | sed -n '/^\/\* ---- 4 /,$p' ;;
        halves.cu)               sed '/^\/\* ---- 8 /,$d' | sed -n '/^\/\* ---- 7 /,$p' ;;
        *)                       cat ;;
    esac
}

# golden TARGET FILE: the text for FILE, a .c or .cu beside its .model, is as it was.
golden() {
    local target=$1 file=$2 name=emit/${2%.*} difference
    [ "$target" = c ] || name=$name-$target
    if ! "$GRADCC" --emit="$target" "${file%.*}.model" > "$work/whole" 2> "$work/err"; then
        cat "$work/err" >&2; echo "not ok $name: $(head -n 1 "$work/err")"; return
    fi
    part "$file" < "$work/whole" > "$work/part"
    [ -n "${BLESS:-}" ] && cp "$work/part" "$file"
    if difference=$(diff "$file" "$work/part"); then echo "ok $name"
    else echo "$difference" | head -n 40 >&2; echo "not ok $name: the text differs from $file"; fi
}
for model in *.model; do golden c "${model%.model}.c"; done
for file in *.cu; do golden cuda "$file"; done

# check NAME MODEL OPTIONS: the properties of one emitted file
check() {
    local name=emit/$1 model=$2 options=$3 c=$work/$1.c compiler flag wrong
    # shellcheck disable=SC2086
    if ! "$GRADCC" --emit=c $options "$model" > "$c" 2> "$work/err"; then
        echo "not ok $name: $(head -n 1 "$work/err")"; return
    fi
    for compiler in "$CC" clang; do
        command -v "$compiler" > /dev/null || { echo "skip $name-$compiler: not here"; continue; }
        for flag in -fopenmp "" "-fopenmp -DRT_LIBRARY"; do
            # shellcheck disable=SC2086
            if ! wrong=$($compiler $warn $flag -c "$c" -o "$work/o.o" 2>&1); then
                echo "$wrong" | head -n 20 >&2
                echo "not ok $name: $compiler $flag: $(grep -m1 -E 'error' <<< "$wrong")"; return
            fi
        done
    done
    wrong=$(LC_ALL=C.UTF-8 awk 'length($0) > 100 { print FNR ": " length($0) " columns"; exit }' "$c")
    [ -z "$wrong" ] || { echo "not ok $name: line $wrong"; return; }
    grep -nE '[ 	]$' "$c" > /dev/null && { echo "not ok $name: spaces at the end of a line"; return; }
    echo "ok $name"
}
for model in *.model large/*.model; do
    check "warnings-$(basename "$model" .model)" "$model" ""
done
for model in digits_mlp chargpt gpt2; do check "warnings-$model" $root/models/$model.model ""; done
check warnings-gpt-O0 large/gpt.model -O0
check warnings-gpt-fp64 large/gpt.model --precision=fp64

# CUDA keeps to its columns too, also those of its tables; nvcc sees it in tests/cuda.
for model in *.model large/*.model ../run/*.model $root/models/{digits_mlp,chargpt,gpt2}.model; do
    name=emit/cuda-$(basename "$model" .model)
    if ! "$GRADCC" --emit=cuda "$model" > "$work/x.cu" 2> "$work/err"; then
        echo "not ok $name: $(head -n 1 "$work/err")"; continue
    fi
    wrong=$(LC_ALL=C.UTF-8 awk 'length($0) > 100 { print FNR ": " length($0) " columns"; exit }
        / $/ { print FNR ": a space at its end"; exit }
        /^ \*  .* [0-9]*\.\.\.$/ { print FNR ": a number is cut"; exit }' "$work/x.cu")
    if [ -z "$wrong" ]; then echo "ok $name"; else echo "not ok $name: line $wrong"; fi
done

# Headings and comments say what stands below them, in both targets.
for target in c cuda; do
    name=emit/words-$target
    "$GRADCC" --emit=$target --precision=bf16 -D V=50304 $root/models/gpt2.model > "$work/words" 2> "$work/err"
    heading=$(grep -n '^/\* ---- of ' "$work/words" | cut -d: -f2 | head -n 2)
    want='/* ---- of logits, HEAD_ROWS rows at a time, forward and backward ---- */
/* ---- of the backward pass ---- */'
    if [ "$heading" != "$want" ]; then echo "not ok $name: headings of section 4: $heading"
    elif ! grep -q 'training: fills the arena; section 6 adds to the sums' "$work/words"; then
        echo "not ok $name: where sums are added to"
    elif grep -nE '^ \* where (\w+) = \1$' "$work/words" >&2; then
        echo "not ok $name: a formula that says nothing"
    elif ! grep -q '^ \* where d_ln_f is rounded to bf16$' "$work/words"; then
        echo "not ok $name: a rounding is not told"
    else echo "ok $name"; fi
done

# What is said of a step in section 5 or 6, in its kernel's comment, by its launch and in the table of
# steps names the same lines of the model.
for model in *.model large/*.model ../run/*.model $root/models/{chargpt,gpt2}.model; do
    name=emit/lines-$(basename "$model" .model)
    wrong=
    for target in c cuda; do
        "$GRADCC" -w --emit=$target --precision=bf16 "$model" > "$work/lines" &&
            wrong=$wrong$(python3 lines.py "$work/lines" 2>&1)
    done
    if [ -z "$wrong" ]; then echo "ok $name"; else echo "not ok $name: $wrong"; fi
done

# Layer loops stay loops.
"$GRADCC" --emit=c -D L=2 $root/models/gpt2.model > "$work/2.c"
"$GRADCC" --emit=c -D L=48 $root/models/gpt2.model > "$work/48.c"
more=$(($(wc -l < "$work/48.c") - $(wc -l < "$work/2.c")))   # the plan of the arena may differ
if [ $more -le 8 ] && [ $more -ge -8 ]; then echo "ok emit/depth"
else echo "not ok emit/depth: 48 layers take $more more lines than 2"; fi

# A small edit gives a small difference: one more statement, and the others keep their names.
sed 's/^    loss = mean(cross/    unused_x = x + 1\n&/' large/gpt.model > "$work/gpt.model"
"$GRADCC" --emit=c large/gpt.model | sed 's/gpt.model:[0-9]*//; s,large/,,; /^ \* source/d' > "$work/a.c"
(cd "$work" && "$(realpath "$OLDPWD/$GRADCC" 2> /dev/null || echo "$GRADCC")" --emit=c gpt.model) 2> /dev/null |
    sed 's/gpt.model:[0-9]*//; /^ \* source/d' > "$work/b.c"
changed=$(diff "$work/a.c" "$work/b.c" | grep -c '^[<>]')
if [ -s "$work/b.c" ] && [ "$changed" -le 20 ]; then echo "ok emit/small-edit"
else echo "not ok emit/small-edit: $changed lines differ"; fi

# The same bits with 1, 2 and 3 threads (products by the plain implementation).
libs="$BUILD/libgradcc_rt.a $(cat "$BUILD/rt.libs")"
# shellcheck disable=SC2086
if "$GRADCC" --emit=c -D C=32 -D V=64 large/gpt.model > "$work/t.c" &&
   $CC -std=c11 -O2 -march=native -fopenmp -ffp-contract=off -I$root/runtime -I../run \
       -DEMITTED="\"$work/t.c\"" -DMODEL=gpt -o "$work/t" threads.c $libs 2> "$work/err"; then
    for threads in 1 2 3; do
        RT_MATMUL=plain OMP_NUM_THREADS=$threads "$work/t" > "$work/threads-$threads"
    done
    if [ -s "$work/threads-1" ] && cmp -s "$work/threads-1" "$work/threads-2" &&
       cmp -s "$work/threads-1" "$work/threads-3"; then echo "ok emit/threads"
    else echo "not ok emit/threads: results depend on the number of threads"; fi
else
    cat "$work/err" >&2; echo "not ok emit/threads: it does not compile"
fi
