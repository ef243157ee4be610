# ruff: noqa: INP001 - beside image.py, which imports it from this folder
"""Packages of Debian: downloaded for any architecture and unpacked, and recorded in an image for scanners.

The downloads use the sources and keys of this machine's apt, and a separate state. Nothing is installed or executed.
"""

import dataclasses
import io
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path

from testcluster.build import UnavailableError

RECORDS = "var/lib/dpkg/status.d"  # where scanners of images search for packages if there is no package manager
DOCS = "usr/share/doc"
_FILES = "var/lib/dpkg/info"  # the files of each unpacked package
DOWNLOAD_S = 15 * 60  # time limit of one call of apt-get
_ADVICE = (
    "run it on Debian with access to its archive, and with sources that do not exclude this architecture by an option "
    "`Architectures` or `arch` (/etc/apt)"
)


@dataclasses.dataclass(frozen=True)
class Package:
    """A package: its fields as dpkg writes them, and the file with its licences, if there is one."""

    name: str
    fields: str
    licences: Path | None = None


def record(packages: Iterable[Package], root: Path) -> None:
    """Write which packages an image contains files of."""
    for package in packages:
        _write(root / RECORDS / package.name, package.fields.encode())
        if package.licences:
            _write(root / DOCS / package.name / "copyright", package.licences.read_bytes())


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def installed_owner(file: Path) -> Package | None:
    """Return the package of this machine that contains a file; None on other systems than Debian."""
    if not shutil.which("dpkg-query"):
        return None
    # If /lib is a link to /usr/lib, dpkg knows one of the paths.
    for path in (file, file.resolve(), Path("/usr", file.relative_to("/"))):
        owner = _output("dpkg-query", "-S", str(path), check=False).partition(": ")[0]
        if owner:
            fields = _output("dpkg-query", "-s", owner)
            name = owner.partition(":")[0]
            licences = Path("/", DOCS, name, "copyright")
            return Package(name, fields, licences if licences.exists() else None)
    return None


class Archive:
    """Debian's archive for one architecture. `state` is a folder for the lists of packages, which is kept."""

    def __init__(self, architecture: str, state: Path) -> None:
        self.architecture = architecture
        for folder in ("lists/partial", "archives/partial"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()  # no package is installed, so apt names all that the wanted ones depend on
        options = {
            "APT::Architecture": architecture,
            "APT::Architectures": architecture,
            "APT::Sandbox::User": "root",  # its own user could not write into our folders
            "Dir::State": state,
            "Dir::State::status": state / "status",
            "Dir::Cache": state,
        }
        self._command = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]

    def find(self, packages: Iterable[str]) -> str:
        """Return a text that changes with each version of these packages and of all that they depend on.

        Raises:
            UnavailableError: the archive cannot be read, or has no such package.
        """
        if not shutil.which("apt-get"):
            raise UnavailableError(f"there is no apt-get to download packages for {self.architecture}; {_ADVICE}")
        self._run("update")
        planned = self._run("install", "--print-uris", *_without_recommended(packages))
        return "\n".join(sorted(re.findall(r"^'[^']*' (.*)$", planned, re.MULTILINE)))

    def unpack(self, packages: Iterable[str], root: Path) -> None:
        """Download these packages with all that they depend on, and unpack them below `root`.

        Raises:
            UnavailableError: the download failed.
        """
        with tempfile.TemporaryDirectory(dir=root.parent) as downloads:
            Path(downloads, "partial").mkdir()
            self._run(
                *("install", "--download-only", f"-oDir::Cache::archives={downloads}"), *_without_recommended(packages)
            )
            for file in sorted(Path(downloads).glob("*.deb")):
                _unpack(file, root)

    def _run(self, *arguments: str) -> str:
        command = [*self._command, *arguments]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=DOWNLOAD_S)
        except subprocess.TimeoutExpired:
            minutes = f"has not ended within {DOWNLOAD_S / 60:g} minutes"
            raise UnavailableError(f"`{' '.join(command)}` {minutes}; {_ADVICE}") from None
        if ended.returncode:
            raise UnavailableError(f"`{' '.join(command)}` failed: {ended.stderr.strip()}; {_ADVICE}")
        return ended.stdout


def owners(root: Path) -> dict[str, Package]:
    """Return the package of each file that `Archive.unpack` has written, by its path below `root`."""
    found = {}
    for files in (root / _FILES).glob("*.list"):
        licences = root / DOCS / files.stem / "copyright"
        package = Package(
            files.stem, (root / RECORDS / files.stem).read_text(), licences if licences.exists() else None
        )
        found |= dict.fromkeys(files.read_text().splitlines(), package)
    return found


def _unpack(file: Path, root: Path) -> None:
    fields = _output("dpkg-deb", "--field", str(file))
    name = _output("dpkg-deb", "--field", str(file), "Package").strip()
    content = subprocess.run(["dpkg-deb", "--fsys-tarfile", file], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = [entry.name.removeprefix("./") for entry in archive if not entry.isdir()]
        archive.extractall(root, filter="tar")
    record([Package(name, fields)], root)
    _write(root / _FILES / f"{name}.list", "".join(f"{each}\n" for each in names).encode())


def _without_recommended(packages: Iterable[str]) -> list[str]:
    return ["--no-install-recommends", *packages]


def _output(*command: str, check: bool = True) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=check).stdout
