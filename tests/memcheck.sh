#!/usr/bin/env bash
# Runs the tests of the fabric and of channels under valgrind's memcheck. Not those that model-check (they
# switch stacks, which confuses it) or start processes (they are about time).
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "memcheck: valgrind is not installed"; exit 1; }
binaries=$(cargo test --profile ci --locked -p millstream-fabric -p millstream-flow --lib \
    --test conformance --test sim --no-run --message-format=json 2>/dev/null |
    sed -n 's|.*"executable":"\([^"]*/deps/[^"]*\)".*|\1|p' | sort -u)
[ -n "$binaries" ] || { echo "memcheck: the tests do not build"; exit 1; }
for binary in $binaries; do
    echo "==> memcheck $(basename "$binary")"
    valgrind --quiet --error-exitcode=1 --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite "$binary" --skip loom_tests --test-threads=1
done
