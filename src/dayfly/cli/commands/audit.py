"""`dayfly audit`: show the audit log, or verify that it was not altered."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import click

from dayfly.cli import options
from dayfly.cli.backends.target_server import ServerClient
from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit
from dayfly.spec.scalars import numbers

if TYPE_CHECKING:
    from dayfly.server.admin.audit_chain import ChainEntry, ChainHead

_PAGE = 500


@verb("audit")
@options.server
@click.option("--verify", is_flag=True, help="Verify the chain, and print its head.")
@click.option("--since", metavar="NUMBER:DIGEST", help="Only entries after this head, which --verify has printed.")
@options.list_output
def command(verify: bool, since: str | None, output: str | None) -> int:
    """Show who changed what, oldest first, or verify that no entry was changed or removed.

    Store the head that --verify prints in a safe place. Later, --since verifies that all entries up to that head still
    exist.
    """
    from dayfly.server.admin import audit_chain

    begin = _parse_head(since) if since else audit_chain.ChainHead()
    client = ServerClient.open()
    entries, head = _fetch_entries(client, begin.number)
    if verify:
        if begin.number > head.number:
            raise DayflyError(Exit.FAILED, f"entry {begin.number} no longer exists: the last entry is {head.number}")
        if fault := audit_chain.find_fault(client.address.org, entries, head, begin):
            raise DayflyError(Exit.FAILED, fault, "the server's database was altered; compare it with a backup")
        show.print_message(f"{len(entries)} entries are unaltered. The head:")
        if output:
            show.emit({"number": head.number, "digest": head.digest}, output)
        else:
            show.print_line(f"{head.number}:{head.digest}")
    elif output:
        import msgspec

        show.emit(msgspec.to_builtins(entries), output)
    elif entries:
        header = ("NUMBER", "TIME", "KEY", "ACTION", "OBJECT", "PROGRAM")
        rows = [
            (str(each.number), _time(each.at), f"{each.key} ({each.name})", each.action, each.object, each.program)
            for each in entries
        ]
        show.print_table(header, rows, elastic="PROGRAM")
    else:
        show.print_message("There are no entries.")
    return Exit.OK


def _fetch_entries(client: ServerClient, after: int) -> tuple[list[ChainEntry], ChainHead]:
    """Return all entries after a number, and the head of the last entry."""
    import msgspec

    from dayfly.server.admin import audit_chain

    found: list[ChainEntry] = []
    while True:
        page = client.get("audit", after=found[-1].number if found else after, limit=_PAGE)
        found += msgspec.convert(page["entries"], list[audit_chain.ChainEntry])
        head = msgspec.convert(page["head"], audit_chain.ChainHead)
        if not page["entries"] or found[-1].number >= head.number:
            return found, head


def _parse_head(text: str) -> ChainHead:
    from dayfly.server.admin import audit_chain

    number, colon, digest = text.partition(":")
    counted = numbers.parse_whole(number, numbers.MAX_INTEGER)
    if not (colon and len(digest) == len(audit_chain.EMPTY_DIGEST)) or counted is None:
        raise DayflyError(
            Exit.USAGE,
            f"{text!r} is not the head of an audit log",
            "use a head that --verify has printed: NUMBER:DIGEST",
        )
    return audit_chain.ChainHead(counted, digest)


def _time(at: int) -> str:
    return dt.datetime.fromtimestamp(at / 1000, dt.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
