#!/usr/bin/env bash
# A build without oneDNN: it builds, and the gradients of whole models are as they should be.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
plain=$BUILD/plain
mkdir -p "$plain"
cp -a "$BUILD/compiler" "$BUILD/grammar" "$plain/"      # the compiler is the same
if ! make -s -C "$root" BUILD="$plain" ONEDNN=0 CC="$CC" all > "$plain/build.log" 2>&1; then
    echo "not ok plain/build: $(tail -n 1 "$plain/build.log")"; exit 1
fi
if grep -q dnnl "$plain/rt.libs"; then echo "not ok plain/build: it links oneDNN"; else echo "ok plain/build"; fi
BUILD=$plain GRADCC=$plain/gradcc "$root/tests/grad/run.sh" | sed 's/^\(ok\|not ok\) /&plain\//'
