#!/usr/bin/env python3
"""Tests over real RDMA: boots a virtual machine with a stock Debian kernel and its Soft-RoCE driver,
and runs the tests that need a device in it. It needs no network card, no KVM, and no root once the
packages are installed (.ci/setup rdma). docs/rdma.md says what it covers."""

import argparse
import atexit
import json
import os
import re
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import kernel
from image import Image

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
GUEST = HERE / "guest"
SQL = HERE.parent / "sql"

# The crates whose tests run in the guest.
CRATES = ["verbs", "fabric", "flow", "dfi"]

# Programs of this machine that the guest uses.
PROGRAMS = ["/usr/bin/rdma", "/usr/bin/ib_write_bw"]

# libibverbs is opened at run time, and opens its providers itself: nothing is linked to them.
PROVIDER = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so"
PROVIDER_LIST = "/etc/libibverbs.d/rxe.driver"

SECONDS_MAX = 1200


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--two", action="store_true", help="two guests, joined by a network")
    parser.add_argument("--bench", action="store_true", help="channels beside ib_write_bw")
    parser.add_argument("--grid", action="store_true", help="the same for all sizes, three pairs each")
    parser.add_argument("--kernel", help="a linux-image package; default: Debian's newest")
    parser.add_argument("--seconds", type=int, default=SECONDS_MAX, help="when to give up")
    arguments = parser.parse_args()

    work = ROOT / "target" / "rdma"
    work.mkdir(parents=True, exist_ok=True)
    stock = kernel.get(arguments.kernel)
    initrd = work / "initrd.gz"
    build_image(stock, build(work)).write(initrd)
    machine, end = Machine(stock, initrd, work), time.monotonic() + arguments.seconds
    print(f"Booting {stock.package} in QEMU, emulated", flush=True)
    if arguments.two:
        passed = two_guests(machine, end)
    else:
        suite = "bench" if arguments.bench else "grid" if arguments.grid else "one"
        passed = Guest(machine, suite).wait(end)
    sys.exit(0 if passed else 1)


def two_guests(machine, end):
    """Two guests on one cable, which is a socket: the first listens."""
    cable = machine.work / "cable"
    cable.unlink(missing_ok=True)
    guests = [Guest(machine, "two", 1, cable_options(1, cable))]
    while not cable.exists() and guests[0].process.poll() is None:
        time.sleep(0.1)
    guests.append(Guest(machine, "two", 2, cable_options(2, cable)))
    return all([guest.wait(end) for guest in guests])


def cable_options(host, cable):
    role = "on" if host == 1 else "off"
    netdev = f"stream,id=cable,server={role},addr.type=unix,addr.path={cable}"
    return ["-netdev", netdev, "-device", f"virtio-net-pci,netdev=cable,mac=52:54:00:77:00:0{host}"]


def build(work):
    """Builds everything, since CI has built that before; the crates' integration tests by `crate-target`,
    and the program without what only a debugger needs."""
    command = ["cargo", "build", "--profile", "ci", "--locked", "--workspace", "--all-targets"]
    command += ["--message-format=json-render-diagnostics"]
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if run.returncode != 0:
        raise SystemExit("error: Millstream cannot be built")
    programs = {}
    for message in map(json.loads, run.stdout.splitlines()):
        if message["reason"] != "compiler-artifact" or not message["executable"]:
            continue
        crate = re.search(r"/crates/(\w+)", message["manifest_path"]).group(1)
        (kind,), name = message["target"]["kind"], message["target"]["name"]
        if kind == "test" and crate in CRATES:
            programs[f"{crate}-{name}"] = message["executable"]
        if kind == "bin" and name in ("millstream", "millstream-lab") and not message["profile"]["test"]:
            programs[name] = stripped(message["executable"], work / name)
    return programs


def stripped(program, copy):
    subprocess.run(["strip", "-o", copy, program], check=True)
    return copy


def build_image(stock, programs):
    image = Image()
    for directory in ["proc", "sys", "dev", "tmp", "root", "sbin"]:
        image.directory(directory)
    image.copy(GUEST / "init", "init")
    for suite in GUEST.iterdir():
        if suite.name != "init":
            image.copy(suite, f"suite/{suite.name}")
    image.copy("/bin/busybox")
    image.file("bin/sh", Path("/bin/busybox").read_bytes(), 0o755)
    image.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
    image.file("modules/order", "\n".join(path.name for path in stock.modules))
    for path in stock.modules:
        image.copy(path, f"modules/{path.name}")
    for program in PROGRAMS:
        image.program(program)
    image.program(PROVIDER)
    image.copy(PROVIDER_LIST)
    for name, program in programs.items():
        image.program(program, f"tests/{name}")
    for path in filter(Path.is_file, SQL.rglob("*")):
        image.copy(path, f"sql/{path.relative_to(SQL)}")
    return image


@dataclass
class Machine:
    """What all guests have in common."""

    stock: kernel.Kernel
    initrd: Path
    work: Path


class Guest:
    """A running virtual machine. It says on its console how it ended, with a word it was given."""

    def __init__(self, machine, suite, host=1, network=()):
        self.name = f"{suite}-{host}"
        self.console = machine.work / f"console-{self.name}"
        self.nonce = secrets.token_hex(8)
        options = f"console=ttyS0 quiet panic=-1 millstream.suite={suite} millstream.host={host}"
        options += f" millstream.nonce={self.nonce}"
        command = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", "1536"]
        command += ["-nodefaults", "-display", "none", "-no-reboot"]
        command += ["-serial", f"file:{self.console}", *network]
        command += ["-kernel", machine.stock.image, "-initrd", machine.initrd, "-append", options]
        self.console.write_bytes(b"")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        atexit.register(self.process.kill)

    def wait(self, end):
        """Prints the console until the machine is off; whether the suite passed there."""
        print(f"Guest {self.name}:", flush=True)
        with open(self.console, "rb") as console:
            while self.process.poll() is None and time.monotonic() < end:
                show(console.read())
                time.sleep(0.2)
            show(console.read())
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            print(f"FAILED: guest {self.name} was not done in time")
            return False
        return self.verdict()

    def verdict(self):
        text = self.console.read_text(errors="replace")
        found = re.search(rf"^millstream-rdma {self.nonce} exit (\d+)\s*$", text, re.MULTILINE)
        if not found:
            print(f"FAILED: guest {self.name} ended without a result")
        elif found.group(1) != "0":
            print(f"FAILED: guest {self.name}; its console is in {self.console}")
        return found is not None and found.group(1) == "0"


def show(data):
    sys.stdout.write(data.decode(errors="replace").replace("\r\n", "\n"))
    sys.stdout.flush()


if __name__ == "__main__":
    os.chdir(ROOT)
    main()
