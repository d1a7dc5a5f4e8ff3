#!/usr/bin/env bash
# build.sh [DIRECTORY]: builds the program as people download it, and packs it into DIRECTORY (target/packages).
#
# It is linked against the symbols of an old C library, so that it runs wherever there is one as old as that. What links it
# is zig, as a package of Python's: `.ci/setup dist` installs it.
set -eu
cd "$(dirname "$0")/.."
out=${1:-target/packages}
glibc=2.28
target=$(uname -m)-unknown-linux-gnu
tools=$PWD/.venv-dist/bin
built=${CARGO_TARGET_DIR:-target}/$target/dist/millstream

PATH="$tools:$PATH" cargo zigbuild --profile dist --locked -p millstream-cli --target "$target.$glibc"
needed=$(objdump -T "$built" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
if [ "$(printf 'GLIBC_%s\n%s\n' "$glibc" "$needed" | sort -V | tail -n 1)" != "GLIBC_$glibc" ]; then
    echo "error: $built needs $needed, and should run with glibc $glibc" >&2
    exit 1
fi
packaging/pack.sh "$built" "$out"
