#!/usr/bin/env bash
# The files of both targets differ only where they must (alike.py).
# Usage: alike.sh (from run.sh); prints ok and not ok lines.
set -u
cd "$(dirname "$0")"
root=../..
: "${BUILD:=$root/build}" "${GRADCC:=$BUILD/gradcc}"
work=$BUILD/tests-cuda/alike
mkdir -p "$work"

# alike NAME MODEL OPTIONS...
alike() {
    local name=$1 model=$2 why; shift 2
    if ! "$GRADCC" --emit=c "$@" "$model" -o "$work/$name.c" ||
       ! "$GRADCC" --target=cuda --emit=cuda "$@" "$model" -o "$work/$name.cu"; then
        echo "not ok cuda/alike/$name: it is not emitted"
    elif why=$(python3 alike.py "$work/$name.c" "$work/$name.cu" 2>&1); then echo "ok cuda/alike/$name"
    else echo "$why" >&2; echo "not ok cuda/alike/$name: $(echo "$why" | head -n 1)"; fi
}

alike digits $root/models/digits_mlp.model
alike chargpt $root/models/chargpt.model -D rate=0.1
alike gpt2-bf16 $root/models/gpt2.model --precision=bf16 --head-rows=512 # the default differs
alike scan $root/tests/run/scan.model
alike outputs $root/tests/run/outputs.model --precision=fp16
