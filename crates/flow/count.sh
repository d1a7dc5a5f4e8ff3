#!/usr/bin/env bash
# Counts user instructions and system calls per message of a channel over shared memory. Messages have 8 bytes, so
# that copying does not count; the result is the difference of two runs. Needs valgrind and strace.
set -eu
cd "$(dirname "$0")/../.."
cargo build --release --locked -p millstream-flow --example count
program=${CARGO_TARGET_DIR:-target}/release/examples/count
instructions() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "$1" 2>&1 |
        sed -n 's/.*Collected : \([0-9]*\).*/\1/p'
}
calls() {
    strace -f -c -o /dev/stdout "$program" "$1" | awk '$NF == "total" { print $4 ? $4 : $3 }'
}
first=$(instructions 1000) second=$(instructions 11000)
echo "instructions per message: $(( (second - first) / 10000 ))"
if command -v strace >/dev/null; then
    echo "system calls for 10000 more messages: $(( $(calls 11000) - $(calls 1000) ))"
fi
