#!/usr/bin/env bash
# memcheck.sh [--short]: runs the tests of the verbs binding, the fabric, channels and the shuffle under valgrind's
# memcheck.
# It leaves out tests that use a model checker (they switch stacks, which confuses memcheck) and tests that start
# processes (they depend on time). The short form also leaves out tests that try many seeds.
set -eu
cd "$(dirname "$0")/.."
command -v valgrind >/dev/null || { echo "memcheck: valgrind is not installed"; exit 1; }
skips=(--skip loom_tests)
[ "${1:-}" != --short ] || skips+=(--skip sim_ --skip any_schedule --skip random_)
# Of the whole workspace, which is built: for some crates alone, dependencies would be built with other features.
binaries=$(cargo test --profile ci --locked --workspace \
    --lib --test conformance --test shuffle_conformance --test channel_sim --test shuffle_sim --test channel_gather \
    --no-run --message-format=json 2>/dev/null |
    sed -nE 's#.*"manifest_path":"[^"]*/crates/(verbs|fabric|flow|dfi)/.*"executable":"([^"]*/deps/[^"]*)".*#\2#p' |
    sort -u)
[ -n "$binaries" ] || { echo "memcheck: the tests do not build"; exit 1; }
for binary in $binaries; do
    echo "==> memcheck $(basename "$binary")"
    valgrind --quiet --error-exitcode=1 --fair-sched=yes --leak-check=full \
        --show-leak-kinds=definite --errors-for-leak-kinds=definite "$binary" "${skips[@]}" --test-threads=1
done
