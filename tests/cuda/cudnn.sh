#!/usr/bin/env bash
# Attention by cuDNN (RT_ATTENTION=cudnn). The real library, where it is: the numbers that the runtime
# has of it, and plans for GPUs that are not here. The simulated one: models against the evaluator, a
# training, checkpoints that go on by the same kernels, what can be wrong with the library.
# Usage: cudnn.sh (from run.sh); prints ok and not ok lines.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
: "${BUILD:=$root/build}"
mkdir -p "$BUILD"; BUILD=$(cd "$BUILD" && pwd)
: "${GRADCC:=$BUILD/gradcc}"
export BUILD GRADCC
work=$BUILD/tests-cuda/cudnn
rm -rf "$work"; mkdir -p "$work"
cd "$work" || exit 1
export CI=1 OMP_NUM_THREADS=2 RT_CUDA_CACHE=none

ok() { echo "ok cuda/cudnn/$1"; }
bad() { echo "not ok cuda/cudnn/$1: $2"; }

# ---- where libraries are looked for --------------------------------------------------------------

# found NAME WANTED FILE...: what test_library says with these libraries in home, all but `good` damaged
found() {
    local name=$1 wanted=$2 said file; shift 2
    rm -rf home; mkdir -p home/lib64 home/lib home/path
    for file in "$@"; do
        if [ "${file##*=}" = good ]; then cp good.so "home/${file%=good}/libgradcc_test.so.9"
        else echo damaged > "home/$file/libgradcc_test.so.9"; fi
    done
    said=$(LD_LIBRARY_PATH=$work/home/path CUDA_HOME=$work/home ./test_library libgradcc_test.so.9)
    case $said in "$wanted"*) ok "library-$name" ;; *) bad "library-$name" "$said" ;; esac
}
if { "$root/tests/cudasim/cc.sh" -w -o test_library "$here/test_library.cu" "$root/runtime/cuda/library.cu" &&
     echo 'int good;' | "${CC:-gcc}" -shared -fPIC -x c -o good.so -; } > library.log 2>&1; then
    found none 'libgradcc_test.so.9: cannot open'
    found lib64 open lib64=good
    found lib open lib=good
    found path open path=good lib64
    found behind-damaged open path lib64 lib=good
    found damaged "$work/home/lib64/libgradcc_test.so.9: " lib64
    found damaged-first "$work/home/path/libgradcc_test.so.9: " path lib
    found damaged-last "$work/home/lib/libgradcc_test.so.9: " lib
    said=$(./test_library libgradcc_test.so.9 "$work/good.so")
    [ "$said" = open ] && ok library-file || bad library-file "$said"
else
    bad library "$(grep -m1 -E 'error|undefined' library.log)"
fi

# ---- the real library ----------------------------------------------------------------------------

nvcc=${NVCC:-$(PATH=$PATH:/usr/local/cuda/bin command -v nvcc)}
cuda=${nvcc:+$(dirname "$(dirname "$(realpath "$nvcc")")")}
packages=$(python3 -c 'import nvidia.cudnn as c; print(list(c.__path__)[0])' 2> /dev/null)

# numbers NAME HEADER FOLDER: of the enumerators that cudnn_api.h has, and sizes of types
numbers() {
    printf '#include <cstdio>\n#include <%s>\nint main() {\n' "$2" > "$1.cc"
    grep -ohE '\bCUDNN_[A-Z0-9_]+ = ' "$root/runtime/cuda/cudnn_api.h" | sort -u |
        sed 's/\(.*\) = /printf("\1 %d\\n", (int)\1);/' >> "$1.cc"
    for type in Status BackendDescriptorType BackendAttributeName BackendAttributeType BackendDescriptor; do
        echo "printf(\"$type %zu\\n\", sizeof(cudnn${type}_t));" >> "$1.cc"
    done
    echo '}' >> "$1.cc"
    "${CXX:-g++}" -w -std=c++20 $3 -o "$1" "$1.cc" 2> "$1.err" && "./$1" > "$1.txt"
}

tried=
for folder in ${cuda:+"$cuda/include"} ${packages:+"$packages/include"}; do
    [ -e "$folder/cudnn_graph.h" ] || continue
    tried=1
    if numbers ours cuda/cudnn_api.h "-I$root/runtime -I$root/tests/cudasim/include" &&
       numbers theirs cudnn_graph.h "-isystem $folder -isystem ${cuda:-/usr}/include"; then
        if [ "$(wc -l < ours.txt)" -lt 80 ]; then bad numbers "only $(wc -l < ours.txt) names"
        elif cmp -s ours.txt theirs.txt; then
            ok "numbers-$(sed -n 's/^#define CUDNN_M[AI][JN]OR //p' "$folder/cudnn_version.h" | paste -sd.)"
        else bad numbers "$folder: $(diff ours.txt theirs.txt | grep -m1 '^[<>]')"; fi
    else
        bad numbers "$(cat ours.err theirs.err | grep -m1 error)"
    fi
done
[ -n "$tried" ] || echo "skip cuda/cudnn/numbers: no headers of cuDNN here"

# A driver that takes kernels and hands out handles: all that cuDNN asks of one to finish a plan.
stand_in() {
    mkdir -p driver
    nm -D --defined-only "$cuda/lib64/stubs/libcuda.so" | awk '
        $3 !~ /^cu/ { next }
        $3 ~ /^cu(LibraryLoadData|LibraryGet(Kernel|Module)|ModuleLoadData(Ex)?|ModuleGetFunction|KernelGetFunction)$/ {
            print "int " $3 "(void **to) { *to = to; return 0; }"; next }
        { print "int " $3 "(void) { return " ($3 ~ /^cu(Library|Kernel|Module|Func|Occupancy)/ ? 0 : 34) "; }" }' > driver.c
    "${CC:-gcc}" -w -shared -fPIC -Wl,-soname,libcuda.so.1 -o driver/libcuda.so.1 driver.c
}

# plans LIBRARY: for each architecture; the first line is the version
plans() {
    local arch folder version
    folder=$(dirname "$1")
    for arch in 90 80; do
        if LD_LIBRARY_PATH=$work/driver:$folder:$cuda/lib64 RT_CUDNN=$1 timeout 300 ./plans $arch > "plans-$arch" 2>&1; then
            version=$(head -n 1 "plans-$arch")
            cat "plans-$arch" >&2
            ok "plans-$version-sm_$arch"
        else bad "plans-sm_$arch" "$1: $(tail -n +2 "plans-$arch" | grep -m1 -v planned || tail -n 1 "plans-$arch")"; fi
    done
}

libraries=
for found in ${cuda:+"$cuda"/lib*/libcudnn.so.9} ${packages:+"$packages/lib/libcudnn.so.9"}; do
    case "$libraries " in *" $(realpath "$found") "*) continue ;; esac
    [ -e "$found" ] && libraries="$libraries $(realpath "$found")"
done
if [ -z "$libraries" ]; then
    echo "skip cuda/cudnn/plans: no cuDNN here"
elif [ ! -e "$cuda/lib64/stubs/libcuda.so" ]; then
    echo "skip cuda/cudnn/plans: no CUDA toolkit here (libcuda.so of its stubs)"
elif ! { stand_in && "$root/tests/cudasim/cc.sh" -Wno-missing-field-initializers -o plans "$here/test_cudnn.cu" \
             "$root"/runtime/cuda/{attention_cudnn,cudnn,cudnn_graph,library}.cu; } > plans.log 2>&1; then
    bad plans "$(grep -m1 -E 'error|undefined' plans.log)"
else
    for library in $libraries; do
        plans "$library"
    done
fi

# ---- models against the evaluator ------------------------------------------------------------------

# Heads of 8 values are the shortest that cuDNN takes.
sed 's/ C = 8,/ C = 16,/' "$root/tests/run/gpt.model" > gpt.model
sed 's/ C = 12, H = 4, Hkv = 2,/ C = 16, H = 2, Hkv = 1,/; s/\[C, 5\]/[C, 8]/; s/H\*5/H*8/' "$root/tests/run/shared_heads.model" > shared_heads.model
RT_ATTENTION=cudnn TARGET=simulator AREA=cuda/cudnn-models VARIANTS="bf16 fp16" "$root/tests/run/run.sh" "$work"/{gpt,shared_heads}.model

# ---- a training ------------------------------------------------------------------------------------

LC_ALL=C tr -cd '\12\40-\176' < "$root/README.md" | head -c 20000 > text.txt
small="-D V=96 -D C=32 -D H=2 -D L=2 -D Tmax=16"
common="--data text.txt --dims T=12 --batch 4 --accumulate 2 --warmup 1 --seed 5 --eval 0"

# build NAME OPTIONS...
build() {
    local name=$1; shift
    # shellcheck disable=SC2086
    "$GRADCC" --target=cuda --emit=cuda $small "$@" "$root/models/chargpt.model" -o "$name.cu" >&2 &&
        "$root/tests/cudasim/cc.sh" --runtime -w -o "$name.gpu" "$name.cu" >&2 && return
    bad "$name" "does not compile"
    return 1
}
# run NAME WANTED [VARIABLE=VALUE...] -- OPTIONS: goes well and prints this
run() {
    local name=$1 wanted=$2 vars=(); shift 2
    while [ "$1" != -- ]; do vars+=("$1"); shift; done
    shift
    # shellcheck disable=SC2086
    if ! env "${vars[@]}" ./gpt.gpu $common "$@" --out "$name" > "$name.log" 2>&1; then
        bad "$name" "$(tail -n 2 "$name.log" | tr '\n' ' ')"
    elif ! grep -qF -- "$wanted" "$name.log"; then bad "$name" "no '$wanted': $(grep attention "$name.log")"
    elif grep -q 'more than planned' "$name.log"; then bad "$name" "more memory than planned"
    else ok "$name"; fi
}
# refused NAME CODE WANTED VARIABLE=VALUE...: one message
refused() {
    local name=$1 code=$2 wanted=$3 rc; shift 3
    # shellcheck disable=SC2086
    env "$@" timeout 60 ./gpt.gpu $common --steps 2 --out none > "$name.log" 2>&1; rc=$?
    if [ $rc -ne "$code" ]; then bad "$name" "exit code $rc: $(tail -n 2 "$name.log" | tr '\n' ' ')"
    elif [ "$(grep -c '^error: ' "$name.log")" != 1 ] || ! grep -qF -- "$wanted" "$name.log"; then
        bad "$name" "wanted '$wanted': $(grep -A1 '^error' "$name.log" | tr '\n' ' ')"
    else ok "$name"; fi
}
same() {
    if cmp -s "$2/step-00000004/model.safetensors" "$3/step-00000004/model.safetensors"; then ok "$1"
    else bad "$1" "other parameters"; fi
}

build gpt --precision=bf16 || exit 0
run own 'attention own kernels (RT_ATTENTION=cudnn takes cuDNN' X=1 -- --steps 4 --save 2
run by-cudnn 'attention cuDNN 9.19.0: 2 shapes' RT_ATTENTION=cudnn -- --steps 4 --save 2
why=$(python3 "$here/curves.py" 2e-2 own/metrics.jsonl by-cudnn/metrics.jsonl 2>&1) && ok curves || bad curves "$why"
for way in "CUDASIM_STREAMS=early CUDASIM_ORDER=reverse" RT_CUDA_GRAPH=0; do
    # shellcheck disable=SC2086
    run "again-${way%%=*}" 'cuDNN 9.19.0' RT_ATTENTION=cudnn $way -- --steps 4 --save 2
    same "same-${way%%=*}" by-cudnn "again-${way%%=*}"
done
# A run goes on by what it began with, unless it is told otherwise.
for name in follows changes; do cp -r by-cudnn $name; rm -rf $name/step-00000004; done
run follows 'attention cuDNN 9.19.0: 2 shapes' X=1 -- --steps 4 --save 2 --resume auto
same follows-exactly by-cudnn follows
if grep -q 'bit for bit' follows.log; then bad follows-quietly "$(grep 'bit for bit' follows.log)"; else ok follows-quietly; fi
run changes "attention of the checkpoint's run was computed by cuDNN 9.19.0, this one's is by own kernels" \
    RT_ATTENTION=own -- --steps 4 --save 2 --resume auto
cp -r by-cudnn other-version; rm -rf other-version/step-00000004
sed -i 's/attention cuDNN 9.19.0/attention cuDNN 9.18.1/' other-version/step-00000002/manifest.json
run other-version "was computed by cuDNN 9.18.1, this one's is by cuDNN 9.19.0" X=1 -- --steps 4 --save 2 --resume auto
run plain 'attention cuDNN 9.19.0: 2 shapes' RT_ATTENTION=cudnn RT_MATMUL=plain -- --steps 2 --save 2
run no-engine 'attention cuDNN 9.19.0: 0 shapes; own kernels for 2: cuDNN has no engine for it' \
    RT_ATTENTION=cudnn CUDASIM_CUDNN=none -- --steps 4 --save 4
same own-instead own no-engine
grep -q 'cudnn_attention_grad, chargpt.model:' <(RT_CUDA_PROFILE=$work/profile.txt RT_ATTENTION=cudnn \
    ./gpt.gpu $common --steps 3 --out none > profile.log 2>&1; cat profile.txt) && ok profile || bad profile "$(tail -n 2 profile.log)"

refused setting 2 'RT_ATTENTION=flash is none of own|cudnn' RT_ATTENTION=flash
refused missing 1 'cuDNN, which is to compute attention, is missing: ' RT_ATTENTION=cudnn RT_CUDNN=/none/libcudnn.so.9
refused missing-hint 1 'or take own kernels: RT_ATTENTION=own' RT_ATTENTION=cudnn RT_CUDNN=/none/libcudnn.so.9
refused other 1 'cuDNN is too old: it has no cudnnGetVersion' RT_ATTENTION=cudnn RT_CUDNN=libm.so.6
refused old 1 'cuDNN 9.10.2 is here, wanted is 9.16 to 9.99' RT_ATTENTION=cudnn CUDASIM_CUDNN=old
refused start 1 'cuDNN 9.19.0 does not start: cudnnCreate: CUDNN_STATUS_INTERNAL_ERROR' \
    RT_ATTENTION=cudnn CUDASIM_FAIL=cudnnCreate:1:CUDNN_STATUS_INTERNAL_ERROR
refused fails 1 'cudnnBackendExecute: CUDNN_STATUS_EXECUTION_FAILED of cuDNN 9.19.0' \
    RT_ATTENTION=cudnn CUDASIM_FAIL=cudnnBackendExecute:2:CUDNN_STATUS_EXECUTION_FAILED
refused fails-where 1 'chargpt.model:' \
    RT_ATTENTION=cudnn CUDASIM_FAIL=cudnnBackendExecute:3:CUDNN_STATUS_EXECUTION_FAILED
if build wide && ./wide.gpu --help > /dev/null; then
    mv wide.gpu gpt.gpu
    run wide 'attention own kernels: cuDNN' RT_ATTENTION=cudnn -- --steps 2 --save 2
fi
