#!/usr/bin/env bash
# The demo: a small GPT over characters, trained on real text, with a sample at the end.
# Usage: tests/demo.sh [TEXT FILE]; without one, the licence texts that every Debian has.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build}
out=$build/demo
mkdir -p "$out"
if [ -n "${1:-}" ]; then
    text=$1
else
    text=$out/licences.txt
    cat $(find /usr/share/common-licenses -type f | sort) > "$text"
fi
characters=$(LC_ALL=C.UTF-8 grep -o . "$text" | LC_ALL=C sort -u | wc -l)
vocabulary=$((characters + 1))                 # and the line end

run() { echo "\$ $*"; "$@"; }
echo "$text: $(wc -c < "$text") bytes, $vocabulary different characters"
run "$build/gradcc" models/chargpt.model -D V="$vocabulary" -D Tmax=64 -o "$out/chargpt"
rm -rf "$out/run"
run "$out/chargpt" --data "$text" --out "$out/run" --batch 12 --steps "${STEPS:-1500}"
run "$out/chargpt" generate --out "$out/run" --prompt "You may" --tokens 300 --seed 1
echo
echo "The C that trained it: $build/gradcc --emit=c models/chargpt.model"
