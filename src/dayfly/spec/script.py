"""What a step's script must be: a program text that names its interpreter."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote

MAX_BYTES = 128 * 1024


def check(script: str, keys: Path) -> None:
    """Refuse what no runner could start.

    Raises:
        SpecError: with its place.
    """
    first = script.partition("\n")[0]
    if not first.startswith("#!"):
        raise SpecError('must begin with #!; add e.g. "#!/bin/sh" as its first line', keys)
    if first.endswith("\r"):
        raise SpecError("its first line ends in a carriage return; save the script with Unix line endings", keys)
    if not first[2:].strip().startswith("/"):
        raise SpecError(f'{quote(first)} names no interpreter by its absolute path; write e.g. "#!/bin/sh"', keys)
    if (size := len(script.encode())) > MAX_BYTES:
        raise SpecError(f"has {size} bytes; a script has at most {MAX_BYTES}: put the rest into the image", keys)
