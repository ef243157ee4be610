"""Images with the official names that examples use, made from this machine's programs, so no registry is necessary.

Each behaves for the examples like the official image. It contains this machine's own programs, such as PostgreSQL of
Debian 12, with the libraries they link to, and busybox as a shell.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from testcluster import build, images

BUSYBOX = "docker.io/library/busybox:stable"
POSTGRES = "docker.io/library/postgres:15"
PYTHON = f"docker.io/library/python:{sys.version_info.major}.{sys.version_info.minor}-slim"
TERRAFORM = "docker.io/hashicorp/terraform:1.9"
REDIS = "docker.io/library/redis:7"
KUBECTL = "docker.io/alpine/k8s:1.34.4"

_POSTGRES_HOME = Path("/usr/lib/postgresql/15")
_POSTGRES_TOOLS = {str(_POSTGRES_HOME / "bin" / "postgres"): "postgresql-15"}
_REDIS = "/usr/bin/redis-cli"
_ENTRYPOINT = """\
#!/bin/sh
# As in the official image: the first start creates a database system with POSTGRES_PASSWORD; then the server starts.
set -eu
: "${PGDATA:=/var/lib/postgresql/data}"
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    umask 077
    printf %s "${POSTGRES_PASSWORD:?}" >/tmp/password
    initdb -D "$PGDATA" -U postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \\
        --encoding=UTF8 --locale=C --no-sync
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    rm /tmp/password
fi
exec postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp,/var/run/postgresql
"""
_UNUSED = (
    "test",
    "tests",
    "idlelib",
    "tkinter",
    "lib2to3",
    "ensurepip",
    "site-packages",
    "__pycache__",
    "config-*",
    "*.a",
)


def busybox() -> Path:
    """Return Debian's busybox, as a shell for steps. Its `wget` crashes; use `nc`."""
    return images.cached(BUSYBOX, images.BUSYBOX, images.with_shell, images.Settings(environment={"PATH": "/bin"}))


def postgres() -> Path:
    """Return PostgreSQL of Debian 12: the server and its usual programs. User 999 has a name, as the server requires.

    Raises:
        UnavailableError: it is not installed, and cannot be.
    """
    build.install(_POSTGRES_TOOLS)
    server = _POSTGRES_HOME / "bin" / "postgres"

    def fill(root: Path) -> None:
        images.with_shell(root)
        for name in ("postgres", "initdb", "psql", "pg_dump", "pg_isready"):
            _copy(root, _POSTGRES_HOME / "bin" / name)
        for module in ("plpgsql.so", "dict_snowball.so"):
            _copy(root, _POSTGRES_HOME / "lib" / module)
        shared = Path("/usr/share/postgresql/15")
        shutil.copytree(shared, root / shared.relative_to("/"), ignore=shutil.ignore_patterns("man"))
        copy_linked(root, (root / _POSTGRES_HOME.relative_to("/")).rglob("*"))
        _copy(
            root, Path("/usr/share/zoneinfo/UTC")
        )  # Debian's build reads the system's time zones, and clients request this one
        (root / "var/run/postgresql").mkdir(parents=True)
        (root / "var/run/postgresql").chmod(0o1777)
        with (root / "etc" / "passwd").open("a") as users:
            users.write("postgres:x:999:999:postgres:/var/lib/postgresql:/bin/sh\n")
        (root / "entrypoint").write_text(_ENTRYPOINT)
        (root / "entrypoint").chmod(0o755)

    path = f"{_POSTGRES_HOME}/bin:/bin"
    return images.cached(
        POSTGRES, server, fill, images.Settings(entrypoint=["/entrypoint"], environment={"PATH": path})
    )


def python() -> Path:
    """Return this machine's Python with its standard library."""
    program = Path(sys.executable).resolve()
    folder = f"python{sys.version_info.major}.{sys.version_info.minor}"

    def fill(root: Path) -> None:
        images.with_shell(root)
        home = root / "usr" / "local"
        (home / "bin").mkdir(parents=True)
        shutil.copy2(program, home / "bin" / "python3")
        (root / "usr" / "bin").mkdir()
        (root / "usr" / "bin" / "env").symlink_to("/bin/busybox")
        library = home / "lib" / folder
        shutil.copytree(sysconfig.get_path("stdlib"), library, ignore=shutil.ignore_patterns(*_UNUSED))
        copy_linked(root, [home / "bin" / "python3", *library.glob("lib-dynload/*.so")])

    environment = {"PATH": "/usr/local/bin:/bin", "PYTHONHOME": "/usr/local", "LD_LIBRARY_PATH": "/usr/local/lib"}
    return images.cached(PYTHON, program, fill, images.Settings(environment=environment))


def terraform(program: Path) -> Path:
    """Return Terraform, one static program."""

    def fill(root: Path) -> None:
        images.with_shell(root)
        shutil.copy2(program, root / "bin" / "terraform")

    settings = images.Settings(entrypoint=["/bin/terraform"], environment={"PATH": "/bin"})
    return images.cached(TERRAFORM, program, fill, settings)


def redis() -> Path:
    """Return Redis' command line, from Debian.

    Raises:
        UnavailableError: it is not installed, and cannot be.
    """
    build.install({_REDIS: "redis-tools"})

    def fill(root: Path) -> None:
        images.with_shell(root)
        _copy(root, Path(_REDIS))
        copy_linked(root, [root / _REDIS[1:]])

    return images.cached(REDIS, Path(_REDIS), fill, images.Settings(environment={"PATH": "/usr/bin:/bin"}))


def kubectl() -> Path:
    """Return the kubectl of the cluster's own build."""
    program = build.kubectl()

    def fill(root: Path) -> None:
        images.with_shell(root)
        shutil.copy2(program, root / "bin" / "kubectl")

    return images.cached(KUBECTL, program, fill, images.Settings(environment={"PATH": "/bin"}))


def _copy(root: Path, file: Path) -> None:
    """Copy a file to the same path below the root."""
    target = root / file.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(file, target)


def copy_linked(root: Path, programs: Iterable[Path]) -> None:
    """Copy the libraries of these programs to the same paths, or to /usr/local/lib if this machine's are elsewhere."""
    for program in [each for each in programs if each.is_file()]:
        said = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
        for found in re.findall(r"(?:=>\s*|^\s*)(/\S+) \(0x", said, re.MULTILINE):
            system = found.startswith(("/lib/", "/lib64/", "/usr/lib/"))
            target = root / (found[1:] if system else f"usr/local/lib/{Path(found).name}")
            if not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(Path(found).resolve(), target)
