#!/usr/bin/env bash
# The compiler and emitted programs under the address (with leaks) and undefined-behaviour sanitizers:
# every wrong model, every model of models/, a short training with resume, generation, damaged files.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tmp=$(mktemp -d); trap 'rm -rf "$tmp"' EXIT
asan=$BUILD/asan
export ASAN_OPTIONS=detect_leaks=1:exitcode=99 UBSAN_OPTIONS=print_stacktrace=1:exitcode=99 CI=1
if ! make -s -C "$root" BUILD="$asan" SAN=1 CC="$CC" all >"$tmp/build.log" 2>&1; then
    echo "not ok sanitize/build: $(tail -n 1 "$tmp/build.log")"; exit 1
fi
echo "ok sanitize/build"

# clean NAME COMMAND...: whatever its exit code is, no sanitizer speaks
clean() {
    local name=$1 rc=0; shift
    "$@" > "$tmp/out" 2> "$tmp/err" || rc=$?
    if [ $rc -eq 99 ] || [ $rc -ge 128 ] || grep -Eq 'Sanitizer|runtime error:' "$tmp/err"; then
        echo "not ok $name: exit code $rc, $(grep -Em1 'Sanitizer|runtime error:' "$tmp/err")"
        tail -n 30 "$tmp/err" >&2
        return 1
    fi
    return 0
}

bad=0
for m in "$root"/tests/errors/*.model "$root"/tests/syntax/*.model; do
    clean "sanitize/$(basename "$m")" "$asan/gradcc" --emit=c -o "$tmp/x.c" "$m" || bad=1
done
[ $bad = 0 ] && echo "ok sanitize/wrong-models"
for m in "$root"/models/*.model "$root"/tests/grad/*.model; do
    [ "$(basename "$m")" = prelude.model ] && continue        # included in every model
    for flags in "" "-O0" "--precision=fp64"; do
        clean "sanitize/$(basename "$m")$flags" "$asan/gradcc" $flags --emit=c -o "$tmp/x.c" "$m" || bad=1
    done
done
[ $bad = 0 ] && echo "ok sanitize/models"

cd "$tmp" || exit 1
flags="-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -O1"
small="-D V=200 -D C=32 -D H=2 -D L=2 -D Tmax=16"
if "$asan/gradcc" $small -D rate=0.1 --cflags "$flags" "$root/models/chargpt.model" -o gpt > build.log 2>&1; then
    cat "$root/LICENSE" "$root/README.md" > text.txt
    run="./gpt --data text.txt --batch 6 --save 4 --eval 4 --out run"
    clean sanitize/train $run --steps 8 && clean sanitize/resume $run --steps 12 --resume auto --accumulate 2 &&
        clean sanitize/generate ./gpt generate --out run --prompt "The" --tokens 20 &&
        echo "ok sanitize/program"
    for f in model optimizer; do
        size=$(stat -c %s run/step-00000012/$f.safetensors)
        cp run/step-00000012/$f.safetensors kept
        truncate -s $((size / 2)) run/step-00000012/$f.safetensors
        if clean "sanitize/truncated-$f" $run --steps 13 --resume auto --out run; then
            if grep -q 'step-00000012 is damaged' err && grep -q 'going back to the one before' err &&
                [ -e run/step-00000013/manifest.json ]; then echo "ok sanitize/truncated-$f"
            else
                echo "not ok sanitize/truncated-$f: it did not go back to the checkpoint before"
                tail -n 30 err >&2
            fi
        fi
        rm -rf run/step-00000013; cp kept run/step-00000012/$f.safetensors
    done
    : > empty.txt
    clean sanitize/no-data ./gpt --data empty.txt --out none && clean sanitize/no-file ./gpt --data nothing --out none &&
        echo "ok sanitize/no-data"
else
    echo "not ok sanitize/program: $(tail -n 1 build.log)"
fi
# A step that is not finite: kept, looked at, replayed.
sed 's/wanted = y/wanted = log(y)/' "$root/tests/replay/faults.model" > fault.model
awk 'BEGIN { for (i = 0; i < 40; i++) printf "0.%d,0.2,0.%d,0.1,%d\n", i, 40 - i, i == 7 ? 0 : 1 }' > faults.csv
if "$asan/gradcc" -w --cflags "$flags" fault.model -o fault > build.log 2>&1; then
    clean sanitize/nonfinite ./fault --accumulate 2 && clean sanitize/replay ./fault --replay auto --trace &&
        grep -q 'the gradient is that of the run' out && clean sanitize/skip ./fault --nonfinite skip --out skip &&
        echo "ok sanitize/replay"
else
    echo "not ok sanitize/replay: $(tail -n 1 build.log)"
fi
# Optimizers that work on whole tensors: training, and going on with the states they keep.
awk 'BEGIN { for (i = 0; i < 90; i++) printf "0.%d,0.2,0.%d,%d,%d\n", i, 90 - i, i % 5, i % 3 }' > net.csv
for optimizer in 'lamb(lr: 0.01)' 'adafactor(lr: 0.01)' 'muon(lr: 0.01, except: "head.*")'; do
    name=${optimizer%%(*}
    if "$asan/gradcc" -D "optimizer=$optimizer" -D clip_value=0.1 -D ema=0.9 --cflags "$flags" \
            "$root/tests/optimizers/net.model" -o "$name" > build.log 2>&1; then
        clean "sanitize/$name" "./$name" --out "$name.run" --steps 4 &&
            clean "sanitize/$name-resume" "./$name" --out "$name.run" --steps 8 --resume auto &&
            { grep -q 'as planned' out && echo "ok sanitize/$name" ||
                echo "not ok sanitize/$name: $(tail -n 1 err)"; }
    else
        echo "not ok sanitize/$name: $(tail -n 1 build.log)"
    fi
done
