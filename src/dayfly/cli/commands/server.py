"""`dayfly server`: run a server for many users and clusters, without a host."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from dayfly.cli import installed, options
from dayfly.cli.command_classes import NounGroup
from dayfly.cli.local import server_process
from dayfly.cli.local.server_process import is_loopback, listen_on, parse_address
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from dayfly.server.db.store import Store
    from dayfly.server.events.cloud_event_publisher import EventReceiver
    from dayfly.server.http.tls import Certificate

_LISTEN = "127.0.0.1:7851"
_ORG = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")

_database = click.option(
    "--database",
    metavar="URL",
    envvar="DAYFLY_DATABASE",
    help="postgresql://USER:PASSWORD@HOST/NAME or sqlite:///PATH; better as $DAYFLY_DATABASE, because other "
    "users may see command lines. Default: server.db in the home.",
)


class _ServerOptions(NamedTuple):
    """The options of the server."""

    certificate: Certificate | None
    rate: float
    loopback: bool
    receiver: EventReceiver | None


@click.group("server", cls=NounGroup, invoke_without_command=True)
@click.option("--listen", metavar="HOST:PORT", default=_LISTEN, show_default=True, help="Port 0 takes a free one.")
@_database
@click.option("--tls-cert", metavar="FILE", help="The certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="The private key of the certificate (PEM).")
@click.option("--plain", is_flag=True, help="Listen without TLS beyond loopback, behind a proxy with TLS.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=50,
    show_default=True,
    help="The maximum number of requests a second for each key. Further requests wait. 0 sets no limit.",
)
@options.events_to(of="all organisations' sandboxes")
@options.allow_webhook
@click.pass_context
def command(
    ctx: click.Context,
    listen: str,
    database: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    plain: bool,
    rate: float,
    events_to: str | None,
    webhooks: tuple[str, ...],
) -> None:
    """Run a server for many users, with organisations, API keys with roles, and clusters whose agents connect to it.

    It runs no steps. Several servers can share one PostgreSQL. `dayfly server init ORG` creates the first organisation.
    """
    if ctx.invoked_subcommand:
        return
    host, port = parse_address(listen, "--listen")
    certificate = _check_certificate(tls_cert, tls_key)
    if certificate is None and not plain and not is_loopback(host):
        message = f"keys would be sent unencrypted to {listen}"
        raise DayflyError(Exit.USAGE, message, "add --tls-cert and --tls-key, or --plain behind a proxy with TLS")
    receiver = None
    if events_to:
        from dayfly.cli import event_receiver

        receiver = event_receiver.build_receiver(events_to, options.parse_webhook_servers(webhooks))
    server_process.log_warnings()
    settings = _ServerOptions(certificate, rate, is_loopback(host), receiver)
    # The objects of the start-up are permanent. Garbage collections during the start would take a seventh of its time.
    gc.disable()
    try:
        with _open_store(database) as store, listen_on(host, port, "choose another with --listen HOST:PORT") as sock:
            asyncio.run(_serve(store, sock, settings))
    finally:
        gc.enable()


@command.command("init")
@click.argument("org")
@_database
def init(org: str, database: str | None) -> None:
    """Create an organisation and print the key of its first admin. The key is shown only this once."""
    from dayfly.server.admin import keys

    key = _create_key(keys.create_organisation, org, database)
    if key is None:
        advice = "its admins create keys with: dayfly key create; if they have lost theirs: dayfly server admin-key"
        raise DayflyError(Exit.FAILED, f'the organisation "{org}" already exists', advice)
    show.print_message(
        f'Created the organisation "{org}". This is the key of its first admin; it cannot be shown again:'
    )
    show.print_line(key)


@command.command("admin-key")
@click.argument("org")
@_database
def admin_key(org: str, database: str | None) -> None:
    """Create another admin's key for an organisation whose admins have lost theirs. The key is shown only this once.

    The command needs no key: it writes to the database. The audit log records it. Existing keys stay valid.
    """
    from dayfly.server.admin import keys

    key = _create_key(keys.create_admin_key, org, database, must_exist=True)
    if key is None:
        advice = "check its name, and --database; dayfly server init creates an organisation"
        raise DayflyError(Exit.FAILED, f'there is no organisation "{org}" in this database', advice)
    show.print_message(f'Created an admin\'s key for the organisation "{org}". It cannot be shown again:')
    show.print_line(key)


def _create_key(
    create: Callable[[Store, str], Coroutine[Any, Any, str | None]],
    org: str,
    database: str | None,
    *,
    must_exist: bool = False,
) -> str | None:
    """Return the key that `create` makes in the database.

    Raises:
        DayflyError: the name is invalid, or the database cannot be used.
    """
    if not _ORG.fullmatch(org):
        raise DayflyError(
            Exit.USAGE, f"{org!r} is not a valid name for an organisation", "write 1 to 63 of a-z, 0-9 and -"
        )
    from dayfly.server.db.store import StoreError

    with _open_store(database, must_exist=must_exist) as store:
        try:
            return asyncio.run(create(store, org))
        except StoreError as fault:
            raise DayflyError(Exit.FAILED, str(fault)) from None


@command.command("migrate")
@click.argument("revision")
@_database
def migrate(revision: str, database: str | None) -> None:
    """Migrate a database that no server is using, forward or back, to a schema such as 0001.

    A server migrates an older database by itself. Migrating back loses data that only the newer schema can store.
    """
    from dayfly.server.db.store import Store, StoreError

    try:
        Store.migrate(_database_url(database), revision)
    except StoreError as fault:
        raise DayflyError(Exit.FAILED, str(fault)) from None
    show.print_message(f"The database now has schema {revision}.")


async def _serve(store: Store, sock: socket.socket, settings: _ServerOptions) -> None:
    from dayfly import __version__
    from dayfly.server import app as control

    stop = server_process.stop_on_signals()
    tls = settings.certificate is not None
    app = control.create_app(
        store,
        {},
        version=__version__,
        loopback=settings.loopback,
        tls=tls,
        rate=settings.rate,
        receiver=settings.receiver,
    )
    gc.freeze()
    gc.enable()
    serving = asyncio.create_task(control.serve(app, [sock], stop=stop, certificate=settings.certificate))
    host, port = sock.getsockname()[:2]
    show.print_message(f"dayfly serves at {'https' if tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}")
    await serving


def _database_url(database: str | None) -> str:
    if database:
        return database
    home = Home.find()
    home.make()
    return str(home.server_store)


@contextlib.contextmanager
def _open_store(database: str | None, *, must_exist: bool = False) -> Iterator[Store]:
    """Open the store while the context lasts. A missing SQLite file is created, unless it `must_exist`.

    Raises:
        DayflyError: the store cannot be opened.
    """
    from dayfly.server.db.store import Store, StoreError

    try:
        store = Store.open(_database_url(database), must_exist=must_exist)
    except StoreError as fault:
        advice = installed.install_advice("server") if isinstance(fault.__cause__, ImportError) else ""
        raise DayflyError(Exit.FAILED, str(fault), advice) from None
    try:
        yield store
    finally:
        store.close()


def _check_certificate(chain: str | None, key: str | None) -> Certificate | None:
    """Load the certificate and its key once to check them, and return their paths; None without a certificate.

    Raises:
        DayflyError: only one of the two is given, a file cannot be read, or the key does not match the certificate.
    """
    from dayfly.server.http.tls import Certificate, create_context

    if not chain and not key:
        return None
    if not (chain and key):
        raise DayflyError(Exit.USAGE, "a certificate needs its key", "use both --tls-cert and --tls-key")
    found = Certificate(chain, key)
    try:
        create_context(found)
    except OSError as fault:
        reason = getattr(fault, "reason", "") or (fault.strerror or "cannot be read").lower()
        missing = next((each for each in (chain, key) if not Path(each).is_file()), chain)
        raise DayflyError(Exit.USAGE, f"{missing}: {reason}", "use a certificate and its key, both as PEM") from None
    return found
