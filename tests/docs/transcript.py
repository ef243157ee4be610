"""Type the commands of a page: run its `sh` blocks, and compare the output of its `console` blocks with the page.

In a `console` block, a line that begins with `$ ` is a command, and the lines below it are its complete output on both
streams. Text that differs from one run to the next is compared by its kind (`KINDS`), and `...` matches any text within
a line. All commands of a page run in one shell, in one folder.
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

# Patterns of text that differs in each run, and the words that replace it before a comparison.
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
# Progress depends on the speed of the machine. A temporary state may be missing or different. A final state that the page
# shows may be missing, but not different.
_PASSING = re.compile(r": (waiting|running|retrying\b.*)$|^Waiting for deployment ")
_END = re.compile(r"^\S+: \S+: (succeeded|stopped)$")
_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_MARK = "=== what the next command prints ==="


class Command(NamedTuple):
    """A command and its output on the page. `shown` is None for a command of an `sh` block."""

    text: str
    shown: list[str] | None


def commands(page: Path) -> list[Command]:
    """Return all commands of a page, in their order."""
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
    """Type the commands of a page in `folder`. Return each with its output, in which the texts of `named` are replaced.

    The commands of an `sh` block must succeed. The page fails after `seconds` without any output. There is no limit for
    the whole page, because it can have a hundred commands and machines differ.
    """
    typed = commands(page)
    code, output = _run(page, _script(typed), folder, environment, seconds)
    for before, after in named.items():
        output = output.replace(before, after)
    assert code == 0, f"{page} ended with {code}:\n{output}"
    parts = output.split(f"{_MARK}\n")[1:]
    assert len(parts) == len(typed), f"{page}: {len(parts)} of {len(typed)} commands ran:\n{output}"
    return [(command, part.splitlines()) for command, part in zip(typed, parts, strict=True)]


def _run(page: Path, script: str, folder: Path, environment: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """Run a script. Return its exit code and its output, including that of processes that it leaves running."""
    output = bytearray()
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
                return shell.wait(), output.decode(errors="replace")
            output += more
        os.killpg(shell.pid, signal.SIGKILL)
    so_far = output.decode(errors="replace")
    raise AssertionError(f"{page} has printed nothing for {seconds:g} s, so far:\n{so_far}")


def differences(command: Command, printed: list[str]) -> str:
    """Return a description of the difference between output and page; empty if there is none."""
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
