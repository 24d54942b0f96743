#!/usr/bin/env bash
# The command line: exit codes, messages, files written whole or not at all, the same bytes again.
set -u
cd "$(dirname "$0")/../.."
: "${BUILD:=build}" "${GRADCC:=$BUILD/gradcc}" "${CC:=gcc}"
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
mkdir "$work/kept"; export TMPDIR=$work/kept   # where gradcc puts the C that it compiles
cat > "$work/tiny.model" <<'MODEL'
const D = 4
batch B
model tiny(x: [B, D], y: [B, 1]) {
    f : linear[D, 1]
    output guess = f(x)
    loss = mean((guess - y)^2)
}
MODEL
sed 's/guess - y/guess - z/' "$work/tiny.model" > "$work/wrong.model"

ok()  { echo "ok cli/$1"; }
bad() { echo "not ok cli/$1: $2"; }

# expect NAME CODE TEXT COMMAND...: the exit code, and a text somewhere in stdout or stderr
expect() {
    local name=$1 code=$2 text=$3 got out; shift 3
    out=$("$@" 2>&1); got=$?
    if [ $got -ne "$code" ]; then echo "$out" | head -n 5 >&2; bad "$name" "exit code $got, not $code"
    elif ! grep -qF -- "$text" <<< "$out"; then echo "$out" | head -n 5 >&2; bad "$name" "no '$text'"
    else ok "$name"; fi
}

g=$(realpath "$GRADCC") t=$work/tiny.model
expect help 0 'usage: gradcc [options] FILE.model' "$g" --help
expect version 0 'gradcc ' "$g" --version
expect no-model 2 'no model given' "$g"
expect two-models 2 'one model at a time' "$g" "$t" "$t"
expect unknown-option 2 'hint: did you mean --emit?' "$g" --emti=c "$t"
expect unknown-option-ends 2 'hint: did you mean --march or --cuda-arch?' "$g" --arch=sm_90 "$t"
expect dims-alone 2 '--dims goes with --explain=memory and --explain=traffic; the program has an option --dims too' \
    "$g" --dims B=3 "$t"
expect unknown-word 2 '--emit: asm is none of exe|ast|ir|grad|plan|c|types|cuda' "$g" --emit=asm "$t"
expect missing-value 2 '-o needs a value: FILE' "$g" "$t" -o
expect empty-value 2 '--cc needs a value: PROGRAM' "$g" "$t" --cc=
expect empty-flags 0 'const RtModel tiny' "$g" --emit=c -w "$t" --cflags=
expect extra-value 2 '--help takes no value' "$g" --help=yes
expect only-model 2 '--only goes with --ir' "$g" --only=simplify "$t"
expect only-emit 2 '--only takes passes from IR to IR, and plan is none' "$g" --ir "$t" --only=plan
expect only-c 2 '--only goes with --emit=ir' "$g" --ir "$t" --only=simplify --emit=c
expect define-form 2 'write it as -D name=value' "$g" -D D "$t"
expect number-form 2 'is no number from 0' "$g" -ferror-limit=x "$t"
expect unknown-pass 2 'simplfy is no pass: did you mean simplify?' "$g" --dump-after=simplfy "$t"
expect needed-pass 2 'the pass lower cannot be skipped' "$g" --skip=lower "$t"
expect no-file 1 'error: cannot open no.model: No such file or directory' "$g" --emit=c no.model
expect folder 1 'error: cannot read' "$g" --emit=c "$work"
expect no-folder 1 'error: cannot write' "$g" --emit=c "$t" -o "$work/no/out.c"
expect mistakes 1 'unknown' "$g" --emit=c "$work/wrong.model"
expect list-passes 0 'fuse      tensor IR        -> kernel IR' "$g" --list-passes
expect list-ops 0 'matmul' "$g" --list-ops
expect rules 0 'rules hold, 0 do not' "$g" --check-rules
expect emit-ast 0 'model tiny' "$g" --emit=ast "$t"
expect emit-ir 0 'graph train(' "$g" --emit=ir "$t"
expect emit-grad 0 'gradient of f.weight = ' "$g" --emit=grad "$t"
expect emit-types 0 'types of tiny' "$g" --emit=types "$t"
expect emit-plan 0 'plan of train' "$g" --emit=plan "$t"
expect emit-c 0 'const RtModel tiny' "$g" --emit=c "$t"
expect fp64 0 'double *restrict' "$g" --emit=c --precision=fp64 "$t"
expect checks 0 'RT_CHECK(s, 2, "sum_loss", &s->sum[S_loss], 1);' "$g" --emit=c "$t"
expect level 0 'const RtModel tiny' "$g" -O1 --emit=c "$t"
expect define 0 'D = 9,' "$g" --emit=c -DD=9 "$t"
expect define-unknown 2 'error: -D E=9: the file has no constant' "$g" --emit=c -D E=9 "$t"
expect define-wrong 2 'error: -D D=x: a whole number wanted' "$g" --emit=c -D D=x "$t"
expect define-size 1 'size D = 0 of x must be at least 1' "$g" --emit=c -D D=0 "$t"
expect define-and-model 1 'error: -D E=9: the file has no constant' "$g" --emit=c -D E=9 "$work/wrong.model"
expect define-setting 2 'error: -D recompute=more: recompute is one of' "$g" --emit=c -D recompute=more "$t"
expect define-note 2 'gradcc: note: -D batch=5: batch is set here' "$g" --emit=c -D batch=5 -D accumulate=2 "$t"
expect recompute-word 2 'gradcc: --recompute: more is none of none, auto, blocks and budget:6GiB' \
    "$g" --emit=c --recompute=more "$t"
expect recompute-size 2 'error: --recompute=budget:x: unknown name x' "$g" --emit=c --recompute=budget:x "$t"
expect group 2 'no group of warnings is called sense: numerics, unused, untrained, unreachable' "$g" -Wno-sense "$t"
expect dump 0 '# after grad' "$g" --dump-after=grad "$t"
expect stop 0 'graph train(' "$g" --stop-after=lower "$t"
expect stdin 0 'const RtModel tiny' sh -c "'$g' --emit=c - < '$t'"
expect full-disk-help 1 'cannot write to stdout: No space left on device' sh -c "'$g' --help > /dev/full"
expect full-disk 1 'cannot write to stdout: No space left on device' sh -c "'$g' --emit=c '$t' > /dev/full"
expect depfile 0 'out: ' "$g" -M -MT out "$t"
expect time 0 'emit ' "$g" --emit=c --time-passes "$t"
expect cc-missing 1 'cannot start no-such-cc' "$g" --cc no-such-cc "$t" -o "$work/tiny"
expect cc-missing-hint 1 'hint: --cc names a program in PATH, or the path of one' "$g" --cc no-such-cc "$t" -o "$work/tiny"
expect cc-fails 1 'failed with exit code' "$g" --cflags=--no-such-flag "$t" -o "$work/tiny"
expect cc-other 1 'hint: the emitted C is right: look at --cc, --cflags and --march' \
    "$g" --march=no-such-processor "$t" -o "$work/tiny"
printf '#!/bin/sh\nkill -9 $$\n' > "$work/killed"; chmod +x "$work/killed"
expect cc-killed 1 'killed failed with exit code 137' "$g" --cc "$work/killed" "$t" -o "$work/tiny"
expect cc-writes-nothing 1 'true ended well but wrote no program' "$g" --cc true "$t" -o "$work/tiny"
expect cc-writes-nothing-hint 1 'hint: --cc names a compiler that takes -o FILE' "$g" --cc true "$t" -o "$work/tiny"
expect output-nowhere 1 "cannot write $work/no/tiny: No such file or directory" \
    "$g" "$t" -o "$work/no/tiny"
expect output-special 1 'cannot write /dev/null: it is no regular file' "$g" "$t" -o /dev/null
expect output-huge 1 'File too large' sh -c "trap '' XFSZ; ulimit -f 16; '$g' '$t' -o '$work/tiny'"
expect output-special-hint 1 'hint: --emit=c -o /dev/null writes the C only' "$g" "$t" -o /dev/null
expect directory-output 1 "cannot write $work: it is a directory" "$g" "$t" -o "$work"
expect directory-output-hint 1 'hint: name the program with -o' "$g" "$t" -o "$work"

# A mistake of ours: what gradcc takes for the runtime's header makes the C wrong.
mkdir -p "$work/y/share/gradcc" "$work/y/include/gradcc" "$work/y/lib/gradcc" "$work/y/bin"
cp "$g" "$work/y/bin/"; cp models/prelude.model "$work/y/share/gradcc/"
echo 'wrong' > "$work/y/include/gradcc/rt.h"; : > "$work/y/lib/gradcc/libgradcc_rt.a"
expect cc-bug 70 'this is a bug of gradcc' "$work/y/bin/gradcc" "$t" -o "$work/tiny"

# No mistake of ours: a compiler that compiles nothing at all.
mkdir -p "$work/broken"; printf '#!/bin/sh\nexit 4\n' > "$work/broken/cc"; chmod +x "$work/broken/cc"
expect cc-broken 1 'cc failed: cc compiles not even a program of one line' \
    env PATH="$work/broken:$PATH" "$g" "$t" -o "$work/tiny"
expect cc-broken-hint 1 'hint: the toolchain is broken: a compiler of C11 with OpenMP is needed' \
    env PATH="$work/broken:$PATH" "$g" "$t" -o "$work/tiny"

# CUDA: its text needs no toolkit; a program does. A false nvcc shows how it is called.
expect emit-cuda 0 '#include "rt_cuda.h"' "$g" --emit=cuda "$t"
expect target-cuda 0 ' * command   gradcc --emit=cuda ' "$g" --target=cuda --emit=cuda "$t"
expect c-for-cuda 2 '--emit=c does not go with --target=cuda; --emit=cuda writes the CUDA' \
    "$g" --target=cuda --emit=c "$t"
expect traffic-not-set 0 'B = 16 (not set): times' "$g" --target=cuda --explain=traffic "$t"
expect traffic-emit 0 'launches' "$g" --emit=cuda --explain=traffic "$t"
for option in --nvcc=nvcc --cuda-arch=sm_90; do
    expect "text-no${option%%=*}" 2 "${option%%=*} goes with a program: without --emit it is compiled" \
        "$g" --emit=cuda $option "$t"
done
for option in --cc=gcc --march=native --cflags=-g; do
    expect "text-no${option%%=*}" 2 "${option%%=*} goes with a program: without --emit it is compiled" \
        "$g" --emit=c $option "$t"
done
expect cuda-for-c 2 '--emit=cuda does not go with --target=c' "$g" --emit=cuda --target=c "$t"
expect traffic-for-c 2 '--explain=traffic is about CUDA kernels: it goes with --target=cuda' \
    "$g" --explain=traffic "$t"
expect arch-for-c 2 '--cuda-arch goes with --target=cuda' "$g" --cuda-arch=native "$t"
expect cc-for-cuda 2 '--cc goes with --target=c; for CUDA there are --nvcc and --cuda-arch' "$g" --emit=cuda --cc=gcc "$t"
expect arch-old 2 'sm_75 is too old, programs need sm_80 or later' "$g" --target=cuda --cuda-arch=sm_80,sm_75 "$t"
expect arch-form 2 'ampere is neither native nor a list as in sm_80,sm_90' "$g" --target=cuda --cuda-arch=ampere "$t"
none=(env PATH="$work/y/bin" CUDA_HOME="$work/no")
cuda=("${none[@]}" "$work/y/bin/gradcc" --target=cuda "$t" -o "$work/tiny")
expect no-nvcc 1 "the CUDA toolkit is not here: no nvcc in PATH or $work/no/bin" "${cuda[@]}"
expect no-nvcc-hint 1 'hint: --nvcc=PATH names it, or CUDA_HOME the folder that has bin/nvcc; --emit=cuda works' "${cuda[@]}"
expect no-cuda 1 'this gradcc was built without CUDA: there is no libgradcc_rt_cuda.a' "${cuda[@]}" --nvcc=nvcc
expect no-cuda-hint 1 'run make again where nvcc is; --emit=cuda works without' "${cuda[@]}" --nvcc=nvcc
: > "$work/y/lib/gradcc/libgradcc_rt_cuda.a"; echo -lgomp > "$work/y/lib/gradcc/rt_cuda.libs"
cat > "$work/false" <<SH
#!/bin/sh
echo "called \$*"
while [ "\$1" != -o ]; do shift; done
echo > "\$2"
SH
printf '#!/bin/sh\nexit 2\n' > "$work/fails"; chmod +x "$work/false" "$work/fails"
printf '#!/bin/sh\n' > "$work/nothing"; chmod +x "$work/nothing"
expect nvcc-call 0 "called -std=c++20 -O3 --fmad=false -gencode=arch=compute_80,code=sm_80 \
-gencode=arch=compute_90a,code=[sm_90a,compute_90a] -g -I" \
    "${cuda[@]}" --nvcc="$work/false" --cuda-arch=sm_80,sm_90a --cflags=-g
expect nvcc-libs 0 "libgradcc_rt_cuda.a -lgomp" "${cuda[@]}" --nvcc="$work/false"
expect nvcc-writes-nothing 1 'nothing ended well but wrote no program' "${cuda[@]}" --nvcc="$work/nothing"
expect nvcc-empty 2 '--nvcc needs a value: PROGRAM' "${cuda[@]}" --nvcc=
expect nvcc-blank 2 '--nvcc needs a value: PROGRAM' "${cuda[@]}" "--nvcc= "
expect nvcc-missing 1 'hint: --nvcc names a program in PATH, or the path of one' "${cuda[@]}" --nvcc=no-such-nvcc

# The GPUs of the machine, by a false driver: GPUS="8.0 9.0"
cat > "$work/driver.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
int cuInit(unsigned flags) { return flags != 0; }
int cuDeviceGetCount(int *count)
{
    int a, b;
    const char *gpus = getenv("GPUS");
    *count = 0;
    for (int n; gpus && sscanf(gpus, "%d.%d%n", &a, &b, &n) == 2; gpus += n)
        ++*count;
    return *count == 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int number[2] = { 0, 0 };
    const char *gpus = getenv("GPUS");
    for (int n, i = 0; i <= device && sscanf(gpus, "%d.%d%n", &number[0], &number[1], &n) == 2; i++)
        gpus += n;
    *value = number[attribute - 75];
    return 0;
}
C
mkdir -p "$work/driver"
if $CC -shared -fPIC -o "$work/driver/libcuda.so.1" "$work/driver.c" 2> "$work/err"; then
    own() { env LD_LIBRARY_PATH="$work/driver" GPUS="$1" "${cuda[@]}" --nvcc="$work/false" "${@:2}"; }
    expect gpu-own 0 ' -gencode=arch=compute_90,code=[sm_90,compute_90] -I' own 9.0
    expect gpu-native 0 ' -gencode=arch=compute_90,code=[sm_90,compute_90] -I' own 9.0 --cuda-arch=native
    expect gpu-several 0 ' -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_89,code=[sm_89,compute_89] -I' \
        own '8.9 7.5 8.0 8.9'
    usual=' -gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=[sm_90,compute_90] -I'
    expect gpu-old 0 "$usual" own 7.5
    expect gpu-old-native 1 '--cuda-arch=native: the GPU here has compute capability 7.5, programs need 8.0 or later' \
        own 7.5 --cuda-arch=native
    expect gpu-none 0 "$usual" own ''
    expect gpu-none-native 1 '--cuda-arch=native: no GPU answers here' own '' --cuda-arch=native
    expect gpu-none-hint 1 'hint: --cuda-arch=sm_90 names the GPUs that the program is for; without --cuda-arch it' \
        own '' --cuda-arch=native
else bad gpu-own "$(head -n 1 "$work/err")"; fi
rm -f "$work/tiny"
expect nvcc-fails 1 'fails failed with exit code 2' "${cuda[@]}" --nvcc="$work/fails"
expect nvcc-fails-hint 1 'the emitted CUDA is right: look at --nvcc, --cflags and --cuda-arch' \
    "${cuda[@]}" --nvcc="$work/fails"
mkdir -p "$work/no/bin"; cp "$work/fails" "$work/no/bin/nvcc"
expect nvcc-broken 1 "$work/no/bin/nvcc compiles not even a program of one line" "${cuda[@]}"
expect nvcc-broken-hint 1 'hint: the toolchain is broken: CUDA 12.0 or later is needed, and a g++ that its nvcc takes' \
    "${cuda[@]}"
printf '#!/bin/sh\nfor file; do case $file in *.cu) while read -r line; do case $line in *rt_cuda.h*) exit 2 ;; esac; done < "$file" ;; esac; done\n' \
    > "$work/no/bin/nvcc"
expect nvcc-bug 70 'the CUDA that gradcc wrote does not compile' "${cuda[@]}"
expect nvcc-bug-text 70 '--emit=cuda -o FILE.cu keeps the CUDA' "${cuda[@]}"

# What make says of a toolkit: a program that is not there, one of old, one that has no cuBLASLt.
found() { env -u MAKEFLAGS make -s BUILD="$work/b" CC="${2:-$CC}" CUDA=auto NVCC="$1" "$work/b/cuda.txt"; }
mkdir -p "$work/kit/bin" "$work/kit/include" "$work/old/bin"
cp "$work/fails" "$work/kit/bin/nvcc"; cp "$work/fails" "$work/old/bin/nvcc"; : > "$work/kit/include/cublasLt.h"
expect make-no-nvcc 0 'CUDA is left out: there is no program /no/nvcc' found /no/nvcc
expect make-old-nvcc 0 'nvcc does not compile C++20 for sm_80 and sm_90, as that of CUDA 12.0 and later' \
    found "$work/kit/bin/nvcc"
expect make-no-cublaslt 0 "CUDA is left out: $work/old/include has no cublasLt.h" found "$work/old/bin/nvcc" "$work/fails"
cp "$work/false" "$work/kit/bin/nvcc"
expect make-nvcc 0 'nvcc: libgradcc_rt_cuda.a too, for sm_80, sm_90 and PTX' found "$work/kit/bin/nvcc"
# ... and of what ranks talk through: by the environment's MPICC, too.
wires() { env -u MAKEFLAGS MPICC="$1" make -s BUILD="$work/b" CUDA=0 CXX="${2:-c++}" "$work/b/mpi.txt" "$work/b/gloo.txt"; }
expect make-no-mpicc 0 'MPI is left out: there is no program /no/mpicc' wires /no/mpicc
expect make-bad-mpicc 0 "MPI is left out: $work/fails does not compile and link a program of MPI" wires "$work/fails"
expect make-mpicc 0 "MPI by $work/false: libgradcc_mpi.so" wires "$work/false"
expect make-no-gloo 0 "Gloo is left out: $work/fails finds no gloo/config.h, or no libgloo to link with" wires "$work/false" "$work/fails"
expect make-gloo 0 'Gloo: libgradcc_gloo.so' wires "$work/false" "$work/false"

# Ended while the C compiler runs: it ends too, and nothing stays behind.
printf '#!/bin/sh\necho started > "%s"\nexec sleep 60\n' "$work/started" > "$work/slow"
chmod +x "$work/slow"
"$g" --cc "$work/slow" "$t" -o "$work/tiny" & pid=$!
for _ in $(seq 600); do [ -e "$work/started" ] && break; sleep 0.05; done
kill -TERM $pid; wait $pid 2> /dev/null
code=$?
if [ $code -eq 143 ]; then ok ended; else bad ended "exit code $code, not 143"; fi
if ls "$work"/kept/* "$work"/tiny* 2> /dev/null | grep -v '/tiny\.model$' >&2
then bad nothing-left "temporary files stay behind"; else ok nothing-left; fi

# A result replaces none of the files that it is made from.
echo 'func twice(x) { return 2 * x }' > "$work/part.inc"
echo '1,2,3,4,5' > "$work/numbers.csv"
(echo 'include "part.inc"'; cat "$work/tiny.model"; cat << 'MODEL'
train { data = csv("numbers.csv", val: "n*.csv") { x = cols(0..4), y = col(4) } }
MODEL
) > "$work/parts.model"
cd "$work" || exit
expect overwrite 1 'the output would overwrite the model' "$g" --emit=c "$t" -o "$t"
expect overwrite-included 1 'the output would overwrite a file of the model: part.inc' \
    "$g" --emit=c parts.model -o part.inc
expect overwrite-data 1 'parts.model:9:20: error: the output would overwrite these data: numbers.csv' \
    "$g" parts.model -o numbers.csv
expect overwrite-data-by-tree 1 'the output would overwrite these data: numbers.csv' \
    "$g" --emit=ast parts.model -o numbers.csv
expect overwrite-by-rule 1 'the output would overwrite a file of the model: part.inc' \
    "$g" --emit=c -MD -MF part.inc parts.model -o parts.c
if [ "$(cat numbers.csv)" = 1,2,3,4,5 ] && grep -q twice part.inc; then ok inputs-kept
else bad inputs-kept "a file of the model was changed"; fi
cd - > /dev/null || exit

# An installation elsewhere finds nothing beside itself and says so.
mkdir -p "$work/x/bin" "$work/x/share/gradcc"
cp "$g" "$work/x/bin/"
expect no-prelude 1 'prelude.model is not beside this gradcc' "$work/x/bin/gradcc" --emit=c "$t"
expect no-prelude-hint 1 'hint: build gradcc with make, or install it with make install' \
    "$work/x/bin/gradcc" --emit=c "$t"
cp models/prelude.model "$work/x/share/gradcc/"
expect moved 0 'const RtModel tiny' "$work/x/bin/gradcc" --emit=c "$t"
expect no-runtime 1 'the runtime (rt.h, libgradcc_rt.a) is not beside this gradcc' \
    "$work/x/bin/gradcc" "$t" -o "$work/tiny"
expect no-runtime-hint 1 'hint: build it with make, install it with make install' \
    "$work/x/bin/gradcc" "$t" -o "$work/tiny"

# All or nothing: after an error the old file is as it was, and nothing else lies there.
mkdir "$work/out"; echo old > "$work/out/a.c"
"$g" --emit=c "$work/wrong.model" -o "$work/out/a.c" 2> /dev/null
if [ "$(cat "$work/out/a.c")" = old ] && [ "$(ls "$work/out")" = a.c ]; then ok atomic
else bad atomic "an error changed the output"; fi

# The same bytes, wherever the model lies and wherever it is called from.
"$g" --emit=c "$t" > "$work/1.c"
(cd "$work" && "$g" --emit=c "$t") > "$work/2.c"
if cmp -s "$work/1.c" "$work/2.c"; then ok same-bytes; else bad same-bytes "two runs differ"; fi
if grep -q "$work" "$work/1.c"; then bad no-paths "an absolute path is in the output"; else ok no-paths; fi

# IR text goes both ways.
"$g" --emit=ir "$t" > "$work/a.ir" && "$g" --ir "$work/a.ir" --only=simplify > "$work/b.ir" 2> "$work/err"
"$g" --ir "$work/b.ir" --only=simplify > "$work/c.ir" 2>> "$work/err"
if [ -s "$work/b.ir" ] && cmp -s "$work/b.ir" "$work/c.ir"; then ok ir-both-ways
else cat "$work/err" >&2; bad ir-both-ways "reading IR and printing it differ"; fi

# An executable.
if "$g" "$t" -o "$work/tiny" 2> "$work/err" && "$work/tiny" --help > "$work/help" 2>&1 && [ -s "$work/help" ]
then ok executable; else cat "$work/err" >&2; bad executable "it is not built or does not start"; fi
expect gpu-option 2 '--device: tiny was compiled for processors' "$work/tiny" --device 0
expect gpu-option-hint 2 'hint: for GPUs compile again: gradcc --target=cuda' "$work/tiny" --device 0

# Indexes that are proven to be inside their table.
cat > "$work/indexes.model" <<'MODEL'
batch B
dim T <= 8
const V = 7
model m(t: int[B, T] in 0..V or -100, u: int[B, T] in 0..20) {
    e : embedding[V, 4]
    a = e(where(t < 0, 0, t))
    b = e(where(t == -100, 0, t))
    c = e(where(t != -100, t, V - 1))
    d = e(where(t >= 0, t, 0))
    f = e(where(u < V, u, 0))
    g = e(where(u >= V, 0, u))
    h = e(where(not (u > 6), u, 3))
    i = e(max(t, 0))
    j = e(min(u, V - 1))
    k = e(u % V)
    l = e(where(u > 2 and u < 5, u, 0))
    r = e((u // 10) * 3 + u % 3)
    n = e(where(t < 0 or t >= 3, 0, t))
    p = e(clamp(t, 0, 6))
    q = e(u // 3)
    loss = mean(a + b + c + d + f + g + h + i + j + k + l + n+p+q+r)
}
MODEL
expect indexes 0 'const RtModel m' "$g" --emit=c "$work/indexes.model"
