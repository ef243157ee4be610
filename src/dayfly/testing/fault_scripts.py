"""Scripts around an author's script: they note that it begins, and end it at a moment, or keep it from beginning.

Whatever language it is written in, it is kept as it is: a shell writes it to a file and runs that.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from enum import StrEnum

# Where nobody reads it.
NO_JOURNAL = "/dev/null"


class Moment(StrEnum):
    """When a step is killed."""

    START = "start"
    MIDDLE = "middle"
    END = "end"


_BEGIN = """\
#!/bin/sh
echo {step} begins >>{journal}
dayfly_script=$(mktemp{beside})
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
_LISTING = """\
#!/bin/sh
{exports}dayfly_script=$(mktemp)
cat >"$dayfly_script" <<'{mark}'
{script}
{mark}
chmod 700 "$dayfly_script"
"$dayfly_script" 2>"$dayfly_script.said"
dayfly_code=$?
echo
echo "$dayfly_code $(tail -n 1 "$dayfly_script.said")"
rm -f "$dayfly_script" "$dayfly_script.said"
"""
# Plain text; two dollars; a variable's name in $(NAME); what stands in such and is no name, or a single dollar.
_WORD = re.compile(r"([^$]+)|(\$\$)|\$\(([A-Za-z_][A-Za-z0-9_]*)\)|(\$\([^)]*\)|\$)", re.DOTALL)
# How long a step stays at a moment, and how it ends then.
_PATIENCE_S = 150
_NOBODY_CAME = 75
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


def paused(script: str, step: str, journal: str, moment: Moment, half: float) -> str:
    """The script, whose first attempt comes to a moment and stays there until it is ended; none stays for ever."""
    stay = (
        f"dayfly_left={_PATIENCE_S}\nwhile [ $dayfly_left -gt 0 ]; do sleep 1; dayfly_left=$((dayfly_left - 1)); done\n"
    )
    stay += f"exit {_NOBODY_CAME}\n"
    match moment:
        case Moment.START:
            work = f"if {_FIRST}; then\n{stay}fi\n{_RUN}"
        case Moment.MIDDLE:
            stop = f'"$dayfly_script" &\nsleep {half:.3f}\nkill -STOP $! 2>/dev/null\n'
            work = f"if {_FIRST}; then\n{stop}{stay}fi\n{_RUN}"
        case Moment.END:
            work = f"{_RUN}if {_FIRST}; then\n{stay}fi\n"
    return _around(script, step, journal, work + "exit $dayfly_code\n")


def as_script(command: tuple[str, ...]) -> str:
    """A shell's script that becomes the command, its words filled in by the rule of commands (`$(NAME)`)."""
    program, *words = command
    return "#!/bin/sh\nexec " + " ".join([shlex.quote(program), *map(_filled, words)]) + "\n"


def _filled(word: str) -> str:
    """A word in a shell's quotes: a variable's value, a dollar for two, and as it stands what names no variable."""
    pieces = []
    for plain, dollars, name, other in _WORD.findall(word):
        if name:
            pieces.append(f'"${{{name}-\\$({name})}}"')
        else:
            pieces.append(shlex.quote("$" if dollars else plain + other))
    return "".join(pieces) or "''"


def listing(script: str, told: Iterable[tuple[str, str]]) -> str:
    """An inventory, run as a step of another sandbox: behind what it prints there is a line of how it ended.

    Args:
        script: As its author wrote it.
        told: What it is told of the resource that it looks for: variables, which its own sandbox has, too.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in told)
    return _LISTING.format(mark=_mark(script), script=script.removesuffix("\n"), exports=exports)


def listed(log: str) -> tuple[tuple[str, ...], str]:
    """What an inventory has listed, by its log, and why that is not all; empty if it is."""
    # At line ends alone: what draws its progress returns to the beginning of a line.
    *lines, last = log.removesuffix("\n").replace("\r\n", "\n").split("\n")
    code, _, said = last.partition(" ")
    why = "" if code == "0" else f"ends with exit code {code}: {said or 'it says nothing'}"
    return tuple(line for line in lines if line.strip()), why if code.isdigit() else "was not heard to its end"


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
    text, quoted = script.removesuffix("\n"), shlex.quote(journal)
    # Who is killed takes nothing away: it is to lie where the test itself clears up, and in a pod that goes with it.
    beside = "" if journal == NO_JOURNAL else f" {quoted}.XXXXXX"
    return _BEGIN.format(step=step, journal=quoted, beside=beside, mark=_mark(script), script=text) + work


def _mark(script: str) -> str:
    """A line that the script does not have."""
    return f"DAYFLY_{hashlib.sha256(script.encode()).hexdigest()[:16]}"
