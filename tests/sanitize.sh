#!/usr/bin/env bash
# sanitize.sh [--short]: runs the tests of state, the verbs binding, the fabric, channels, the shuffle and flows with
# AddressSanitizer and its search for leaks.
# It leaves out tests that use a model checker: they switch stacks, which confuses AddressSanitizer. It also leaves out
# the two tests of the shuffle that try most. The compiler's option is unstable, but the pinned toolchain contains the
# runtime; hence RUSTC_BOOTSTRAP. The short form leaves out test programs that start processes or look at descriptors, and
# long tests of windows. Most of the time goes into building, so the tests are optimised less than elsewhere.
set -eu
cd "$(dirname "$0")/.."
tests=(--tests) skips=(--skip loom_tests --skip sim_a_thousand_seeds --skip a_stopped_node)
if [ "${1:-}" = --short ]; then
    tests=(--test conformance --test tcp --test shuffle_conformance --test channel_sim --test shuffle_sim
        --test channel_gather)
    skips+=(--skip windows:: --skip values::frequent)
fi
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" CARGO_PROFILE_CI_OPT_LEVEL=1 \
    cargo test --profile ci --locked --target "$target" --target-dir target/sanitize \
    -p millstream-state -p millstream-verbs -p millstream-fabric -p millstream-flow -p millstream-dfi \
    --lib "${tests[@]}" --no-fail-fast -- "${skips[@]}"
