"""Files with the plans of leak checks: what `dayfly leaks --plan` writes, and `--apply` reads."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, Exit

if TYPE_CHECKING:
    from collections.abc import Sequence


class LeakPlan(NamedTuple):
    """The plan of a check: the name of the check, and the digest that its host compares."""

    check: str
    digest: str


def write_plan(path: str, checks: Sequence[Any]) -> int:
    """Write the plans of checks to a file. Return the number of resources that they delete.

    Raises:
        DayflyError: the file cannot be written.
    """
    plans = []
    for each in checks:
        if digest := each["status"]["plan"]:
            items = [finding for finding in each["status"]["findings"] if finding["deletable"]]
            plans.append({"name": each["name"], "plan": digest, "delete": items, "checksum": _checksum(items)})
    try:
        Path(path).write_text(json.dumps({"checks": plans}, indent=2) + "\n")
    except OSError as fault:
        raise DayflyError(Exit.USAGE, f"cannot write {path}: {fault.strerror}", "choose another --plan FILE") from None
    return sum(len({finding["id"] for finding in each["delete"]}) for each in plans)


def read_plan(path: str, flags: str) -> list[LeakPlan]:
    """Return the plans in a file.

    Args:
        path: The path of the file.
        flags: The options that select the server or cluster in the advice.

    Raises:
        DayflyError: it cannot be read, is not a plan, or was edited.
    """
    advice = f"write one with: dayfly leaks{flags} --plan FILE"
    try:
        content = json.loads(Path(path).read_text())
    except OSError as fault:
        raise DayflyError(Exit.USAGE, f"cannot read {path}: {fault.strerror}", advice) from None
    except ValueError as fault:
        raise DayflyError(Exit.USAGE, f"{path} is not a plan: {fault}", advice) from None
    found = content.get("checks") if isinstance(content, dict) else None
    if not isinstance(found, list) or not all(map(_is_plan, found)):
        raise DayflyError(Exit.USAGE, f"{path} is not a plan of leak checks", advice)
    for each in found:
        # The host compares only the digest, so an edit would have no effect.
        if "delete" in each and each.get("checksum") != _checksum(each["delete"]):
            problem = f'{path}: the resources of "{each["name"]}" were edited, but a plan deletes all of them or none'
            raise DayflyError(Exit.USAGE, problem, f"nothing was deleted; {advice}")
    return [LeakPlan(each["name"], each["plan"]) for each in found]


def _is_plan(each: Any) -> bool:
    """Return whether a part of a file has a name and a digest."""
    return isinstance(each, dict) and all(isinstance(each.get(key), str) and each[key] for key in ("name", "plan"))


def _checksum(items: Any) -> str:
    return hashlib.sha256(json.dumps(items, sort_keys=True).encode()).hexdigest()
