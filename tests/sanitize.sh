#!/usr/bin/env bash
# Runs the tests of state, the verbs binding, the fabric, channels and the shuffle with AddressSanitizer and its search
# for leaks.
# It leaves out tests that use a model checker: they switch stacks, which confuses AddressSanitizer. It also leaves out
# the two tests of the shuffle that try most. The compiler's option is unstable, but the pinned toolchain contains the
# runtime; hence RUSTC_BOOTSTRAP.
set -eu
cd "$(dirname "$0")/.."
target=$(rustc -vV | sed -n 's/^host: //p')
RUSTC_BOOTSTRAP=1 RUSTFLAGS="-Zsanitizer=address" cargo test --profile ci --locked --target "$target" \
    --target-dir target/sanitize -p millstream-state -p millstream-verbs -p millstream-fabric -p millstream-flow \
    --lib --tests --no-fail-fast -- --skip loom_tests \
    --skip sim_a_thousand_seeds --skip a_stopped_node
