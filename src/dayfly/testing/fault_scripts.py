"""Wraps scripts of plugins in shell scripts that record each attempt, kill the script at a moment, or block it.

The original script may be in any language. The wrapper writes it unchanged to a file and runs that file.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable
from enum import StrEnum

# For tests that do not read the journal.
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
# Groups: plain text; `$$`; the name in `$(NAME)`; another `$(...)` or a single dollar.
_WORD = re.compile(r"([^$]+)|(\$\$)|\$\(([A-Za-z_][A-Za-z0-9_]*)\)|(\$\([^)]*\)|\$)", re.DOTALL)
# How long a paused step waits for its end, and its exit code after that.
_PAUSE_S = 150
_PAUSE_EXIT_CODE = 75
_IS_FIRST_ATTEMPT = '[ "$DAYFLY_ATTEMPT" = 1 ]'


def record_attempts(script: str, step: str, journal: str) -> str:
    """Return the script with a record of the start and duration of each attempt in the journal."""
    took = f'echo {step} took "$dayfly_began" "$(date +%s%N)" >>{shlex.quote(journal)}\n'
    return _wrap(script, step, journal, f"dayfly_began=$(date +%s%N)\n{_RUN}{took}exit $dayfly_code\n")


def kill_at(script: str, step: str, journal: str, moment: Moment, half: float) -> str:
    """Kill the script in its first attempt. The middle is after `half` seconds, half of its usual duration."""
    match moment:
        case Moment.START:
            work = f"{_IS_FIRST_ATTEMPT} && kill -9 $$\n{_RUN}"
        case Moment.MIDDLE:
            work = f'if {_IS_FIRST_ATTEMPT}; then "$dayfly_script" & sleep {half:.3f}; kill -9 0; fi\n{_RUN}'
        case Moment.END:
            work = f"{_RUN}{_IS_FIRST_ATTEMPT} && kill -9 $$\n"
    return _wrap(script, step, journal, work + "exit $dayfly_code\n")


def fail_after_work(script: str, step: str, journal: str) -> str:
    """Let the first attempt do all its work and then exit with an error."""
    return _wrap(script, step, journal, f"{_RUN}{_IS_FIRST_ATTEMPT} && exit 7\nexit $dayfly_code\n")


def block_before_work(script: str, step: str, journal: str) -> str:
    """Replace the script by one that records that it waits, and does nothing until it is ended."""
    return _wrap(script, step, journal, _wait_forever(step, journal))


def block_in_work(script: str, step: str, journal: str, half: float) -> str:
    """Let the script record in its middle that it waits, and then run until it is ended."""
    work = f'"$dayfly_script" &\nsleep {half:.3f}\n'
    return _wrap(script, step, journal, work + _wait_forever(step, journal))


def pause_at(script: str, step: str, journal: str, moment: Moment, half: float) -> str:
    """Pause the first attempt at a moment until it is ended, with a time limit."""
    stay = f"dayfly_left={_PAUSE_S}\nwhile [ $dayfly_left -gt 0 ]; do sleep 1; dayfly_left=$((dayfly_left - 1)); done\n"
    stay += f"exit {_PAUSE_EXIT_CODE}\n"
    match moment:
        case Moment.START:
            work = f"if {_IS_FIRST_ATTEMPT}; then\n{stay}fi\n{_RUN}"
        case Moment.MIDDLE:
            stop = f'"$dayfly_script" &\nsleep {half:.3f}\nkill -STOP $! 2>/dev/null\n'
            work = f"if {_IS_FIRST_ATTEMPT}; then\n{stop}{stay}fi\n{_RUN}"
        case Moment.END:
            work = f"{_RUN}if {_IS_FIRST_ATTEMPT}; then\n{stay}fi\n"
    return _wrap(script, step, journal, work + "exit $dayfly_code\n")


def command_to_script(command: tuple[str, ...]) -> str:
    """Return a shell script that replaces itself with the command, after expanding `$(NAME)` in its words."""
    program, *words = command
    return "#!/bin/sh\nexec " + " ".join([shlex.quote(program), *map(_quote_word, words)]) + "\n"


def _quote_word(word: str) -> str:
    """Quote a word for a shell. `$(NAME)` becomes the variable, `$$` a dollar; other text is literal."""
    pieces = []
    for plain, dollars, name, other in _WORD.findall(word):
        if name:
            pieces.append(f'"${{{name}-\\$({name})}}"')
        else:
            pieces.append(shlex.quote("$" if dollars else plain + other))
    return "".join(pieces) or "''"


def inventory_script(script: str, variables: Iterable[tuple[str, str]]) -> str:
    """Return an inventory as a step of another sandbox. Its last line of output is its exit code and error.

    Args:
        script: The original script.
        variables: Variables of the resource to list, which replace those of the step's own sandbox.
    """
    exports = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables)
    return _LISTING.format(mark=_mark(script), script=script.removesuffix("\n"), exports=exports)


def parse_inventory_log(log: str) -> tuple[str, str]:
    """Return the output of an inventory from its log, and its error; empty for success."""
    output, _, last = log.removesuffix("\n").replace("\r\n", "\n").rpartition("\n")
    code, _, error = last.partition(" ")
    why = "" if code == "0" else f"failed with exit code {code}: {error or 'no message'}"
    return output, why if code.isdigit() else "has an incomplete log"


def parse_durations(lines: Iterable[str]) -> dict[str, float]:
    """Return the durations of steps in a journal, in seconds. Without nanoseconds in `date`, a step is omitted."""
    found = {}
    for line in lines:
        match line.split():
            case [step, "took", began, ended] if began.isdigit() and ended.isdigit():
                found[step] = (int(ended) - int(began)) / 10**9
    return found


def wait_line(step: str) -> str:
    """Return the line of the journal for a waiting step."""
    return f"{step} waits"


def begin_line(step: str) -> str:
    """Return the line of the journal for the start of a step."""
    return f"{step} begins"


def _wait_forever(step: str, journal: str) -> str:
    return f"echo {step} waits >>{shlex.quote(journal)}\nwhile :; do sleep 0.05; done\n"


def _wrap(script: str, step: str, journal: str, work: str) -> str:
    text, quoted = script.removesuffix("\n"), shlex.quote(journal)
    # A killed script leaves its file. It is in the folder of the journal, which the test deletes, or in the pod.
    beside = "" if journal == NO_JOURNAL else f" {quoted}.XXXXXX"
    return _BEGIN.format(step=step, journal=quoted, beside=beside, mark=_mark(script), script=text) + work


def _mark(script: str) -> str:
    """Return a line that the script does not contain."""
    return f"DAYFLY_{hashlib.sha256(script.encode()).hexdigest()[:16]}"
