#!/usr/bin/env bash
# A whole program with a compute copy in 16 bits: what it says, what it keeps, and that it goes on
# as it began. Called by run.sh with work, BUILD and CC in the environment.
set -u
here=$PWD
flags="-std=c11 -O2 -g -fopenmp -ffp-contract=off -Wall -Wextra -Wshadow -Wconversion -Werror"
dir=$work/precision
rm -rf "$dir"; mkdir -p "$dir"; cd "$dir" || exit 1

build() {                                       # build NAME [FLAG ...]
    local name=$1
    shift
    $CC $flags "$@" -I"$here/../../runtime" "$here/linear.c" "$BUILD/libgradcc_rt.a" $(cat "$BUILD/rt.libs") -o "$name"
}
build fp32 && build bf16 -DCOMPUTE=RT_BF16 -DOF=rt_of_bf16 && build fp16 -DCOMPUTE=RT_F16 -DOF=rt_of_f16 ||
    { echo "not ok runtime/precision: does not compile"; exit 1; }
awk 'BEGIN { srand(1); print "a,b,c,price"
    for (i = 0; i < 500; i++) { a = rand()*4 + 3; b = rand() - 2; c = rand()
        printf "%.5f,%.5f,%.5f,%.5f\n", a, b, c, 2*a - b + c/2 + 3 + (rand() - 0.5)/5 } }' > linear.csv

ok() { echo "ok runtime/precision/$1"; }
bad() { echo "not ok runtime/precision/$1: $2"; }
says() {                                        # says NAME TEXT command...
    local name=$1 text=$2
    shift 2
    "$@" > said.out 2> said.err || { bad "$name" "exit code $?: $(tail -n 1 said.err)"; return; }
    grep -qF -- "$text" said.out said.err && ok "$name" || bad "$name" "does not say '$text': $(head -n 3 said.out)"
}
loss() { "$@" 2> loss.err | sed -n 's/^loss //p'; }
same() { cmp -s "$2/model.safetensors" "$3/model.safetensors" && ok "$1" || bad "$1" "$2 and $3 differ"; }

for kind in fp32 bf16 fp16; do ./$kind --out $kind.run --lr 0.2 > $kind.out || bad trains $kind; done
want=$(loss ./fp32 eval --out fp32.run)
for kind in bf16 fp16; do
    is=$(loss ./$kind eval --out $kind.run)
    awk -v a="$is" -v b="$want" 'BEGIN { exit !(a > 0 && a != b && a < 1.5 * b + 0.003) }' && ok "$kind-trains" ||
        bad "$kind-trains" "loss $is, $want in fp32"
    says "$kind-header" "7 parameters (3 decayed), $kind, compiled" ./$kind --dry-run --out none
    says "$kind-memory" "parameters 28 bytes, 16-bit copy 14 bytes, gradient 28 bytes" ./$kind --dry-run --out none
    says "$kind-help" "7 parameters, $kind" ./$kind --help
    grep -q "\"precision\": \"$kind\"" $kind.run/config.json && ok "$kind-config" || bad "$kind-config" "no precision"
    ./$kind --out $kind.one --steps 60 --save 25 > one.out &&
        ./$kind --out $kind.two --resume $kind.one/step-00000050 --steps 60 > two.out
    same "$kind-resume-is-exact" $kind.one/step-00000060 $kind.two/step-00000060
done
says loss-scale "scale    of the loss: from 65536, times 2 after 2000 finite updates; one that is not multiplies it by 0.5 and is skipped" ./fp16 --dry-run --out none
says no-loss-scale "scale    none: small gradients may be 0 in fp16" ./fp16 --loss-scale 0 --dry-run --out none
says loss-scale-stop "one that is not stops the run" ./fp16 --nonfinite stop --dry-run --out none
says loss-scale-help "--loss-scale X" ./fp16 --help
./fp16 --loss-scale 0.5 --out none > said.out 2> said.err
[ $? = 2 ] && grep -qF -- '--loss-scale 0.5: wants 1 or more, or 0 for none' said.err && ok small-loss-scale ||
    bad small-loss-scale "$(tail -n 1 said.err)"

# refused NAME TEXT OPTION...
refused() {
    local name=$1 text=$2; shift 2
    ./fp16 "$@" --out none > said.out 2> said.err
    [ $? = 2 ] && grep -qF -- "$text" said.err && ok "$name" || bad "$name" "$(head -n 1 said.err)"
}
refused clip-0 '--clip 0: wants a number above 0' --clip 0
refused clip-0-hint 'hint: to compile without: gradcc -D clip=0' --clip 0

# Gradients in 32 bits are in range at all these scales, so that parameters are the same to the bit.
for scale in 1 1024 0; do ./fp16 --loss-scale $scale --out scale.$scale --clip 0.5 > scale.out || bad trains "scale $scale"; done
for scale in 1024 0; do same scale-$scale-is-exact scale.1/step-00000400 scale.$scale/step-00000400; done
norms() { sed -n 's/.*"grad_norm": \([^,]*\).*/\1/p' $1/metrics.jsonl | cksum; }
[ "$(norms scale.1)" = "$(norms scale.1024)" ] && ok norm-without-scale || bad norm-without-scale "norms differ"

# Resume inside an interval: the same scale and the same count to the next growth.
./fp16 --scale-interval 7 --out grow.one --steps 60 --save 25 > one.out &&
    ./fp16 --out grow.two --resume grow.one/step-00000050 --steps 60 > two.out
says resume-tells-scale "loss scale 8.38861e+06" \
    ./fp16 --out none --resume grow.one/step-00000050 --steps 60 --dry-run
for run in one two; do grep -q '"loss_scale": 16777216, "scale_tracker": 4,' grow.$run/step-00000060/manifest.json &&
    ok resume-scale-$run || bad resume-scale-$run "$(grep loss_scale grow.$run/step-00000060/manifest.json)"; done
./fp16 --out grow.three --resume grow.one/step-00000050 --steps 52 --loss-scale 8 > three.out
grep -q '"loss_scale": 8, "scale_tracker": 2,' grow.three/step-00000052/manifest.json && ok resume-new-scale ||
    bad resume-new-scale "$(grep loss_scale grow.three/step-00000052/manifest.json)"

# A program of another precision says so, and treats what is not finite in its own way.
says resume-other-precision "changed  precision bf16 -> fp16 (fixed when the program was compiled)" \
    ./fp16 --resume bf16.one/step-00000060 --steps 61 --out other
grep -q '"nonfinite": "stop"' bf16.one/config.json && grep -q '"nonfinite": "skip"' other/config.json &&
    ok other-nonfinite || bad other-nonfinite "$(grep nonfinite other/config.json)"

grep -q '^compute' fp32.out && bad fp32-has-no-copy "it says so" || ok fp32-has-no-copy
says fp16-compute "compute  fp16 beside fp32 parameters, gradients and optimizer; products in fp32, unpacked block by block" \
    ./fp16 --dry-run --out none
says bf16-compute "(RT_MATMUL_BF16)" env RT_MATMUL_BF16=unpack ./bf16 --dry-run --out none
says bf16-measured "(the faster way here)" ./bf16 --dry-run --out none
grep -q products fp16.run/step-*/manifest.json && bad fp16-manifest "products" || ok fp16-manifest

# The choice of a run is kept with it.
for way in unpack native; do
    RT_MATMUL_BF16=$way ./bf16 --out $way --steps 10 > way.out 2> way.err
    grep -q 'cannot be native' way.err && continue
    grep -q "\"products\": \"$way\"" $way/step-00000010/manifest.json && ok "$way-is-kept" || bad "$way-is-kept" "no $way"
    says "$way-goes-on" "(as before)" ./bf16 --out $way --resume auto --steps 20
    grep -q "\"products\": \"$way\"" $way/step-00000020/manifest.json && ok "$way-stays" || bad "$way-stays" "no $way"
done
if [ -e native/step-00000020 ] && ! grep -q 'cannot be native' way.err; then
    says other-way "changed  products native -> unpack: results agree to rounding, not bit for bit" \
        env RT_MATMUL_BF16=unpack ./bf16 --out native --resume auto --steps 30
fi
