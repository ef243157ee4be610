"""Rules for names, environment variables and paths, with messages for invalid ones."""

from __future__ import annotations

from dayfly.spec.errors import Path, SpecError, quote

LIMITS = {
    "plugin": 253,
    "sandbox": 30,
    "route group": 30,
    "pool": 30,
    "leak check": 30,
    "resource": 30,
    "step": 30,
    "input": 30,
    "output": 30,
    "fork": 63,
    "endpoint": 63,
}
"""The maximum length of a name of each kind. Names are ASCII, so characters are bytes."""

GROUP = "routegroup/"
"""Prefix of a route group's name where a sandbox's name is also possible."""
POOL = "pool/"
"""Prefix of a pool's name where a sandbox's name is also possible."""

MAX_PATH_BYTES = 4095
MAX_PATH_PART_BYTES = 255

FORBIDDEN_FOLDERS = ("/proc", "/sys", "/dev", "/run/secrets", "/var/run/secrets")
"""A step's files must not be in these folders: kernel interfaces, devices and the pod's own credentials."""


def check(kind: str, name: str, keys: Path = ()) -> None:
    """Refuse a name that is empty, too long or not `^[a-zA-Z]([a-zA-Z0-9-]*[a-zA-Z0-9])?$`.

    Args:
        kind: A key of `LIMITS`.
        name: The name.
        keys: The path to it.

    Raises:
        SpecError: The rule and the name.
    """
    article = "an" if kind[0] in "aeiou" else "a"
    if not name:
        raise SpecError(f"{article} {kind} name cannot be empty", keys)
    limit = LIMITS[kind]
    if len(name) > limit:
        raise SpecError(f"{quote(name)} has {len(name)} characters; {article} {kind} name has at most {limit}", keys)
    plain = name.isascii() and name.replace("-", "").isalnum()
    if not (plain and name[0].isalpha() and name[-1].isalnum()):
        raise SpecError(
            f'{quote(name)} is not {article} {kind} name: write letters, digits and "-", '
            "with a letter first and a letter or digit last",
            keys,
        )


def check_environment(name: str, keys: Path = ()) -> None:
    """Refuse a name that is not valid for a shell variable: `^[A-Za-z_][A-Za-z0-9_]*$`."""
    plain = name.isascii() and name.replace("_", "a").isalnum()
    if not plain or name[0].isdigit():
        raise SpecError(
            f'{quote(name)} is not an environment variable name: write letters, digits and "_", not a digit first', keys
        )


def check_path(path: str, keys: Path = ()) -> None:
    """Refuse a path that is not absolute, not in its shortest form, or under one of `FORBIDDEN_FOLDERS`."""
    if not path.startswith("/"):
        raise SpecError(f'{quote(path)} is not an absolute path: begin it with "/"', keys)
    parts = path[1:].split("/")
    if ".." in parts:
        raise SpecError(f'{quote(path)} contains "..": write the path without it', keys)
    if "" in parts or "." in parts:
        raise SpecError(
            f'{quote(path)} is not a plain path to a file: leave out "//", "/./" and a "/" at the end', keys
        )
    if (
        "\0" in path
        or len(path.encode()) > MAX_PATH_BYTES
        or max(len(part.encode()) for part in parts) > MAX_PATH_PART_BYTES
    ):
        raise SpecError(
            f"{quote(path)} is not a path that a kernel accepts: at most {MAX_PATH_BYTES} bytes, no NUL", keys
        )
    for folder in FORBIDDEN_FOLDERS:
        if path == folder or path.startswith(folder + "/"):
            raise SpecError(f"{quote(path)} is in {folder}, which steps must not use: choose a path like /tmp/x", keys)


def check_output_key(key: str, keys: Path = ()) -> None:
    """Refuse a reference to an output that is neither `<step>.<output>` nor the output's name."""
    step, dot, output = key.rpartition(".")
    if not output or "." in step or (dot and not step):
        raise SpecError(f'{quote(key)} does not address an output: write "<step>.<output>"', keys)
    if dot:
        check("step", step, keys)
    check("output", output, keys)


def check_unique(what: str, found: list[tuple[str, Path]]) -> None:
    """Refuse the second of two equal names. `found` has each name with its path, in document order."""
    first: dict[str, Path] = {}
    for name, keys in found:
        if name in first:
            where = SpecError("", first[name]).path
            raise SpecError(f"{what} {quote(name)} appears twice; the first is {where}", keys)
        first[name] = keys
