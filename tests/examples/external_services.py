"""The real services and tools that examples work with: PostgreSQL from Debian, an S3 gateway, the AWS command line."""

import contextlib
import fcntl
import hashlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import psycopg
import pytest
from testcluster import build
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
REGION = "eu-central-1"


def missing(why: str) -> None:
    """Skip the test because a tool is missing on this machine; fail if all tests are required."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"NOT TESTED, and CI has to: {why}")
    pytest.skip(f"NOT TESTED: {why}")


def cache() -> Path:
    """Outside the checkout, so that a fresh clone does not build again."""
    home = os.environ.get("DAYFLY_CACHE")
    folder = (Path(home) if home else Path.home() / ".cache" / "dayfly") / "tools"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def health() -> Path:
    """Return our program with kstatus and a Lua interpreter, built once (seconds)."""
    folder = HERE.parent / "gitops" / "health"
    target = cache() / f"health-{_digest(*(folder / name for name in ('go.mod', 'go.sum', 'main.go')))}"
    return _built(target, folder, ".")


def versitygw() -> Path:
    """The S3 gateway, built once (a minute or two)."""
    return _built(_cached("versitygw"), HERE / "versitygw", "github.com/versity/versitygw/cmd/versitygw")


def terraform() -> Path:
    """Return this machine's terraform, or else the last version with a free licence, built once (five minutes)."""
    found = shutil.which("terraform")
    if found:
        return Path(found)
    return _built(_cached("terraform") / "terraform", HERE / "terraform", "github.com/hashicorp/terraform")


def tofu() -> Path:
    """OpenTofu, built once (eight minutes on one processor)."""
    return _built(_cached("opentofu") / "tofu", HERE / "opentofu", "github.com/opentofu/opentofu/cmd/tofu")


def collector() -> Path:
    """Return OpenTelemetry's collector with only an OTLP receiver, built once (a minute). Only the proof uses it."""
    folder = HERE / "otelcol"
    target = cache() / f"otelcol-{_digest(*(folder / name for name in ('go.mod', 'go.sum', 'main.go')))}"
    return _built(target, folder, ".")


def awscli() -> Path:
    """The folder with the `aws` program."""
    return installed("awscli")


def schemathesis() -> Path:
    """The folder with the `schemathesis` program."""
    return installed("schemathesis")


def installed(name: str) -> Path:
    """Return the programs of a requirements file of a folder here, installed once into a separate environment."""
    wish = HERE / name / "requirements.txt"
    target = cache() / f"{name}-{_digest(wish)}"
    with locked(name):
        if not (target / "complete").exists():
            shutil.rmtree(target, ignore_errors=True)
            subprocess.run([sys.executable, "-m", "venv", target], check=True)
            install = ["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", wish]
            subprocess.run([target / "bin" / "pip", *install], check=True)
            (target / "complete").touch()
    return target / "bin"


class S3:
    """An S3 server that keeps its buckets in a folder; it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._folder.mkdir()
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"http://127.0.0.1:{self._port}"
        self.key = ("dayfly-test", "not-a-secret-at-all")

    def environment(self) -> dict[str, str]:
        """The environment for the AWS command line, without this machine's settings."""
        return {
            "PATH": f"{awscli()}:{os.environ['PATH']}",
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": self.key[0],
            "AWS_SECRET_ACCESS_KEY": self.key[1],
            "AWS_CONFIG_FILE": "/dev/null",
            "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
        }

    def start(self) -> None:
        access, secret = self.key
        self._process = subprocess.Popen(
            [versitygw(), "--quiet", "--port", f"127.0.0.1:{self._port}", "--region", REGION, "posix", self._folder],
            env={"PATH": os.environ["PATH"], "ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        awaited(lambda: answers(self._port), self._process)

    def stored(self) -> list[str]:
        """The buckets in its folder, also while it is stopped."""
        return [each.name for each in self._folder.iterdir() if not each.name.startswith(".")]

    def stop(self) -> None:
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def postgres(address: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Start a PostgreSQL server at one of this machine's addresses; yield the administrator's PG* variables."""
    programs = postgres_programs()
    password = "administrator"
    port = free_port()
    # Not below pytest's folder: the server refuses to run as root, and others may not look in there.
    with tempfile.TemporaryDirectory(prefix="dayfly-postgres-") as name:
        folder = Path(name)
        secret = folder / "password"
        secret.write_text(password)
        as_owner: dict[str, int] = {}
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            as_owner = {"user": owner.pw_uid, "group": owner.pw_gid}
            for path in (folder, secret):
                os.chown(path, owner.pw_uid, owner.pw_gid)
        subprocess.run(
            [
                *(programs / "initdb", "--pgdata", folder / "data", "--username", "admin", "--pwfile", secret),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=folder,
            **as_owner,
        )
        with (folder / "data" / "pg_hba.conf").open("a") as who:
            who.write("host all all all scram-sha-256\n")
        settings = (
            *(f"listen_addresses={address}", f"port={port}", "unix_socket_directories=", "fsync=off"),
            "autovacuum=off",  # its transactions would look like writes of a test
        )
        with (folder / "log").open("wb") as log:
            server = subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", *(word for each in settings for word in ("-c", each))],
                stdout=log,
                stderr=log,
                cwd=folder,
                **as_owner,
            )
        try:
            asked = [programs / "pg_isready", "--quiet", "--host", address, "--port", str(port)]
            awaited(lambda: subprocess.run(asked).returncode == 0, server)
            yield {
                "PGHOST": address,
                "PGPORT": str(port),
                "PGUSER": "admin",
                "PGPASSWORD": password,
                "PGDATABASE": "postgres",
            }
        finally:
            server.send_signal(3)  # SIGQUIT: at once, with all its children
            server.wait()


def connect(settings: dict[str, str]) -> psycopg.Connection:
    return psycopg.connect(
        host=settings["PGHOST"],
        port=settings["PGPORT"],
        user=settings["PGUSER"],
        password=settings["PGPASSWORD"],
        dbname=settings["PGDATABASE"],
        autocommit=True,
    )


def _cached(name: str) -> Path:
    """Return the path for the build of this module, which depends on its pinned versions."""
    return cache() / f"{name}-{_digest(HERE / name / 'go.mod', HERE / name / 'go.sum')}"


def _built(target: Path, folder: Path, package: str) -> Path:
    """The program of a Go package, built there from the module in a folder, at the first call."""
    name = folder.name
    with locked(name):
        if not target.exists():
            try:
                build.check_go(name)
            except build.UnavailableError as problem:
                missing(str(problem))
            target.parent.mkdir(exist_ok=True)
            part = target.with_suffix(".part")
            flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", str(part)]
            command = ["nice", "go", "build", *flags, package]
            built = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if built.returncode:
                missing(f"{name}, which could not be built:\n{built.stdout[-2000:]}")
            part.rename(target)
    return target


def postgres_programs() -> Path:
    """The folder with a PostgreSQL's programs."""
    with locked("postgresql"):
        if not (found := _newest_postgres()):
            subprocess.run([HERE.parent.parent / "scripts" / "debian.sh", "postgresql"])
            found = _newest_postgres()
    if not found:
        missing("there is no PostgreSQL server on this machine: install Debian's package postgresql")
    assert found, "missing() does not return"
    return found


def _newest_postgres() -> Path | None:
    versions = Path("/usr/lib/postgresql")
    found = [folder / "bin" for folder in versions.iterdir()] if versions.is_dir() else []
    found = [folder for folder in found if (folder / "initdb").exists()]
    return max(found, key=lambda folder: float(folder.parent.name), default=None)


def answers(port: int, address: str = "127.0.0.1") -> bool:
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1):
        return True
    return False


def awaited(ready: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert process.poll() is None, f"{process.args!r} ended with {process.returncode}"
        if ready():
            return
        time.sleep(0.05)
    raise AssertionError(f"{process.args!r} does not answer")


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """One at a time on this machine, for test runs that share the cache."""
    with (cache() / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Beside:
    """A service whose program is next to an example, on one of this machine's addresses."""

    EXAMPLE, TOKEN = "", ""

    def __init__(self, address: str) -> None:
        program = HERE.parents[1] / "examples" / self.EXAMPLE / "service.py"
        command = [sys.executable, str(program), f"{address}:0", self.TOKEN]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None, "its address is printed there"
        self.address = self._process.stdout.readline().strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.kill()

    def ask(self, path: str, body: Any = None, method: str | None = None, key: str = "") -> Any:
        """Return the answer to a request with its token and this idempotency key; None if it is empty."""
        headers = {"Authorization": f"Bearer {self.TOKEN}", "Idempotency-Key": key}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.read() or b"null")


class Names(Beside):
    """The service of names."""

    EXAMPLE, TOKEN = "webhook-dns", "t0ken-of-dns"

    def left(self) -> list[str]:
        """The names that it knows."""
        return [record["name"] for record in self.ask("/v1/records")]

    def add(self, owner: str) -> None:
        """Add the record of another owner."""
        self.ask("/v1/zones/sandboxes.example/records", {"owner": owner, "address": "192.0.2.8"})

    def remove(self, owner: str) -> None:
        """Remove the record of an owner."""
        self.ask(f"/v1/zones/sandboxes.example/records?owner={owner}", method="DELETE")


class Tenants(Beside):
    """The service that many share."""

    EXAMPLE, TOKEN = "mixed-tenant", "t0ken-of-tenants"

    def open(self, owner: str, tenant: str) -> None:
        """Open an account."""
        self.ask("/v1/tenants", {"owner": owner, "tenant": tenant, "key": owner, "secret": ""}, key=owner)

    def left(self) -> list[str]:
        """The tenants that have an account."""
        return list(self.ask("/v1/tenants"))

    def log(self) -> list[str]:
        """Return its log of changes."""
        return list(self.ask("/v1/log"))
