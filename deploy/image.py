#!/usr/bin/env python3
"""Build the operator's image from this checkout, without a registry, a daemon or a base image.

    deploy/image.py operator.tar          # an OCI archive: `ctr images import`, or Cluster.load of testcluster
    deploy/image.py                       # the same, cached in .cache/image until its sources change

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

# With a host, because nodes take a name without one for a public registry. This host can never be registered.
NAME = f"dayfly.invalid/operator:{__version__}"
CACHE = ROOT / ".cache" / "image"
LAYERS = built.cache().parent / "image"
UNUSED_S = 7 * 24 * 3600  # age since the last use after which a layer is deleted
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
SITE = Path("usr/local/lib", PYTHON, "site-packages")
RUNNERS = SITE / "dayfly" / "runners"  # for both architectures: nodes may differ from this machine
SETTINGS = images.Settings(
    entrypoint=[f"/usr/local/bin/{PYTHON}", "-m", "dayfly"],
    environment={
        "LD_LIBRARY_PATH": "/usr/local/lib",
        "PATH": "/usr/local/bin",
        "PYTHONHOME": "/usr/local",
        "PYTHONPATH": f"/{SITE}",  # Debian's Python has another default path
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

# The sources of the image, and the files that decide about its content.
SOURCES = ("src", "runner", "examples", "requirements/operator.txt", "pyproject.toml", "scripts/wheel.py")
SOURCES += ("deploy/image.py", "testcluster/images.py", "page", "scripts/page.sh")
# Build results inside of these folders.
MADE = {"__pycache__", "node_modules", "static"}


def kept() -> Path:
    """Return the archive for the current sources, which is built once until they change.

    Raises:
        UnavailableError: this machine cannot build it.
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
    """Lock the cache of layers for one process at a time."""
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
    """Return a layer's folder, which is filled once for each key. Delete unused layers of that name."""
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
    """Copy Python, its standard library without tests and Windows files, the linked libraries, and CA certificates."""
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


def _link(root: Path, programs: Iterable[Path], without: Path | None = None) -> None:
    """Copy the linked libraries: the system's to the same path, others to /usr/local/lib."""
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
