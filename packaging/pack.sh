#!/usr/bin/env bash
# pack.sh PROGRAM DIRECTORY: packs a program that was built into a tarball and a Debian package, with completions, manual
# pages, documentation and licence; and puts the definition of a container image beside them.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
program=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
version=$("$program" --version | cut -d ' ' -f 2)
machine=$(uname -m)
name=millstream-$version-linux-$machine
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022
# How hard to try to make them small, 1 to 9.
level=${PACK_LEVEL:-9}

# The tarball: all in one directory.
stage=$work/$name
mkdir -p "$stage/completions" "$stage/man"
strip -o "$stage/millstream" "$program"
chmod 755 "$stage/millstream"
# What README.md, and the pages that it leads to, lead to.
read_on=(README.md ARCHITECTURE.md CONTRIBUTING.md LICENSE NOTICE docs examples)
(cd "$root" && cp -r "${read_on[@]}" "$stage")
chmod -R u=rwX,go=rX "$stage/docs" "$stage/examples"
for shell in bash zsh fish; do
    "$program" completions "$shell" > "$stage/completions/millstream.$shell"
done
"$program" man > "$stage/man/millstream.1"
for command in $("$program" --help | sed -n '/^Commands:/,/^$/p' | sed -n 's/^  \([a-z]\+\) .*/\1/p'); do
    [ "$command" = help ] || "$program" man "$command" > "$stage/man/millstream-$command.1"
done
gzip -n -"$level" "$stage"/man/*.1
pack() {
    tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@${SOURCE_DATE_EPOCH:-0}" -C "$work" -cf - "$1" | gzip -n -"$level"
}
pack "$name" > "$out/$name.tar.gz"

# The Debian package: the same files where Debian wants them.
if command -v dpkg-deb >/dev/null; then
    deb=$work/deb
    share=$deb/usr/share
    mkdir -p "$deb/DEBIAN" "$deb/usr/bin" "$share/man/man1" "$share/doc/millstream" \
        "$share/bash-completion/completions" "$share/zsh/vendor-completions" "$share/fish/vendor_completions.d"
    cp "$stage/millstream" "$deb/usr/bin"
    cp "$stage"/man/*.gz "$share/man/man1"
    cp "$stage/completions/millstream.bash" "$share/bash-completion/completions/millstream"
    cp "$stage/completions/millstream.zsh" "$share/zsh/vendor-completions/_millstream"
    cp "$stage/completions/millstream.fish" "$share/fish/vendor_completions.d/millstream.fish"
    (cd "$stage" && cp -r "${read_on[@]}" "$share/doc/millstream")
    cp "$root/LICENSE" "$share/doc/millstream/copyright"
    glibc=$(objdump -T "$stage/millstream" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -n 1)
    depends="libc6 (>= ${glibc#GLIBC_})"
    if objdump -p "$stage/millstream" | grep -q 'NEEDED *libgcc_s'; then
        depends="$depends, libgcc-s1"
    fi
    arch=$(dpkg --print-architecture)
    cat > "$deb/DEBIAN/control" <<CONTROL
Package: millstream
Version: $version
Architecture: $arch
Maintainer: The Millstream authors
Section: database
Priority: optional
Installed-Size: $(du -ks "$deb" | cut -f 1)
Depends: $depends
Suggests: libibverbs1
Description: continuous SQL over event streams
 Millstream runs continuous SQL over streams of events, grouped into windows
 of event time, on one machine: over files, pipes, TCP and HTTP.
CONTROL
    find "$deb" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-0}" {} +
    SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-0} dpkg-deb --root-owner-group -z"$level" --build "$deb" "$out/millstream_${version}_$arch.deb" >/dev/null
fi

# Packages of other versions may be there, too.
sed "s/@VERSION@/$version/" "$root/packaging/Containerfile" > "$out/Containerfile"
(cd "$out" && sha256sum millstream[-_]"$version"* > SHA256SUMS)
ls -l "$out"
