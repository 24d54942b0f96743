#!/usr/bin/env bash
# Gradients of whole models: central differences and split invariance in fp64, PyTorch's fixtures in fp32.
set -u
here=$(cd "$(dirname "$0")" && pwd); root=$here/../..
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
renames=$(sed -n 's/^void h_\([a-z_]*\)(RtRun.*;$/-Drt_\1=h_\1/p' "$here/harness.c" | tr '\n' ' ')

# build NAME MODEL_FILE FLAGS...: leaves $tmp/NAME
build() {
    local name=$1 file=$2; shift 2
    local model; model=$(sed -n 's/^model \([A-Za-z_0-9]*\).*/\1/p' "$file" | head -n 1)
    "$GRADCC" --emit=c -o "$tmp/$name.c" "$@" "$file" >&2 &&
    $CC -std=c11 -D_GNU_SOURCE -O2 -march=native -fopenmp -ffp-contract=off -DRT_LIBRARY "-DMODEL=$model" $renames \
        -I"$root/runtime" -o "$tmp/$name" "$tmp/$name.c" "$here/harness.c" \
        -L"$BUILD" -lgradcc_rt $(cat "$BUILD/rt.libs") >&2
}

# report NAME COMMAND...: the harness's line becomes a test line
report() {
    local name=$1 line; shift
    line=$("$@" 2>&1 | tail -n 1)
    case $line in
        ok*) echo "ok $name"; echo "$name: $line" >&2 ;;
        *)   echo "not ok $name: ${line#not ok: }" ;;
    esac
}

fp64() {            # fp64 NAME MODEL DIMS FLAGS...
    local name=$1 file=$2 dims=$3; shift 3
    if build "$name" "$file" --precision fp64 "$@"; then
        report "$name-differences" "$tmp/$name" differences $dims
        report "$name-split" "$tmp/$name" split $dims
    else
        echo "not ok $name: does not compile"
    fi
}

fixture() {         # fixture NAME MODEL DIMS FLAGS...
    local name=$1 file=$2 dims=$3; shift 3
    if build "$name-32" "$file" "$@"; then
        report "$name-pytorch" "$tmp/$name-32" fixture "$here/$name.fixture" $dims
    else
        echo "not ok $name-pytorch: does not compile"
    fi
}

models=$root/models
small_gpt="-D V=19 -D C=16 -D H=2 -D L=3 -D Tmax=8"
fp64 digits_mlp "$models/digits_mlp.model" ""
fp64 chargpt "$models/chargpt.model" "T=7" $small_gpt -D rate=0.0
fp64 chargpt-dropout "$models/chargpt.model" "T=7" $small_gpt -D rate=0.2
fp64 gpt2 "$models/gpt2.model" "T=7" $small_gpt
fixture digits_mlp "$models/digits_mlp.model" ""
fixture chargpt "$models/chargpt.model" "T=7" $small_gpt -D rate=0.0
fixture gpt2 "$models/gpt2.model" "T=7" $small_gpt
for m in "$here"/*.model; do
    [ -e "$m" ] || continue
    name=$(basename "$m" .model)
    fp64 "$name" "$m" "$(sed -n 's/^# dims //p' "$m")" $(sed -n 's/^# flags //p' "$m")
done
