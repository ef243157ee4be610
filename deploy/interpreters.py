# ruff: noqa: INP001 - beside image.py, which imports it from this folder
"""The Pythons of images: that of this machine, and Debian's for any architecture, which is not executed here."""

import hashlib
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from testcluster.build import UnavailableError

from deploy import debian, elf

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
# Python with its standard library, and the libraries of wheels.
PACKAGES = (PYTHON, "libstdc++6")
OLDEST_GLIBC, NEWEST_GLIBC = 17, 28  # wheels for glibc 2.17 to 2.28, which is older than that of each supported Debian
_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/")


class Library(NamedTuple):
    """A shared library: its file, and its path in the image."""

    file: Path
    place: Path


class Interpreter(Protocol):
    """A Python that an image is made of."""

    machine: str
    version: str  # changes with each version of Python or of a library
    program: Path
    standard_library: Path
    pip_options: tuple[str, ...]  # select wheels for it

    def libraries(self, program: Path, root: Path) -> Iterator[Library]:
        """Yield the libraries that a program or module is linked to, except those of the layer `root`."""

    def owner(self, file: Path) -> debian.Package | None:
        """Return the Debian package of a file, if there is one."""


class ThisMachine:
    """The Python that runs this script, and the libraries of this machine."""

    def __init__(self) -> None:
        self.machine = os.uname().machine
        self.program = Path(sys.executable).resolve()
        self.standard_library = Path(sysconfig.get_path("stdlib"))
        linked = _linked(self.program, *sorted(self.standard_library.glob("lib-dynload/*.so")))
        found = [f"{file} {hashlib.sha256(file.read_bytes()).hexdigest()}" for file in linked]
        self.version = "\n".join([sys.version, *found])
        self.pip_options: tuple[str, ...] = ()

    def libraries(self, program: Path, root: Path) -> Iterator[Library]:
        for library in _linked(program):
            if root not in library.parents:
                is_system = str(library).startswith(_SYSTEM)
                yield Library(library, library.relative_to("/") if is_system else Path("usr/local/lib", library.name))

    def owner(self, file: Path) -> debian.Package | None:
        return debian.installed_owner(file)


def _linked(*programs: Path) -> list[Path]:
    """Return the libraries that programs or modules of this machine are linked to."""
    printed = subprocess.run(["ldd", *programs], capture_output=True, text=True, check=False).stdout
    found = re.findall(r"(?:=>\s*|^\s*)(/\S+) \(0x", printed, re.MULTILINE)
    return [Path(each) for each in dict.fromkeys(found)]


class DebianPython:
    """The Python of Debian packages that are unpacked in `system`."""

    def __init__(self, machine: str, version: str, system: Path) -> None:
        self.machine = machine
        self.version = version
        self.program = system / "usr/bin" / PYTHON
        self.standard_library = system / "usr/lib" / PYTHON
        platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(OLDEST_GLIBC, NEWEST_GLIBC + 1)]
        options = [f"--platform={each}" for each in (*platforms, f"manylinux2014_{machine}")]
        # Without dependencies, because pip compares their conditions with this machine; all are locked.
        python_version = PYTHON.removeprefix("python")
        self.pip_options = (*options, f"--python-version={python_version}", "--only-binary=:all:", "--no-deps")
        self._system = system
        self._owners = debian.owners(system)

    def libraries(self, program: Path, root: Path) -> Iterator[Library]:
        contained = {path.name for path in root.rglob("*.so*")}
        waiting, known = [program], set[str]()
        while waiting:
            user = waiting.pop()
            read = elf.read(user)
            for name in read.libraries if read else ():
                if name not in contained | known:
                    known.add(name)
                    library = self._library(name, user)
                    waiting.append(library.file)
                    yield library

    def _library(self, name: str, user: Path) -> Library:
        triplet = f"{self.machine}-linux-gnu"
        for folder in ("lib", "lib64", f"lib/{triplet}", f"usr/lib/{triplet}", "usr/lib", "usr/lib64"):
            if (file := self._system / folder / name).exists():
                return Library(file, Path(folder, name))
        packages = f"the packages {', '.join(PACKAGES)} of Debian do not have; add its package to PACKAGES"
        raise UnavailableError(f"{user.name} needs the library {name}, which {packages} in deploy/interpreters.py")

    def owner(self, file: Path) -> debian.Package | None:
        return self._owners.get(str(file.relative_to(self._system)))
