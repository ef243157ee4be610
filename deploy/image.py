#!/usr/bin/env python3
"""Make the operator's image from this checkout, without a registry, a daemon or a base image.

    deploy/image.py operator.tar          # an OCI archive: `ctr images import`, or Cluster.load of testcluster
    deploy/image.py                       # the same, kept in .cache/image for as long as its sources stay as they are

Three layers: this machine's Python with the libraries it links to, the locked dependencies (hashes checked), and
Dayfly's own wheel with the runner programs. The first two change rarely and are kept in ~/.cache/dayfly/image (or in
$DAYFLY_CACHE), for all checkouts. No shell, no package manager, no setuid file; it runs as 65532 and needs no writable
root. It prints the archive's path last.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from testcluster import build as built  # noqa: E402 - as above
from testcluster import images  # noqa: E402 - as above

from dayfly import __version__  # noqa: E402 - found beside this script, installed or not

# With a host, for a name without one means a public registry to every node; and with one that nobody can ever hold.
NAME = f"dayfly.invalid/operator:{__version__}"
CACHE = ROOT / ".cache" / "image"
LAYERS = built.cache().parent / "image"
UNUSED_S = 7 * 24 * 3600  # so long after its last use a layer goes
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = Path("usr/local/lib", PYTHON, "site-packages")
RUNNERS = SITE / "dayfly" / "runners"  # for both architectures: a cluster's nodes need not be of this machine's kind
SETTINGS = images.Settings(
    entrypoint=[f"/usr/local/bin/{PYTHON}", "-m", "dayfly"],
    environment={
        "LD_LIBRARY_PATH": "/usr/local/lib",
        "PATH": "/usr/local/bin",
        "PYTHONHOME": "/usr/local",
        "PYTHONPATH": f"/{SITE}",  # Debian's Python looks for modules elsewhere by itself
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
        "DAYFLY_RUNNER": f"/{RUNNERS}/{os.uname().machine}",
    },
    user="65532:65532",
    folder="/tmp",  # noqa: S108 - of the image, where the manifest mounts an emptyDir
)
UNUSED = (
    *("test", "tests", "idlelib", "tkinter", "_tkinter*", "turtledemo", "lib2to3", "ensurepip", "_test*", "xx*"),
    *("site-packages", "dist-packages", "__pycache__", "config-*", "*.a"),
)
SYSTEM = ("/lib/", "/lib64/", "/usr/lib/")


PIP_S = 15 * 60  # with a compiler to fetch, and both runners to build, on a busy machine
INDEX = "see whether this machine's package index answers (pip config list, PIP_INDEX_URL), then try again"

# All that ends up in the image, or decides how.
SOURCES = ("src", "runner", "examples", "requirements/operator.txt", "pyproject.toml", "scripts/wheel.py")
SOURCES += ("deploy/image.py", "testcluster/images.py", "page", "scripts/page.sh")
# What is made of them lies among them.
MADE = {"__pycache__", "node_modules", "static"}


def kept() -> Path:
    """The archive of these very sources: made once, until they change.

    Raises:
        UnavailableError: it cannot be made here.
    """
    with _lock():
        target = CACHE / f"operator-{_digest_of_sources()}.tar"
        if not target.exists():
            for old in CACHE.glob("operator-*.tar"):
                old.unlink()
            _build(target)
        return target


def build(to: Path) -> Path:
    """Write the image's archive."""
    with _lock():
        return _build(to)


@contextlib.contextmanager
def _lock() -> Iterator[None]:
    """One at a time: layers are kept in one place."""
    CACHE.mkdir(parents=True, exist_ok=True)
    LAYERS.mkdir(parents=True, exist_ok=True)
    with (LAYERS / "lock").open("w") as file, images.readable():
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest_of_sources() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for source in SOURCES:
        found = ROOT / source
        for path in [found] if found.is_file() else sorted(found.rglob("*")):
            if path.is_file() and not MADE.intersection(path.parts):
                digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(to: Path) -> Path:
    locked = (ROOT / "requirements" / "operator.txt").read_bytes()
    key = sys.version.encode() + Path(__file__).read_bytes()
    python = _kept("python", key, _interpreter)
    layers = [python, _kept("dependencies", key + locked, lambda root: _dependencies(root, python))]
    with tempfile.TemporaryDirectory(dir=CACHE) as scratch:
        own = Path(scratch)
        own.chmod(0o755)
        _dayfly(own)
        return images.build(NAME, [*layers, own], SETTINGS, to=to)


def _kept(name: str, key: bytes, fill: Callable[[Path], None]) -> Path:
    """A layer's folder, filled once for each key; those of that name that nobody uses any more go."""
    target = LAYERS / f"{name}-{hashlib.sha256(key).hexdigest()[:16]}"
    if not target.exists():
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


def _interpreter(root: Path) -> None:
    """Python, its standard library but for tests and windows, what all of it links to, and what people trust."""
    program = Path(sys.executable).resolve()
    home = root / "usr" / "local"
    (home / "bin").mkdir(parents=True)
    shutil.copy2(program, home / "bin" / PYTHON)
    library = home / "lib" / PYTHON
    stdlib = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(stdlib, library, ignore=shutil.ignore_patterns(*UNUSED))
    (library / "site-packages").mkdir()
    _compile(library)
    _link(root, [program, *library.glob("lib-dynload/*.so")])
    for folder in ("etc/ssl/certs", "tmp"):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    (root / "etc/passwd").write_text("root:x:0:0::/:/none\ndayfly:x:65532:65532::/tmp:/none\n")
    (root / "etc/group").write_text("root:x:0:\ndayfly:x:65532:\n")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        shutil.copy2(certificates, root / "etc/ssl/certs")


def _dependencies(root: Path, python: Path) -> None:
    site = root / SITE
    _pip("install", "--require-hashes", "--target", str(site), "-r", str(ROOT / "requirements" / "operator.txt"))
    shutil.rmtree(site / "bin", ignore_errors=True)
    _compile(site)
    _link(root, site.rglob("*.so"), without=python)


def _dayfly(root: Path) -> None:
    """Our wheel, and in it the runner."""
    with tempfile.TemporaryDirectory(dir=CACHE) as wheels:
        _pip("wheel", "--no-deps", "--wheel-dir", wheels, str(ROOT))
        (wheel,) = Path(wheels).glob("*.whl")
        _pip("install", "--no-deps", "--target", str(root / SITE), str(wheel))
    shutil.rmtree(root / SITE / "bin", ignore_errors=True)
    _compile(root / SITE)


def _pip(*arguments: str) -> None:
    """Run pip, with an end to its patience: an index that says nothing would keep everybody who wants the image.

    Raises:
        UnavailableError: it failed, or did not come to its end; what it said is on stderr.
    """
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", *arguments]
    command += ["--no-compile"] if arguments[0] == "install" else []
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    running = subprocess.Popen(command, env=env, start_new_session=True)  # what it starts, its builds, ends with it
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
    """Bytecode that is never checked against its source: the root is read-only, and the files carry no times."""
    command = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    prefix = ["-s", str(folder), "-p", "/" + str(SITE.parent)]
    subprocess.run([*command, *prefix, str(folder)], check=False)  # a dependency may ship a file that no Python reads


def _link(root: Path, programs: Iterable[Path], without: Path | None = None) -> None:
    """Copy what these link to: the system's libraries to where they are, others to /usr/local/lib."""
    there = [root, *([without] if without else [])]
    for program in programs:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for found in re.findall(r"(?:=>\s*|^\s*)(/\S+) \(0x", said, re.MULTILINE):
            library = Path(found)
            local = not found.startswith(SYSTEM) or found.startswith(str(LAYERS))
            place = Path("usr/local/lib", library.name) if local else library.relative_to("/")
            if root in library.parents or any((base / place).exists() for base in there):
                continue
            (root / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(library.resolve(), root / place)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", help="the archive to write")
    wanted = parser.parse_args().out
    try:
        out = build(wanted.resolve()) if wanted else kept()
    except built.UnavailableError as problem:
        sys.exit(f"dayfly: {problem}")
    sys.stdout.write(f"{NAME} ({out.stat().st_size >> 20} MiB) is in\n{out}\n")


if __name__ == "__main__":
    main()
