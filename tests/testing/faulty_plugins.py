"""Plugins with one planted mistake each, and plugins without: they create files below the param `root`."""

from __future__ import annotations

from typing import Any, NamedTuple

from dayfly.testing import Fault


class Planted(NamedTuple):
    """A plugin with a fault: its spec, the fault, and the scenario that finds it (empty: the first one)."""

    spec: dict[str, Any]
    fault: Fault
    scenario: str = ""
    params: dict[str, str] = {}


OWN = '"$ROOT/$DAYFLY_RESOURCE_ID"'
MAKE = f"mkdir {OWN}; sleep 0.2; echo ready >{OWN}/notes; printf %s {OWN} >/tmp/path"
REMOVE = f'[ -d "$ROOT" ] || exit 0; rm -rf {OWN}'
LISTED = """
printf '%s\\n' "$found" | awk '
    NF { printf "{\\"name\\": \\"%s\\"}\\n", $0; count++ }
    END { printf "{\\"complete\\": true, \\"count\\": %d}\\n", count }'"""
LOOK = f'found=$([ ! -d "$ROOT" ] || find "$ROOT" -maxdepth 1 -name "*$DAYFLY_RESOURCE_ID*"){LISTED}'
LABEL = {"name": "label", "valueFromSandbox": True}
PATH = {"name": "path", "valueFromStep": {"name": "make", "output": "path"}, "as": {"env": "MADE"}}


def step(name: str, script: str, *inputs: dict[str, Any], output: str = "", **more: Any) -> dict[str, Any]:
    root = {"name": "root", "valueFromSandbox": True, "required": True}
    given = {"outputs": [{"name": output, "valueFromPath": f"/tmp/{output}"}]} if output else {}
    head = script if script.startswith("#!") else f"#!/bin/sh\nset -eu\n{script}\n"
    return {"name": name, "inputs": [root, *inputs], "script": head, **given, **more}


def plugin(
    make: str = MAKE,
    remove: str = REMOVE,
    *inputs: dict[str, Any],
    look: str = LOOK,
    also: tuple[dict[str, Any], ...] = (),
    removes: tuple[dict[str, Any], ...] = (),
    **more: Any,
) -> dict[str, Any]:
    """Both steps have `inputs`, the delete step `removes` besides; `also` are more create steps, `more` of `make`."""
    return {
        "create": [step("make", make, *inputs, output="path", **more), *also],
        "delete": [step("remove", remove, *inputs, *removes)],
        "inventory": [step("look", look)] if look else [],
    }


SECOND = f"touch {OWN}-b"
AGAIN = {"retry": {"idempotent": True}}

PLANTED: dict[str, Planted] = {
    "removes what an output names": Planted(
        plugin(MAKE, 'rm -r "$MADE"', removes=(PATH,)), Fault.STUCK, "make is killed at its start"
    ),
    "removes nothing where the output is missing": Planted(
        plugin(MAKE, '[ -z "$MADE" ] || rm -r "$MADE"', removes=(PATH,)), Fault.LEFT, "the outputs of"
    ),
    "fails where it is gone": Planted(plugin(MAKE, f"rm -r {OWN}"), Fault.STUCK, "fails after its work"),
    "fails where it was never made": Planted(plugin(MAKE, f"rm -r {OWN}"), Fault.STUCK, "deleted before make"),
    "one name for all, refused the second time": Planted(
        plugin('mkdir "$ROOT/shared"; touch /tmp/path', 'rm -rf "$ROOT/shared"', look=""),
        Fault.NOT_CREATED,
        "one of two",
    ),
    "one name for all, taken away from the other": Planted(
        plugin(
            'mkdir -p "$ROOT/shared"; touch /tmp/path', 'rm -rf "$ROOT/shared"', look=f'found=$(ls "$ROOT"){LISTED}'
        ),
        Fault.OTHERS,
        "one of two",
    ),
    "removes whatever it sees": Planted(plugin(MAKE, 'rm -rf "$ROOT"/?*'), Fault.OTHERS, "one of two"),
    "removes nothing": Planted(plugin(MAKE, "true"), Fault.LEFT),
    "takes no notice of a failure": Planted(plugin(MAKE, f"rm {OWN} || true"), Fault.LEFT),
    "forgets one of two things": Planted(plugin(f"{MAKE}; {SECOND}"), Fault.LEFT),
    "misses what an output did not name": Planted(
        plugin(
            MAKE,
            f'{REMOVE}; [ -z "$SECOND" ] || rm -f "$SECOND"',
            removes=({"name": "second", "valueFromStep": {"name": "two", "output": "second"}},),
            also=(step("two", f"{SECOND}; printf %s {OWN}-b >/tmp/second", PATH, output="second"),),
        ),
        Fault.LEFT,
        "the outputs of two are lost",
    ),
    "takes what the second step makes for granted": Planted(
        plugin(MAKE, f"[ -d {OWN} ] || exit 0; rm {OWN}-b; rm -r {OWN}", also=(step("two", SECOND, PATH),)),
        Fault.STUCK,
        "deleted before two",
    ),
    "idempotent: true and is not": Planted(plugin(**AGAIN), Fault.NOT_REPEATABLE, "make is killed at its end"),
    "another name with each attempt": Planted(
        plugin(
            f'mkdir {OWN}-"$DAYFLY_ATTEMPT"; printf %s {OWN}-"$DAYFLY_ATTEMPT" >/tmp/path',
            'rm -rf "$MADE"',
            removes=(PATH,),
            **AGAIN,
        ),
        Fault.LEFT,
        "make is killed at its end",
    ),
    "removes by the attempt of its own": Planted(
        plugin(f"mkdir {OWN}-1; touch /tmp/path", f'rm -rf {OWN}-"$DAYFLY_ATTEMPT"'),
        Fault.LEFT,
        "remove is killed at its start",
    ),
    "a param becomes a part of a script": Planted(
        plugin(MAKE, f'sh -c "echo $LABEL" >/dev/null; {REMOVE}', LABEL),
        Fault.STUCK,
        "the param label has quotes",
        {"label": "x"},
    ),
    "cannot do without an optional param": Planted(
        plugin(MAKE, f': "${{LABEL:?is missing}}"; {REMOVE}', LABEL),
        Fault.STUCK,
        "the param label is missing",
        {"label": "x"},
    ),
    "a param becomes a file's name": Planted(
        plugin(f'{MAKE}; touch {OWN}-"$LABEL"', f'{REMOVE}; rm -f {OWN}-"$LABEL"', LABEL),
        Fault.STUCK,
        "the param label is very long",
        {"label": "x"},
    ),
    "waits for a lock that is never released": Planted(
        plugin(
            f'mkdir "$ROOT/lock"; {MAKE}; rmdir "$ROOT/lock"',
            f'while [ -d "$ROOT/lock" ]; do sleep 0.1; done; {REMOVE}',
        ),
        Fault.STUCK,
        "make is killed in its middle",
    ),
    "a cleanup that is cut off is forgotten": Planted(
        plugin(MAKE, f"[ -d {OWN} ] || exit 0; mv {OWN} {OWN}.old; sleep 0.6; rm -r {OWN}.old"),
        Fault.LEFT,
        "remove is killed in its middle",
    ),
    "looks by the sandbox's name": Planted(
        plugin(look=f'found=$(find "$ROOT" -maxdepth 1 -name "$DAYFLY_SANDBOX_NAME"){LISTED}'), Fault.INVENTORY_EMPTY
    ),
    "never works": Planted(plugin("exit 3"), Fault.NOT_CREATED),
}

PYTHON = "#!/usr/bin/env python3\nimport os, pathlib, shutil\nown = pathlib.Path(os.environ['ROOT'], os.environ['DAYFLY_RESOURCE_ID'])\n"
CLEAN: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "a folder": (plugin(), {}),
    "no output": ({**plugin(), "create": [step("make", f"mkdir {OWN}")]}, {}),
    "in Python": (
        plugin(
            f"{PYTHON}own.mkdir()\npathlib.Path('/tmp/path').write_text(str(own))\n",
            f"{PYTHON}shutil.rmtree(own, ignore_errors=True)\n",
        ),
        {},
    ),
    "made twice like once": (plugin(f"mkdir -p {OWN}; printf %s {OWN} >/tmp/path", **AGAIN), {}),
    "two steps": (
        plugin(MAKE, f"{REMOVE} {OWN}-b", also=(step("two", SECOND, PATH),)),
        {},
    ),
    "two steps side by side": (plugin(MAKE, f"{REMOVE} {OWN}-b", also=(step("two", SECOND),)), {}),
    "two delete steps": (
        {
            **plugin(MAKE, REMOVE),
            "delete": [step("remove", REMOVE), step("remove-b", f'[ -d "$ROOT" ] || exit 0; rm -rf {OWN}-b')],
        },
        {},
    ),
    "a param in a file": (plugin(f'{MAKE}; printf %s "$LABEL" >{OWN}/label', REMOVE, LABEL), {"label": "x"}),
    "a param that must be right": (
        plugin(f'case "$LABEL" in *[!a-z]*) echo "label: only a to z" >&2; exit 2;; esac; {MAKE}', REMOVE, LABEL),
        {"label": "x"},
    ),
    "no inventory": (plugin(look=""), {}),
}
