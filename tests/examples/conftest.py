"""Homes, services and examples for the tests; whatever is started here is stopped here."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from tests.examples import external_services, gallery, servers
from tests.examples.home import Home
from tests.examples.kinds import Example

# Examples whose tools are built or installed once.
_S3 = ("versitygw", "awscli")
_BUILT = {"s3-bucket": _S3, "pooled-bucket": _S3, "terraform": ("terraform",), **gallery.BUILT}
_SLOW = ("s3-bucket", "pooled-bucket", *gallery.MAKERS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "example" not in getattr(item, "fixturenames", ()):
            continue
        for name, tools in _BUILT.items():
            if name in item.name:
                item.add_marker(pytest.mark.builds(*tools))
        if any(name in item.name for name in _SLOW):
            item.add_marker(pytest.mark.slow)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report examples that were not tested."""
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if report.longrepr}
    for reason in sorted(reason for reason in reasons if "NOT TESTED" in reason):
        terminalreporter.write_line(reason, yellow=True, bold=True)


@pytest.fixture(scope="session")
def postgres() -> Iterator[dict[str, str]]:
    with external_services.postgres() as settings:
        yield settings


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[external_services.S3]:
    server = external_services.S3(tmp_path_factory.mktemp("s3") / "buckets")
    try:
        server.start()
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def mariadb() -> Iterator[dict[str, str]]:
    with servers.mariadb() as settings:
        yield settings


@pytest.fixture(scope="session")
def redis() -> Iterator[dict[str, str]]:
    with servers.redis() as settings:
        yield settings


@pytest.fixture(scope="session")
def nats() -> Iterator[dict[str, str]]:
    with servers.nats() as settings:
        yield settings


@pytest.fixture(scope="session")
def vault(postgres: dict[str, str]) -> Iterator[dict[str, str]]:
    with servers.vault(postgres) as settings:
        yield settings


@pytest.fixture(scope="session")
def sqs() -> Iterator[dict[str, str]]:
    with servers.sqs(f"{external_services.awscli()}:{os.environ['PATH']}") as settings:
        yield settings


@pytest.fixture
def names() -> Iterator[external_services.Names]:
    with external_services.Names("127.0.0.1") as service:
        yield service


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for examples whose resources are files of this machine."""
    folder = tmp_path / "things"
    folder.mkdir()
    return folder


@pytest.fixture
def example(request: pytest.FixtureRequest, folder: Path) -> Example:
    """The example that the test is parametrized with, ready to be applied."""
    name: str = request.param
    made = gallery.MAKERS[name](request) if name in gallery.MAKERS else _MAKERS[name](request, folder)
    assert made.left() == [], "something is there before the test begins"
    return made


@pytest.fixture
def home(example: Example, tmp_path: Path) -> Iterator[Home]:
    """A running Dayfly with the environment of the example. Sandboxes that a test leaves are deleted."""
    home = Home(tmp_path / "home", example.environment)
    home.up()
    try:
        yield home
        if home.json("sandbox", "list"):
            home.dayfly("sandbox", "delete", example.sandbox, code=(0, 3))  # 3: it has just ended by itself
            assert example.left() == []
    finally:
        home.down()


def _sqlite(_: pytest.FixtureRequest, folder: Path) -> Example:
    return Example("sqlite-notes", "notes-demo", {"folder": str(folder)}, {}, _listing(folder))


def _python(_: pytest.FixtureRequest, folder: Path) -> Example:
    return Example("python-step", "accounts-demo", {"folder": str(folder)}, {}, _listing(folder))


def _terraform(_: pytest.FixtureRequest, folder: Path) -> Example:
    settings = {
        "PATH": f"{external_services.terraform().parent}:{os.environ['PATH']}",
        "TERRAFORM_TEST": str(folder),  # distinguishes its processes from those of other tests
        "TF_CLI_ARGS_apply": "-parallelism=1",
        "TF_CLI_ARGS_destroy": "-parallelism=1",
    }
    kept = folder.parent / "home" / "states"

    def left() -> list[str]:
        states = (head.parent for head in kept.glob("*/*/head"))
        return [*_listing(folder)(), *(f"the state {each.name} of {each.parent.name}" for each in states)]

    return Example("terraform", "terraform-demo", {}, settings, left)


def _postgres(request: pytest.FixtureRequest, _: Path) -> Example:
    settings = request.getfixturevalue("postgres")

    def left() -> list[str]:
        wanted = "SELECT {0} FROM {1} WHERE {0} LIKE 'dayfly%'"
        with external_services.connect(settings) as connection:
            both = f"{wanted.format('nspname', 'pg_namespace')} UNION ALL {wanted.format('rolname', 'pg_roles')}"
            return [str(name) for (name,) in connection.execute(both)]

    return Example("postgres-schema", "postgres-demo", {}, settings, left)


def _s3(request: pytest.FixtureRequest, _: Path) -> Example:
    return _in_s3(request, "s3-bucket", "s3-demo")


def _pooled_s3(request: pytest.FixtureRequest, _: Path) -> Example:
    """Return the example without its pool, so that each sandbox creates its bucket."""
    return _in_s3(request, "pooled-bucket", "bucket-demo")


def _in_s3(request: pytest.FixtureRequest, name: str, sandbox: str) -> Example:
    server = request.getfixturevalue("s3")

    def left() -> list[str]:
        return [bucket["Name"] for bucket in client(server).list_buckets()["Buckets"]]

    return Example(name, sandbox, {"region": external_services.REGION}, server.environment(), left)


def _dns(request: pytest.FixtureRequest, _: Path) -> Example:
    server = request.getfixturevalue("names").address
    settings = {"DNS_TOKEN": external_services.Names.TOKEN, "DAYFLY_ALLOW_WEBHOOK": server}

    return Example(
        "webhook-dns", "dns-demo", {"server": f"http://{server}"}, settings, request.getfixturevalue("names").left
    )


def client(server: external_services.S3):
    """Our own eyes on the S3 server, other than those of the plugin."""
    access, secret = server.key
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        region_name=external_services.REGION,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )


def _listing(folder: Path) -> Callable[[], list[str]]:
    return lambda: sorted(entry.name for entry in folder.iterdir())


_MAKERS: dict[str, Callable[[pytest.FixtureRequest, Path], Example]] = {
    "sqlite-notes": _sqlite,
    "python-step": _python,
    "terraform": _terraform,
    "postgres-schema": _postgres,
    "s3-bucket": _s3,
    "pooled-bucket": _pooled_s3,
    "webhook-dns": _dns,
}
