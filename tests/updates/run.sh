#!/usr/bin/env bash
# Updates of the CUDA target, in the simulator of tests/cudasim, against those of the CPU: functions
# in one program, where what both have is renamed for the device (names.h); then whole programs.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
: "${BUILD:=$root/build}"
export BUILD
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cc=$root/tests/cudasim/cc.sh cuda=$root/runtime/cuda
objects=
for f in tables norm optim lamb adafactor muon; do
    "$cc" -include "$here/names.h" -c -o "$f.o" "$cuda/$f.cu" 2> log ||
        { echo "not ok updates/$f: $(grep -m 1 error log)"; exit 1; }
    objects="$objects $f.o"
done
if "$cc" -include "$here/names.h" -I"$here" -c -o gpu.o "$here/gpu.cu" 2> log &&
    "$cc" -I"$here" -fopenmp -Wno-unused-function -o updates "$here/cpu.c" "$here/test_updates.c" gpu.o $objects \
        "$BUILD/libgradcc_rt.a" $(cat "$BUILD/rt.libs") 2>> log; then
    ./updates 2> log || echo "not ok updates/program: exit code $?: $(head -n 1 log)"
    cat log >&2
    CUDASIM_ORDER=reverse ./updates > said 2> log && ! grep -q '^not ok' said &&
        echo "ok updates/reverse order" || echo "not ok updates/reverse order: $(cat said log | grep -v '^ok' | head -n 1)"
else
    echo "not ok updates/build: $(grep -m 1 -i error log)"
fi

# ---- programs: six updates of each target end in the same checkpoint -------------------------------

: "${GRADCC:=$BUILD/gradcc}"
awk 'BEGIN { srand(4); for (i = 0; i < 200; i++) { a = rand() - 0.5; b = rand() - 0.5
    printf "%.4f,%.4f,%.4f,%d\n", a, b, rand() - 0.5, (a > 0) + (b > 0.1) } }' > net.csv

# program NAME BOUND [gradcc options]: of the largest difference, against the largest value
program() {
    local name=$1 bound=$2 said; shift 2
    if ! "$GRADCC" "$@" "$here/net.model" -o "$name.c" > log 2>&1 ||
        ! "$GRADCC" --emit=cuda "$@" "$here/net.model" > "$name.cu" 2> log ||
        ! "$cc" --runtime -o "$name.g" "$name.cu" > log 2>&1; then
        echo "not ok updates/$name: $(grep -m 1 -i -E 'error|undefined' log)"; return
    fi
    ./"$name.c" --out "$name.on.c" > log 2>&1 && ./"$name.g" --out "$name.on.g" > log 2>&1 ||
        { echo "not ok updates/$name: $(tail -n 1 log)"; return; }
    said=$(python3 "$here/compare.py" "$name".on.[cg]/step-00000006 "$bound" 2>&1) &&
        echo "ok updates/$name ($said)" || echo "not ok updates/$name: $said"
}
program adamw-fp64 1e-11 --precision=fp64
program sgd-clip-value 1e-5 -D clip_value=0.01 -D 'optimizer=sgd(lr: 0.1, momentum: 0.9, nesterov: true)' -D accumulate=3
program own-rule 1e-5 -D 'optimizer=slow(lr: 0.1, weight_decay: 0.01)'
program rmsprop-fp16 3e-2 --precision=fp16 -D 'optimizer=rmsprop(lr: 1e-3, centered: true, momentum: 0.5)'
program no-masters 3e-2 --precision=bf16 -D masters=none
program lamb-bf16 3e-2 --precision=bf16 -D 'optimizer=lamb(lr: 0.02)'
program adafactor 1e-4 -D 'optimizer=adafactor(lr: 0.05)'
program muon-fp64 1e-8 --precision=fp64 -D 'optimizer=muon(lr: 0.05, adamw_factor: 0.2, except: "head.*")'

# Updates that are not finite are left out on both, and the loss scale follows.
for t in c g; do
    ./rmsprop-fp16.$t --out skips.$t --loss-scale 1e8 --steps 24 --scale-interval 2 > skips.log.$t 2>&1
done
skipped=$(grep '^skipped  [1-9]' skips.log.c)
said=$(python3 "$here/compare.py" skips.[cg]/step-00000024 3e-2 2>&1) && [ -n "$skipped" ] &&
    [ "$skipped" = "$(grep '^skipped' skips.log.g)" ] && echo "ok updates/skips ($skipped; $said)" ||
    echo "not ok updates/skips: $said; $(cat skips.log.[cg] | grep skipped)"

# --explain=traffic has what these launches move of the 124.4 million parameters of GPT-2: 4 bytes for
# the norm, 28 by AdamW, 30 with a copy in 16 bits, 8 more with an average of the weights.
moves() {
    local name=$1 wanted=$2 said; shift 2
    said=$("$GRADCC" --explain=traffic --target=cuda "$@" "$root/models/gpt2.model" |
        awk '/^(rt_finite_and_norm|rt_clip_value|gpt2_update) / { printf "%s ", $5 }')
    [ "$said" = "$wanted " ] && echo "ok updates/$name" || echo "not ok updates/$name: $said"
}
moves moves-fp32 '497.8 3484.3'
moves moves-bf16 '497.8 3733.2' --precision=bf16
moves moves-average '497.8 995.5 4479.8' -D ema=0.99 -D clip_value=1
moves moves-sgd '497.8 1493.3' -D 'optimizer=sgd(lr: 0.1)'

# launches NAME [gradcc options]: as many behind the last micro-step as --explain=traffic says, and in
# all of an update, counted in a program made above; 15 of the 23 that a matrix of Muon takes are
# products
launches() {
    local name=$1 said took all; shift
    said=$("$GRADCC" --explain=traffic --target=cuda "$@" "$here/net.model" |
        sed -n 's/^\([0-9]*\) launches for norm, clipping and the update.*/\1/p')
    CUDASIM_TRAFFIC=$name.traffic ./"$name.g" --out none > log 2>&1
    took=$(awk '$1 ~ /^g_(norm|clip_value|lamb|adafactor|muon|net_update)/ { n += $2 }
        $1 ~ /^g_muon_momentum/ { n += 15 * $2 } END { print n / 6 }' "$name.traffic")
    [ -n "$said" ] && [ "$said" = "$took" ] && echo "ok updates/$name-launches" ||
        echo "not ok updates/$name-launches: $took, said are $said"
    counted "$name" "$here/net.model" "" "$@"
}
# counted NAME MODEL "ARGUMENTS" [gradcc options]: all launches of an update, by RT_CUDA_PROFILE, but
# those of a bias that cuBLASLt does not add; without epilogues of products, and with them
counted() {
    local name=$1 model=$2 arguments=$3 said took way; shift 3
    "$GRADCC" --explain=traffic --target=cuda "$@" "$model" | sed -n 's/^.*: \([0-9]*\) in all\.$/\1/p' > said
    for way in off on; do
        [ $way = off ] && said=$(head -n 1 said) || said=$(tail -n 1 said)
        # shellcheck disable=SC2086
        RT_CUDA_EPILOGUE=$way RT_CUDA_PROFILE=$name.profile ./"$name.g" $arguments --steps 3 --out none > log 2>&1
        took=$(sed -n 's/^.*left out: \([0-9]*\) launches.*/\1/p' "$name.profile")
        took=$((took - $(awk '/g_product_rows/ { n += $2 } END { print n + 0 }' "$name.profile")))
        [ -n "$said" ] && [ "$said" = "$took" ] && echo "ok updates/$name-launches-in-all-$way" ||
            echo "not ok updates/$name-launches-in-all-$way: $took, said are $said; $(tail -n 1 log)"
    done
}
launches sgd-clip-value -D clip_value=0.01 -D 'optimizer=sgd(lr: 0.1, momentum: 0.9, nesterov: true)' -D accumulate=3
launches lamb-bf16 --precision=bf16 -D 'optimizer=lamb(lr: 0.02)'
launches adafactor -D 'optimizer=adafactor(lr: 0.05)'
launches muon-fp64 --precision=fp64 -D 'optimizer=muon(lr: 0.05, adamw_factor: 0.2, except: "head.*")'

# A network with attention, scatters of one and of two passes, random masks and a loss in parts.
cat "$root/README.md" > text.txt
gpt=(-D V=300 -D C=32 -D H=2 -D L=2 -D Tmax=16 -D rate=0.1 -D batch=4 --precision=bf16)
for micro in 1 2; do
    if "$GRADCC" --emit=cuda "${gpt[@]}" -D accumulate=$micro "$root/models/chargpt.model" > gpt-$micro.cu 2> log &&
        "$cc" --runtime -o gpt-$micro.g gpt-$micro.cu > log 2>&1
    then counted gpt-$micro "$root/models/chargpt.model" "--data text.txt --eval 0 --dims T=8" "${gpt[@]}" -D accumulate=$micro
    else echo "not ok updates/gpt-$micro: $(grep -m 1 -i -E 'error|undefined' log)"; fi
done
