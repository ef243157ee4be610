"""`dayfly bug-report`: write a file for a bug report, without sensitive values."""

from __future__ import annotations

import json
import platform
import re
import tarfile
import time
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dayfly.cli import diagnosis, options
from dayfly.cli.backends import lookup, target_server
from dayfly.cli.command_classes import verb
from dayfly.cli.output import formats, show
from dayfly.client import subject
from dayfly.client.errors import DayflyError, Exit
from dayfly.client.home import Home

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAX_LOG_BYTES = 256 * 1024
_CREDENTIALS = re.compile(r"(?i)(\bbearer\s+|://[^/\s:@]*:(?=[^\s/]*@))[^\s@\"']+|(?<![\w-])[\w-]{43}(?![\w-])")
"""Bearer tokens, passwords in URLs, and text of the length of a key or of a code of the page."""


@verb("bug-report")
@options.server
@options.name_argument("names", "subjects", nargs=-1, metavar="[NAME]...")
@click.option("--to", "target", default="dayfly-bug-report.tar.gz", show_default=True, help="The file to write.")
def command(names: tuple[str, ...], target: str) -> None:
    """Write a file for a bug report: versions, checks, the server's log, and the states of the sandboxes NAME.

    It contains no outputs, params, logs of steps, keys or secrets. Read it before you send it.
    """
    for name in names:
        subject.check(name)
    files = dict(_files(names))
    if Path(target).exists():
        raise DayflyError(Exit.USAGE, f"{target} already exists", "remove it, or choose another file with --to")
    with tarfile.open(target, "w:gz") as archive:
        for name, text in files.items():
            data = text.encode(errors="backslashreplace")
            entry = tarfile.TarInfo(f"dayfly-bug-report/{name}")
            entry.size, entry.mtime = len(data), int(time.time())
            archive.addfile(entry, BytesIO(data))
    show.print_message(f"Wrote {target} with {', '.join(files)}. Read it before you send it.")


def _files(names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file.

    Raises:
        DayflyError: a sandbox does not exist.
    """
    checks = [each._asdict() for each in (*diagnosis.local_findings(), *diagnosis.server_findings())]
    machine = {"system": platform.platform(), "python": platform.python_version(), "checks": checks}
    yield "machine.json", _without_credentials(json.dumps(machine, indent=2))
    yield "server.log", _without_credentials(_end_of_log(Home.find().log))
    if not names:
        return
    client = target_server.ServerClient.open()
    for name in names:
        plural, bare = subject.path(name)
        report = lookup.fetch(client, name, "report")
        units = [{key: value for key, value in unit.items() if key not in _FREE_TEXT} for unit in report["units"]]
        kept: dict[str, Any] = {key: value for key, value in report.items() if key in _REPORT}
        data = formats.with_times({**kept, "units": units, "history": _history(client, plural, bare)}, show.timestamp)
        yield f"{plural}-{bare}.json", _without_credentials(json.dumps(data, indent=2))


_REPORT = ("uid", "name", "cluster", "phase", "ready", "reason", "done", "total", "bornAt")
_FREE_TEXT = ("message", "template")
"""Fields with texts of scripts and of other systems, which may contain anything."""


def _history(client: target_server.ServerClient, plural: str, name: str) -> list[Any]:
    moves = client.get(plural, name, "history")
    return [{key: value for key, value in move.items() if key not in _FREE_TEXT} for move in moves]


def _end_of_log(path: Path) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - _MAX_LOG_BYTES, 0))
            return file.read().decode(errors="backslashreplace")
    except OSError as fault:
        return f"{fault.strerror or fault}\n"


def _without_credentials(text: str) -> str:
    """Return the text without keys, bearer tokens and passwords in URLs."""
    key = Home.find().read(Home.find().key)
    text = text.replace(key, "***") if key else text
    return _CREDENTIALS.sub(lambda match: f"{match[1] or ''}***", text)
