#!/usr/bin/env python3
"""Build the operator's image from this checkout, without a registry, a daemon or a base image.

    deploy/image.py operator.tar          # an OCI archive: `ctr images import`, or Cluster.load of testcluster
    deploy/image.py                       # with this machine's Python, cached in .cache/image until its sources change
    deploy/image.py operator.tar --all    # an index of two images, for amd64 and arm64

Three layers: Python with the libraries it links to, the locked dependencies (hashes checked), and Dayfly's own wheel
with the runner programs. The first two change rarely and are kept in ~/.cache/dayfly/image (or in $DAYFLY_CACHE), for
all checkouts. An archive with a name contains Debian's Python and OpenSSL, which apt-get downloads. If that is not
possible, and --all is not given, it contains those of this machine.
No shell, no package manager, no setuid file; it runs as 65532 and needs no writable root. It prints the archive's path
last.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from deploy.interpreters import PYTHON, DebianPython, Interpreter, ThisMachine  # noqa: E402 - as above
from testcluster import build as built  # noqa: E402 - as above
from testcluster import images  # noqa: E402 - as above

from dayfly import __version__  # noqa: E402 - found beside this script, installed or not
from deploy import debian, interpreters  # noqa: E402 - as above

# With a host, because nodes take a name without one for a public registry. This host can never be registered.
NAME = f"dayfly.invalid/operator:{__version__}"
CACHE = ROOT / ".cache" / "image"
LAYERS = built.cache().parent / "image"
UNUSED_S = 7 * 24 * 3600  # age since the last use after which a layer is deleted
SITE = Path("usr/local/lib", PYTHON, "site-packages")
RUNNERS = SITE / "dayfly" / "runners"  # for both architectures: nodes may differ from this machine
UNUSED = (
    *("test", "tests", "idlelib", "tkinter", "_tkinter*", "turtledemo", "lib2to3", "ensurepip", "_test*", "xx*"),
    *("site-packages", "dist-packages", "__pycache__", "config-*", "*.a"),
    "sitecustomize.py",  # Debian's, a link to /etc
)
LICENCE = "LICENSE.txt"
CERTIFICATES = Path("etc/ssl/certs/ca-certificates.crt")

PIP_S = 15 * 60  # with a compiler to fetch, and both runners to build, on a busy machine
INDEX = "see whether this machine's package index answers (pip config list, PIP_INDEX_URL), then try again"

# The sources of the image, and the files that decide about its content.
SOURCES = ("src", "runner", "examples", "requirements/operator.txt", "pyproject.toml", "scripts/wheel.py")
BUILDERS = ("deploy/image.py", "deploy/interpreters.py", "deploy/debian.py", "deploy/elf.py")
SOURCES += (*BUILDERS, "testcluster/images.py", "page", "scripts/page.sh")
# Build results inside of these folders.
MADE = {"__pycache__", "node_modules", "static"}


def kept() -> Path:
    """Return the archive for the current sources, which is built once until they change.

    Raises:
        UnavailableError: this machine cannot build it.
    """
    with _lock(CACHE):
        target = CACHE / f"operator-{_digest_of_sources()}.tar"
        if not target.exists():
            for old in CACHE.glob("operator-*.tar"):
                old.unlink()
            _build(target, _this_machine)
        return target


def build(to: Path) -> Path:
    """Write the archive of an image for the architecture of this machine.

    Raises:
        UnavailableError: this machine cannot build it.
    """
    return _build(to, _own_python)


def build_for_all(to: Path) -> Path:
    """Write the archive of an image for each architecture.

    Raises:
        UnavailableError: this machine cannot build it.
    """
    return _build(to, lambda: [_debian_python(machine) for machine in images.ARCHITECTURES])


def layers(machine: str) -> list[Path]:
    """Return the folders of Debian's Python and of the dependencies for a machine.

    Raises:
        UnavailableError: this machine cannot build them.
    """
    with _lock(LAYERS):
        return _layers(_debian_python(machine))


@contextlib.contextmanager
def _lock(cache: Path) -> Iterator[None]:
    """Lock a cache for one process at a time."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as file, images.readable():
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest_of_sources() -> str:
    digest = hashlib.sha256(ThisMachine().version.encode())
    for source in SOURCES:
        found = ROOT / source
        for path in [found] if found.is_file() else sorted(found.rglob("*")):
            if path.is_file() and not MADE.intersection(path.parts):
                digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(to: Path, find: Callable[[], list[Interpreter]]) -> Path:
    with _lock(LAYERS):
        below = {each.machine: _layers(each) for each in find()}
    CACHE.mkdir(parents=True, exist_ok=True)
    with images.readable(), tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        own = Path(scratch)
        own.chmod(0o755)
        _dayfly(own)
        made = [images.Image(machine, [*layers, own], _settings(machine)) for machine, layers in below.items()]
        return images.write(NAME, made, to=to)


def _layers(interpreter: Interpreter) -> list[Path]:
    locked = (ROOT / "requirements" / "operator.txt").read_bytes()
    key = f"{interpreter.machine} {interpreter.version}".encode() + _builders()
    python = _kept("python", key, lambda root: _python(root, interpreter))
    return [python, _kept("dependencies", key + locked, lambda root: _dependencies(root, interpreter, python))]


def _this_machine() -> list[Interpreter]:
    return [ThisMachine()]


def _own_python() -> list[Interpreter]:
    """Return Debian's Python for the architecture of this machine; this machine's if Debian's cannot be downloaded."""
    try:
        return [_debian_python(os.uname().machine)]
    except built.UnavailableError as problem:
        text = f"dayfly: the image contains Python and {ssl.OPENSSL_VERSION} of this machine, because {problem}"
        sys.stderr.write(f"{text}\n")
        return [ThisMachine()]


def _debian_python(machine: str) -> Interpreter:
    architecture = images.ARCHITECTURES[machine]
    archive = debian.Archive(architecture, LAYERS / f"apt-{architecture}")
    version = archive.find(interpreters.PACKAGES)
    key = f"{sys.version} {version}".encode() + _builders()
    system = _kept(f"debian-{architecture}", key, lambda root: archive.unpack(interpreters.PACKAGES, root))
    return DebianPython(machine, version, system)


def _builders() -> bytes:
    return b"".join((ROOT / path).read_bytes() for path in BUILDERS)


def _settings(machine: str) -> images.Settings:
    return images.Settings(
        entrypoint=[f"/usr/local/bin/{PYTHON}", "-m", "dayfly"],
        environment={
            "LD_LIBRARY_PATH": "/usr/local/lib",
            "PATH": "/usr/local/bin",
            "PYTHONHOME": "/usr/local",
            "PYTHONPATH": f"/{SITE}",  # Debian's Python has another default path
            "PYTHONUNBUFFERED": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "SSL_CERT_FILE": f"/{CERTIFICATES}",
            "DAYFLY_RUNNER": f"/{RUNNERS}/{machine}",
        },
        user="65532:65532",
        folder="/tmp",  # noqa: S108 - of the image, where the manifest mounts an emptyDir
    )


def _kept(name: str, key: bytes, fill: Callable[[Path], None]) -> Path:
    """Return a layer's folder, which is filled once for each key. Delete unused layers of that name."""
    target = LAYERS / f"{name}-{hashlib.sha256(key).hexdigest()[:16]}"
    if not target.exists():
        for incomplete in LAYERS.glob("tmp*"):  # of a killed process, because this one has the lock
            shutil.rmtree(incomplete)
        for old in LAYERS.glob(f"{name}-*"):
            if time.time() - old.stat().st_mtime > UNUSED_S:
                shutil.rmtree(old)
        part = Path(tempfile.mkdtemp(dir=LAYERS))
        part.chmod(0o755)
        try:
            fill(part)
            part.rename(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)
    os.utime(target)
    return target


def _python(root: Path, interpreter: Interpreter) -> None:
    """Copy Python, its standard library without tests and Windows files, and the linked libraries."""
    home = root / "usr" / "local"
    (home / "bin").mkdir(parents=True)
    program = Path(shutil.copy2(interpreter.program, home / "bin" / PYTHON))
    library = home / "lib" / PYTHON
    shutil.copytree(interpreter.standard_library, library, ignore=shutil.ignore_patterns(*UNUSED))
    (library / "site-packages").mkdir()
    _compile(library)
    _link(root, interpreter, [program, *library.glob("lib-dynload/*.so")])
    # A file of each package of Debian's Python.
    _record(
        root, interpreter, [interpreter.program, *(interpreter.standard_library / each for each in ("os.py", LICENCE))]
    )
    (root / "etc").mkdir()
    (root / "tmp").mkdir()
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0::/:/none\ndayfly:x:65532:65532::/tmp:/none\n")
    (root / "etc/group").write_text("root:x:0:\ndayfly:x:65532:\n")


def _dependencies(root: Path, interpreter: Interpreter, python: Path) -> None:
    """Install the dependencies, and the certificate authorities of `certifi`, which are the same on each machine."""
    site = root / SITE
    locked = ("-r", str(ROOT / "requirements" / "operator.txt"))
    _pip("install", "--require-hashes", "--target", str(site), *interpreter.pip_options, *locked)
    shutil.rmtree(site / "bin", ignore_errors=True)
    _compile(site)
    _link(root, interpreter, site.rglob("*.so"), without=python)
    (root / CERTIFICATES).parent.mkdir(parents=True)
    shutil.copy2(site / "certifi" / "cacert.pem", root / CERTIFICATES)


def _dayfly(root: Path) -> None:
    """Install our wheel, which contains the runner."""
    with tempfile.TemporaryDirectory(dir=CACHE) as wheels:
        _pip("wheel", "--no-deps", "--wheel-dir", wheels, str(ROOT))
        # By its name: pip records the path of a file that it installs, which differs each time.
        _pip("install", "--no-deps", "--no-index", "--find-links", wheels, "--target", str(root / SITE), "dayfly")
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    _compile(root / SITE)


def _pip(*arguments: str) -> None:
    """Run pip with a time limit, because an unresponsive index would block all builds of the image.

    Raises:
        UnavailableError: it failed, or did not end in time; its output is on stderr.
    """
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    command += ["--no-compile"] if arguments[0] == "install" else []
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    running = subprocess.Popen(command, env=env, start_new_session=True)  # so that its child processes can be ended
    try:
        code = running.wait(PIP_S)
    except subprocess.TimeoutExpired:
        text = f"`pip {' '.join(arguments)}` has not ended within {PIP_S / 60:g} minutes"
        raise built.UnavailableError(f"{text}; {INDEX}") from None
    finally:
        if running.returncode is None:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
    if code:
        raise built.UnavailableError(f"`pip {' '.join(arguments)}` ended with {code}, see above; {INDEX}")


def _compile(folder: Path) -> None:
    """Compile to bytecode that is never checked against its source: the root is read-only, and files have no times."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    prefix = ["-s", str(folder), "-p", "/" + str(SITE.parent)]
    subprocess.run([*command, *prefix, str(folder)], check=False)  # a dependency may contain an invalid file


def _link(root: Path, interpreter: Interpreter, programs: Iterable[Path], without: Path | None = None) -> None:
    """Copy the linked libraries: the system's to the same path, others to /usr/local/lib."""
    there = [root, *([without] if without else [])]
    for program in programs:
        for library in interpreter.libraries(program, root):
            if any((base / library.place).exists() for base in there):
                continue
            (root / library.place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.file.resolve(), root / library.place)
            _record(root, interpreter, [library.file])


def _record(root: Path, interpreter: Interpreter, files: Iterable[Path]) -> None:
    """Record the Debian packages of these files in the image."""
    debian.record({owner.name: owner for file in files if (owner := interpreter.owner(file))}.values(), root)


def _exit_on_signal(number: int, _frame: FrameType | None) -> None:
    """Exit as after an error, so that pip is ended and incomplete files are deleted."""
    sys.exit(128 + number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="the archive to write")
    parser.add_argument("--all", action="store_true", help="for amd64 and arm64; needs OUT")
    given = parser.parse_args()
    if given.all and not given.out:
        parser.error("--all needs a file name for the archive: image.py OUT --all")
    if given.out and (given.out.is_dir() or not given.out.absolute().parent.is_dir()):
        parser.error(f"{given.out} is not a file in an existing folder; name one, such as dist/image.tar")
    write = build_for_all if given.all else build
    try:
        out = write(given.out.resolve()) if given.out else kept()
    except built.UnavailableError as problem:
        sys.exit(f"dayfly: {problem}")
    sys.stdout.write(f"{NAME} ({out.stat().st_size >> 20} MiB) is in\n{out}\n")


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _exit_on_signal)
    main()
