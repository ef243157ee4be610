"""A page as somebody types it: its `sh` blocks run, its `console` blocks run and print what the page shows.

In a `console` block a line that begins with `$ ` is a command, and the lines below it are all it prints, on either
stream. What differs from one run to the next is compared by its kind (`KINDS`); `...` stands for anything within a
line. All commands of a page run in one shell, in one folder.
"""

import os
import re
import select
import shlex
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# What is never the same twice, and what it is compared as.
KINDS = (
    (r"127\.0\.0\.1:\d+", "ADDRESS"),
    (r"(?<=\"port\":)\d+", "PORT"),
    (r"process \d+", "PROCESS"),
    (r"\d{4}-\d\d-\d\dT[0-9:.]+Z", "TIME"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "UID"),
    (r"(?i)(?<=routing key: )[a-z0-9]{13}\b", "KEY"),
    (r"(?<=\"routingKey\":\")[a-z0-9]{13}(?=\")", "KEY"),
    (r"(?<=  )[a-z0-9]{13}(?=  |$)", "KEY"),
    (r"\b\d{13}\b", "MOMENT"),
    (r"(?<=\"version\":)\d{16}\b", "VERSION"),
    (r"\b\d+ (ms|s|min|h)( \d+ (s|min))?\b|\b\d+s\b", "SPAN"),
    (r"\b(?=[a-z]*\d)[a-z0-9]{26}\b", "ID"),
    (r"\bwith-[a-z-]+-[a-z0-9]{6}\b", "WITH"),
    (r"(?<=\"requestId\":\")[0-9a-f]{16}", "REQUEST"),
    (r"\bsha256:[0-9a-f]{64}\b", "DIGEST"),
)
# Progress is what is seen between two looks, so it depends on the machine. What is passing may be seen or not, or be
# other than shown; an end that is shown may be missed, but not be another one.
_PASSING = re.compile(r": (waiting|running|retrying\b.*)$|^Waiting for deployment ")
_END = re.compile(r"^\S+: \S+: (succeeded|stopped)$")
_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=== what the next command prints ==="


class Command(NamedTuple):
    """One command and what the page shows below it. `shown` is None where the page shows nothing on purpose."""

    text: str
    shown: list[str] | None


def commands(page: Path) -> list[Command]:
    """All commands of a page, in their order."""
    found: list[Command] = []
    for kind, block in _BLOCK.findall(page.read_text()):
        if kind == "sh":
            found.append(Command(block, None))
            continue
        assert block.startswith("$ "), f"{page}: a console block begins with a command:\n{block}"
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            typed, *shown = part.splitlines()
            found.append(Command(typed, shown))
    assert found, f"{page} has no commands"
    return found


def follow(
    page: Path, folder: Path, environment: Mapping[str, str], named: Mapping[str, str], seconds: float = 110
) -> list[tuple[Command, list[str]]]:
    """Type a page's commands in `folder`; each with the lines it printed, in which `named` texts have their new names.

    A command of an `sh` block has to succeed; of one in a `console` block the page shows how it ends.
    A page is given up after so many `seconds` without anything printed: it has up to a hundred commands, and no bound for
    all of them holds on every machine.
    """
    typed = commands(page)
    code, said = _played(page, _script(typed), folder, environment, seconds)
    for before, after in named.items():
        said = said.replace(before, after)
    assert code == 0, f"{page} ended with {code}:\n{said}"
    parts = said.split(f"{_MARK}\n")[1:]
    assert len(parts) == len(typed), f"{page}: {len(parts)} of {len(typed)} commands ran:\n{said}"
    return [(command, part.splitlines()) for command, part in zip(typed, parts, strict=True)]


def _played(page: Path, script: str, folder: Path, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """How a shell ended that was given all of it, and what was printed, also by what it left running, to its end."""
    said = bytearray()
    with subprocess.Popen(
        ["/bin/sh", "-c", script],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as shell:
        printed = shell.stdout.fileno()
        while select.select([printed], [], [], seconds)[0]:
            if not (more := os.read(printed, 1 << 16)):
                return shell.wait(), said.decode(errors="replace")
            said += more
        os.killpg(shell.pid, signal.SIGKILL)
    so_far = said.decode(errors="replace")
    raise AssertionError(f"{page} has printed nothing for {seconds:g} s, so far:\n{so_far}")


def differences(command: Command, printed: list[str]) -> str:
    """How what was printed differs from what the page shows; empty if it does not."""
    if command.shown is None:
        return ""
    wanted, got = _comparable(command.shown), _comparable(printed)
    wanted = [line for line in wanted if line in got or not _END.match(line)]
    if len(wanted) == len(got) and all(_matches(*pair) for pair in zip(wanted, got, strict=True)):
        return ""
    return "\n".join([f"$ {command.text}", "the page shows:", *command.shown, "it prints:", *printed, ""])


def _script(typed: list[Command]) -> str:
    lines = []
    for command in typed:
        ends = "set -e" if command.shown is None else "set +e"
        lines += [f"printf '%s\\n' {shlex.quote(_MARK)}", ends, command.text]
    return "\n".join([*lines, "exit 0"])


def _comparable(lines: list[str]) -> list[str]:
    kept = [line.rstrip() for line in lines if not _PASSING.search(line)]
    for pattern, kind in KINDS:
        kept = [re.sub(pattern, kind, line) for line in kept]
    return [re.sub(r" after SPAN", "", re.sub(r" {2,}", "  ", line)) for line in kept]


def _matches(wanted: str, got: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in wanted.split("...")), got) is not None
