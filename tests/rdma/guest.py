# SPDX-License-Identifier: Apache-2.0
"""A small machine with RDMA devices: QEMU without KVM, a kernel of the distribution with soft-RoCE
(rxe), and this machine's own files, so that programs of the build tree run there as they are.

image() makes kernel and initrd once and keeps them; Guest boots them and runs commands. Nothing
here needs root. Every wait has a deadline; when one passes, or the guest ends, the failure shows
the guest's console. What is missing is Unavailable, with the reason and the remedy.
"""

import fcntl
import glob
import gzip
import json
import lzma
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
QEMU = "qemu-system-x86_64"
# Program: Debian package.
PROGRAMS = {QEMU: "qemu-system-x86", "busybox": "busybox-static", "cpio": "cpio",
            "modprobe": "kmod", "rdma": "iproute2"}
PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-*.so"
# What the guest needs of its kernel; what those need is found.
MODULES = ("virtio_pci", "virtio_net", "virtio_rng", "9pnet_virtio", "9p", "overlay", "dummy",
           "sch_netem", "sch_ingress", "cls_u32", "act_gact", "crc32_generic", "rdma_rxe",
           "ib_uverbs")
# Of a kernel's package, all that the modules can be in.
MODULE_FOLDERS = ("crypto", "arch/x86/crypto", "lib", "net", "fs/9p", "fs/netfs", "fs/fscache",
                  "fs/overlayfs", "drivers/virtio", "drivers/infiniband", "drivers/net",
                  "drivers/char/hw_random")
PATH = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"

BOOT_SECONDS = 180  # 4 on an idle machine
END_SECONDS = 30
DOWNLOAD_SECONDS = 180
CONSOLE_LINES = 40


class Unavailable(Exception):
    """There can be no guest on this machine; the sentence says why, and what would help."""


class GuestError(Exception):
    """The guest ended or was too late, or a command failed in it."""


def _run(*command, seconds=60, **options):
    return subprocess.run(command, check=True, capture_output=True, timeout=seconds,
                          env={**os.environ, "PATH": PATH}, **options)


def _text(*command):
    return _run(*command, text=True).stdout


def _check_programs():
    if platform.machine() != "x86_64":
        raise Unavailable(f"the guest is of x86_64, this machine is {platform.machine()}")
    missing = {package for program, package in PROGRAMS.items()
               if not shutil.which(program, path=PATH)}
    if not glob.glob(PROVIDERS):
        missing.add("ibverbs-providers")
    if missing:
        raise Unavailable(f"missing here: {', '.join(sorted(missing))} "
                          "(cmake/packages_rdma.txt); install them by apt-get install")


# ------------------------------------------------------------------------------------------------
# The kernel

def _version_in(root):
    """A kernel under that root that has soft-RoCE, the newest; None without one."""
    pattern = f"{root}/lib/modules/*/kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko*"
    for path in sorted(glob.glob(pattern), reverse=True):
        version = path[len(root):].split("/")[3]
        if os.access(f"{root}/boot/vmlinuz-{version}", os.R_OK):
            return version
    return None


def _kernel_package():
    """The package that the distribution's newest kernel is in."""
    for name in ("linux-image-amd64", "linux-image-generic"):
        try:
            depends = _text("apt-cache", "depends", name)
        except (OSError, subprocess.SubprocessError):
            continue
        found = re.search(r"Depends: (linux-image-[0-9]\S*)", depends)
        if found:
            return found.group(1)
    raise Unavailable("apt-cache knows no kernel for the guest (apt-get update); or name a folder "
                      "with boot/ and lib/modules/ of one by PARALLAX_TEST_KERNEL")


def _download(root):
    """Unpacks the distribution's kernel under that root: what the guest can need of it."""
    package = _kernel_package()
    try:
        _run("apt-get", "download", package, cwd=root, seconds=DOWNLOAD_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").splitlines()
        why = " ".join(line for line in said if line.startswith("E: ")) or str(error)
        raise Unavailable(f"apt-get download {package} failed ({why}); or name a folder with boot/ "
                          "and lib/modules/ of a kernel by PARALLAX_TEST_KERNEL") from error
    archive = glob.glob(f"{root}/*.deb")[0]
    pattern = ["./boot/vmlinuz-*", "./lib/modules/*/modules.*"]
    pattern += [f"./lib/modules/*/kernel/{folder}/*" for folder in MODULE_FOLDERS]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", archive], stdout=subprocess.PIPE) as pipe:
        _run("tar", "-x", "-C", root, "--wildcards", *pattern, stdin=pipe.stdout, seconds=120)
    os.remove(archive)
    version = _version_in(root)
    if version is None:
        raise Unavailable(f"the kernel of {package} has no soft-RoCE (rdma_rxe)")
    _run("depmod", "-b", root, version)
    return version


def _module_order(root, version):
    """Files of the modules, each behind those that it needs."""
    order = []
    for name in MODULES:
        shown = _text("modprobe", "-d", root, "-S", version, "--show-depends", name)
        for line in shown.splitlines():
            if line.startswith("insmod") and line.split()[1] not in order:
                order.append(line.split()[1])
    return order


def _copy_kernel(root, version, folder):
    """The kernel as an image that QEMU boots at once, and the modules, by their order."""
    with open(f"{root}/boot/vmlinuz-{version}", "rb") as file:
        packed = file.read()
    at = packed.find(b"\xfd7zXZ\0")
    # Unpacked here: the guest would take seconds for it.
    kernel = lzma.LZMADecompressor().decompress(packed[at:]) if at >= 0 else packed
    with open(f"{folder}/kernel", "wb") as file:
        file.write(kernel)
    os.mkdir(f"{folder}/modules")
    order = []
    for path in _module_order(root, version):
        name = os.path.basename(path)
        if name.endswith(".xz"):
            name = name[:-len(".xz")]
            with lzma.open(path) as packed_module, open(f"{folder}/modules/{name}", "wb") as file:
                shutil.copyfileobj(packed_module, file)
        elif name.endswith(".ko"):
            shutil.copy(path, f"{folder}/modules/{name}")
        else:
            raise Unavailable(f"the kernel's modules are packed in a way not known here: {name}")
        order.append(name)
    with open(f"{folder}/modules/order", "w") as file:
        file.write("\n".join(order) + "\n")


def _make_kernel(folder):
    """Fills the folder, from the kernel named, one that is installed, or the distribution's."""
    given = os.environ.get("PARALLAX_TEST_KERNEL")
    with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as scratch:
        root = given.rstrip("/") if given else "/" if _version_in("") else scratch
        version = _version_in(root.rstrip("/"))
        if given and version is None:
            raise Unavailable(f"PARALLAX_TEST_KERNEL={given}: no kernel with rdma_rxe is there "
                              "under boot/ and lib/modules/")
        version = version or _download(scratch)
        draft = os.path.join(scratch, "image")
        os.mkdir(draft)
        _copy_kernel(root, version, draft)
        with open(f"{draft}/made_of", "w") as file:
            json.dump({"version": version, "modules": MODULES}, file)
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(draft, folder)


def _is_made(folder):
    try:
        with open(f"{folder}/made_of") as file:
            return json.load(file)["modules"] == list(MODULES)
    except (OSError, ValueError):
        return False


def _make_initrd(folder, path):
    with tempfile.TemporaryDirectory() as root:
        for name in ("bin", "dev", "proc", "sys", "lower", "upper", "new"):
            os.mkdir(f"{root}/{name}")
        shutil.copy(shutil.which("busybox", path=PATH), f"{root}/bin/busybox")
        shutil.copytree(f"{folder}/modules", f"{root}/modules")
        shutil.copy(f"{FOLDER}/init", f"{root}/init")
        os.chmod(f"{root}/init", 0o755)
        names = "\n".join(os.path.relpath(os.path.join(at, name), root)
                          for at, folders, files in os.walk(root) for name in folders + files)
        packed = _run("cpio", "-o", "-H", "newc", "--quiet", "-R", "0:0", cwd=root,
                      input=names.encode()).stdout
    with open(path, "wb") as file:
        file.write(gzip.compress(packed, 1))


def image(cache):
    """The folder of kernel and modules, made on the first call. Unavailable."""
    _check_programs()
    os.makedirs(cache, exist_ok=True)
    folder = os.path.join(cache, "image")
    with open(os.path.join(cache, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _is_made(folder):
            _make_kernel(folder)
    return folder


# ------------------------------------------------------------------------------------------------
# The machine

class Command:
    """A script that runs in a guest."""

    def __init__(self, guest, number, seconds):
        self._guest = guest
        self._number = number
        self._give_up = time.monotonic() + seconds
        self._seconds = seconds

    def output(self):
        return self._guest.read(f"{self._number}.out")

    def wait_line(self, prefix):
        """The rest of the first line that begins so."""
        while True:
            ended = self._guest.read(f"{self._number}.status")
            for line in self.output().splitlines():
                if line.startswith(prefix):
                    return line[len(prefix):]
            if ended:
                raise GuestError(f"no line '{prefix}' came before the end:\n{self.output()}")
            self._pause(f"waits for the line '{prefix}'")

    def wait(self):
        """Its exit status."""
        while True:
            status = self._guest.read(f"{self._number}.status")
            if status:
                return int(status)
            self._pause("still runs")

    def check(self):
        """Its output; GuestError if it failed."""
        status = self.wait()
        if status != 0:
            raise GuestError(f"exit status {status} in the guest:\n{self.output()}")
        return self.output()

    def _pause(self, doing):
        if time.monotonic() > self._give_up:
            raise GuestError(f"a command {doing} after {self._seconds} s:\n{self.output()}\n" +
                             self._guest.console())
        self._guest.check_alive()
        time.sleep(0.05)


class Guest:
    """One machine, from its boot to close(). `link` joins two by a wire, "listen:PATH" and
    "connect:PATH"; each has `nics` interfaces at it."""

    def __init__(self, folder, cpus=2, memory_mib=1536, link=None, nics=1):
        self.folder = tempfile.mkdtemp(prefix="parallax-guest-")
        self._count = 0
        _make_initrd(folder, f"{self.folder}/initrd")
        os.mkdir(self.path("job"))
        with open(self.path("qemu"), "w") as errors:
            # With this process gone nobody would end it.
            self._process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", QEMU, *self._arguments(folder, cpus, memory_mib),
                 *self._network(link, nics)],
                stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                env={**os.environ, "PATH": PATH})
        try:
            self._await(lambda: self.read("up"), BOOT_SECONDS, "boot")
        except GuestError:
            self._process.kill()
            self._process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _arguments(self, folder, cpus, memory_mib):
        machine = ["-accel", "tcg,thread=multi", "-M", "q35", "-cpu", "max", "-smp", str(cpus),
                   "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none",
                   "-no-reboot", "-device", "virtio-rng-pci"]
        ends = ["-device", "isa-debug-exit,iobase=0xf4,iosize=0x4", "-chardev",
                f"file,id=console,path={self.path('console')}", "-serial", "chardev:console"]
        files = ["-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
                 "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
                 "-fsdev", f"local,id=job,path={self.path('job')},security_model=none",
                 "-device", "virtio-9p-pci,fsdev=job,mount_tag=job"]
        boot = ["-kernel", f"{folder}/kernel", "-initrd", self.path("initrd"), "-append",
                "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable no_timer_check "
                "random.trust_cpu=on preempt=full"]
        return machine + ends + files + boot

    def _network(self, link, nics):
        if link is None:
            return ["-nic", "none"]
        kind, _, path = link.partition(":")
        server = "on" if kind == "listen" else "off"  # the one that listens is started first
        machine = 1 if kind == "listen" else 2
        arguments = ["-netdev", f"stream,id=link,server={server},addr.type=unix,addr.path={path}",
                     "-netdev", "hubport,id=hub,hubid=0,netdev=link"]
        for nic in range(nics):
            address = f"52:54:00:00:0{nic}:0{machine}"
            arguments += ["-netdev", f"hubport,id=port{nic},hubid=0", "-device",
                          f"virtio-net-pci,netdev=port{nic},mac={address},romfile="]
        return arguments

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        """A file of the job; nothing if it is not there."""
        try:
            with open(self.path(os.path.join("job", name)), errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return ""

    def console(self):
        lines = []
        for name in ("console", "qemu"):
            if not os.path.exists(self.path(name)):
                continue
            with open(self.path(name), errors="replace") as file:
                lines += [f"{name}: {line.rstrip()}" for line in file][-CONSOLE_LINES:]
        return "\n".join(lines)

    def check_alive(self):
        if self._process.poll() is not None:
            raise GuestError(f"the guest has ended (QEMU: {self._process.returncode}):\n" +
                             self.console())

    def _await(self, done, seconds, what):
        give_up = time.monotonic() + seconds
        while not done():
            self.check_alive()
            if time.monotonic() > give_up:
                raise GuestError(f"the guest did not {what} in {seconds} s:\n{self.console()}")
            time.sleep(0.05)

    def start(self, script, seconds=120):
        self._count += 1
        draft = self.path("job/draft")
        with open(draft, "w") as file:
            file.write(script + "\n")
        os.rename(draft, self.path(f"job/{self._count}.sh"))
        return Command(self, self._count, seconds)

    def run(self, script, seconds=120):
        """The output of a shell script that has to succeed."""
        return self.start(script, seconds).check()

    def close(self):
        """Ends it, and says what its kernel complained of."""
        try:
            if self._process.poll() is None:
                with open(self.path("job/halt"), "w"):
                    pass
                self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            halted, complaints = self.read("halted"), self.read("dmesg")
            console = "" if halted else self.console()
            shutil.rmtree(self.folder, ignore_errors=True)
        if not halted:
            raise GuestError("the guest did not halt:\n" + console)
        bad = [line for line in complaints.splitlines()
               if re.search(r"\bBUG\b|WARNING:|\bOops|Call Trace|\bstall|lockup|hung task", line)]
        if bad:
            raise GuestError("the guest's kernel complains:\n" + "\n".join(bad[:8]))
