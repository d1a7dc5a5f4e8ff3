"""The guest's whole file system: a cpio archive ("newc") that the kernel unpacks into memory."""

import gzip
import re
import stat
import subprocess
from pathlib import Path


class Image:
    """Files by their place in the guest. Programs bring the shared libraries that they need."""

    def __init__(self):
        self.entries = {}

    def directory(self, place):
        """A directory, with its parents."""
        place = place.strip("/")
        if place and place not in self.entries:
            self.directory(str(Path(place).parent).strip("."))
            self.entries[place] = (stat.S_IFDIR | 0o755, b"")

    def file(self, place, content, mode=0o644):
        """A file with these bytes, or this text."""
        place = place.strip("/")
        self.directory(str(Path(place).parent).strip("."))
        data = content.encode() if isinstance(content, str) else content
        self.entries[place] = (stat.S_IFREG | mode, data)

    def copy(self, source, place=None):
        """A file of this machine, at the same place or another."""
        source = Path(source)
        mode = 0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644
        self.file(place or str(source), source.read_bytes(), mode)

    def program(self, source, place=None):
        """A program or library of this machine, with the libraries that it is linked to."""
        self.copy(source, place)
        for library in libraries(source):
            self.copy(library)

    def write(self, path):
        """Writes the archive."""
        with gzip.open(path, "wb", compresslevel=1) as out:
            for number, (place, (mode, data)) in enumerate(self.entries.items(), start=1):
                out.write(member(place, mode, data, number))
            out.write(member("TRAILER!!!", 0, b"", 0))


def libraries(program):
    """The shared libraries that the dynamic linker finds for a program."""
    run = subprocess.run(["ldd", program], capture_output=True, text=True)
    if "not found" in run.stdout:
        raise SystemExit(f"error: {program} needs libraries that are not installed:\n{run.stdout}")
    return re.findall(r"(/\S+) \(0x", run.stdout)


def member(place, mode, data, number):
    name = place.encode() + b"\0"
    links = 2 if stat.S_ISDIR(mode) else 1
    fields = [number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(name), 0]
    header = b"070701" + b"".join(b"%08X" % field for field in fields)
    return padded(header + name) + padded(data)


def padded(data):
    return data + b"\0" * (-len(data) % 4)
