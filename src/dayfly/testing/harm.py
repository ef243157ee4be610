"""Scripts around an author's script: they note that it begins, and end it at a moment, or keep it from beginning.

Whatever language it is written in, it is kept as it is: a shell writes it to a file and runs that.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterable
from enum import StrEnum


class Moment(StrEnum):
    """When a step is killed."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


_BEGIN = """\
#!/bin/sh
echo {step} begins >>{journal}
dayfly_script=$(mktemp)
cat >"$dayfly_script" <<'{mark}'
{script}
{mark}
chmod 700 "$dayfly_script"
"""
_RUN = """\
"$dayfly_script"
dayfly_code=$?
rm -f "$dayfly_script"
"""
_FIRST = '[ "$DAYFLY_ATTEMPT" = 1 ]'


def noted(script: str, step: str, journal: str) -> str:
    """The script, which notes each of its beginnings and how long it took, and is left alone."""
    took = f'echo {step} took "$dayfly_began" "$(date +%s%N)" >>{shlex.quote(journal)}\n'
    return _around(script, step, journal, f"dayfly_began=$(date +%s%N)\n{_RUN}{took}exit $dayfly_code\n")


def killed(script: str, step: str, journal: str, moment: Moment, half: float) -> str:
    """The script, killed in its first attempt; in the middle means after `half` of the seconds it has taken before."""
    match moment:
        case Moment.START:
            work = f"{_FIRST} && kill -9 $$\n{_RUN}"
        case Moment.MIDDLE:
            work = f'if {_FIRST}; then "$dayfly_script" & sleep {half:.3f}; kill -9 0; fi\n{_RUN}'
        case Moment.END:
            work = f"{_RUN}{_FIRST} && kill -9 $$\n"
    return _around(script, step, journal, work + "exit $dayfly_code\n")


def refused(script: str, step: str, journal: str) -> str:
    """The script, whose first attempt does all its work and then says that it has failed."""
    return _around(script, step, journal, f"{_RUN}{_FIRST} && exit 7\nexit $dayfly_code\n")


def held(script: str, step: str, journal: str) -> str:
    """In place of the script: it says that it waits, and does nothing until it is ended."""
    return _around(script, step, journal, _wait(step, journal))


def at_work(script: str, step: str, journal: str, half: float) -> str:
    """The script, which in its middle says that it waits, and ends only when it is asked to."""
    work = f'"$dayfly_script" &\nsleep {half:.3f}\n'
    return _around(script, step, journal, work + _wait(step, journal))


def took(lines: Iterable[str]) -> dict[str, float]:
    """How long steps took by the journal's lines, in seconds; nothing of one whose `date` knows no nanoseconds."""
    found = {}
    for line in lines:
        match line.split():
            case [step, "took", began, ended] if began.isdigit() and ended.isdigit():
                found[step] = (int(ended) - int(began)) / 10**9
    return found


def waits(step: str) -> str:
    """The line in the journal that says so."""
    return f"{step} waits"


def begins(step: str) -> str:
    """Likewise."""
    return f"{step} begins"


def _wait(step: str, journal: str) -> str:
    return f"echo {step} waits >>{shlex.quote(journal)}\nwhile :; do sleep 0.05; done\n"


def _around(script: str, step: str, journal: str, work: str) -> str:
    mark = f"DAYFLY_{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    begin = _BEGIN.format(step=step, journal=shlex.quote(journal), mark=mark, script=script.removesuffix("\n"))
    return begin + work
