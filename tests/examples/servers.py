"""The real servers of the gallery, each started by a test session and ended by it: MariaDB, Redis, NATS, OpenBao, moto."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.examples.external_services import REGION, answers, awaited, installed, locked, missing
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "administrator"
_DEBIAN = {
    "mariadbd": "mariadb-server-core",
    "mariadb": "mariadb-client-core",
    "redis-server": "redis-server",
    "nats-server": "nats-server",
}


def moto() -> Path:
    """The Python that has moto, a server that speaks as Amazon's services do."""
    return installed("moto") / "python"


def openbao() -> Path:
    """The folder with the program `bao`: OpenBao's server and its command line."""
    return installed("openbao") / "bao"


@contextlib.contextmanager
def mariadb() -> Iterator[dict[str, str]]:
    """A MariaDB server; gives the administrator's variables."""
    server, port = _program("mariadbd"), free_port()
    _program("mariadb")
    with _folder("mariadb") as folder:
        as_owner = _nobody(folder)
        common = ("--no-defaults", f"--datadir={folder}", "--innodb-flush-method=fsync", "--skip-log-bin")
        small = ("--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M", "--innodb-flush-log-at-trx-commit=0")
        made = ["mariadb-install-db", *common, *small, "--auth-root-authentication-method=normal", "--skip-test-db"]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder, **as_owner)
        (folder / "first.sql").write_text(
            f"CREATE USER 'admin'@'%' IDENTIFIED BY '{PASSWORD}', 'eyes'@'%' IDENTIFIED BY '{PASSWORD}';\n"
            "GRANT SELECT, PROCESS ON *.* TO 'eyes'@'%';\n"
            "GRANT CREATE USER, CONNECTION ADMIN ON *.* TO 'admin'@'%';\n"
            "GRANT ALL PRIVILEGES ON `dayfly%`.* TO 'admin'@'%' WITH GRANT OPTION;\n"
            "GRANT SELECT (user) ON mysql.user TO 'admin'@'%';\n"
        )
        place = (f"--port={port}", "--bind-address=127.0.0.1", f"--socket={folder}/socket")
        command = [server, *common, *small, *place, f"--init-file={folder}/first.sql"]
        with _started(command, lambda: answers(port), folder, **as_owner):
            at = {"MARIADB_HOST": "127.0.0.1", "MARIADB_PORT": str(port)}
            yield {**at, "MARIADB_USER": "admin", "MYSQL_PWD": PASSWORD}


@contextlib.contextmanager
def redis(address: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """A Redis server with a file of users; gives the administrator's variables."""
    server, port = _program("redis-server"), free_port()
    with _folder("redis") as folder:
        (folder / "users").write_text(
            f"user admin on >{PASSWORD} ~dayfly-* +ping +acl +eval +scan +unlink\n"
            f"user eyes on >{PASSWORD} ~* &* +@all\nuser default off\n"
        )
        command = [server, "--port", str(port), "--bind", address, "--save", "", "--aclfile", f"{folder}/users"]
        with _started(command, lambda: answers(port, address), folder):
            at = {"REDIS_HOST": address, "REDIS_PORT": str(port)}
            yield {**at, "REDIS_USER": "admin", "REDISCLI_AUTH": PASSWORD}


@contextlib.contextmanager
def nats(address: str = "127.0.0.1") -> Iterator[dict[str, str]]:
    """Start a NATS server with JetStream; yield the administrator's variables and the monitoring address."""
    server, port, told = _program("nats-server"), free_port(), free_port()
    with _folder("nats") as folder:
        admin = f'{{user: admin, password: {PASSWORD}, permissions: {{publish: "$JS.API.>", subscribe: "_INBOX.>"}}}}'
        (folder / "settings").write_text(
            f"listen: {address}:{port}\nhttp: {address}:{told}\njetstream: {{store_dir: {folder}}}\n"
            f"authorization: {{users: [{admin}, {{user: eyes, password: {PASSWORD}}}]}}\n"
        )
        command = [server, "--config", folder / "settings"]
        with _started(command, lambda: answers(port, address) and answers(told, address), folder):
            at = {"NATS_HOST": address, "NATS_PORT": str(port), "NATS_TOLD": str(told)}
            yield {**at, "NATS_USER": "admin", "NATS_PASSWORD": PASSWORD}


@contextlib.contextmanager
def vault(database: dict[str, str]) -> Iterator[dict[str, str]]:
    """An OpenBao server that may make users in a PostgreSQL server; gives the administrator's variables of both."""
    program, port = openbao(), free_port()
    with _folder("openbao") as folder:
        place = [f"-dev-listen-address=127.0.0.1:{port}", f"-dev-root-token-id={PASSWORD}", "-dev-no-store-token"]
        with _started([program, "server", "-dev", *place], lambda: answers(port), folder, env={"HOME": str(folder)}):
            settings = {"BAO_ADDR": f"http://127.0.0.1:{port}", "BAO_TOKEN": PASSWORD, **database}
            settings["PATH"] = f"{program.parent}:{os.environ['PATH']}"
            prepare = ROOT / "examples" / "vault-secret" / "prepare.sh"
            subprocess.run([prepare], check=True, env={**os.environ, **settings}, stdout=subprocess.DEVNULL)
            yield settings


@contextlib.contextmanager
def sqs(path: str) -> Iterator[dict[str, str]]:
    """A server that speaks as Amazon's queues do; gives what the AWS command line in `path` needs."""
    program, port = moto(), free_port()
    with _folder("moto") as folder:
        command = [program, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
        with _started(command, lambda: answers(port), folder):
            yield {
                "PATH": path,
                "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{port}",
                "AWS_ACCESS_KEY_ID": "dayfly-test",
                "AWS_SECRET_ACCESS_KEY": "not-a-secret-at-all",
                "AWS_DEFAULT_REGION": REGION,
                "AWS_CONFIG_FILE": "/dev/null",
                "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_MAX_ATTEMPTS": "1",
            }


def _program(name: str) -> Path:
    """A server of Debian's, which is installed if it can be."""
    with locked("gallery"):
        if not shutil.which(name, path=_PATH):
            subprocess.run([ROOT / "scripts" / "debian.sh", _DEBIAN[name]], check=False)
    if not (found := shutil.which(name, path=_PATH)):
        missing(f"there is no {name} on this machine: install Debian's package {_DEBIAN[name]}")
    assert found, "missing() does not return"
    return Path(found)


_PATH = f"{os.environ['PATH']}:/usr/sbin"


@contextlib.contextmanager
def _folder(name: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix=f"dayfly-{name}-") as folder:
        yield Path(folder)


def _nobody(folder: Path) -> dict[str, int]:
    """Return the user for a server that refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


@contextlib.contextmanager
def _started(
    command: list[str | Path],
    ready: Callable[[], bool],
    folder: Path,
    *,
    env: dict[str, str] | None = None,
    user: int | None = None,
    group: int | None = None,
) -> Iterator[None]:
    """The server, ready, until the end."""
    with (folder / "log").open("wb") as log:
        environment = {**os.environ, **(env or {})}
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, env=environment, user=user, group=group)
        try:
            awaited(ready, server)
            yield
        finally:
            server.kill()
            server.wait()
