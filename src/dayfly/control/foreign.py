"""What clients of Signadot's API may ask for and Dayfly does not have: said by its name, not as a wrong address."""

from __future__ import annotations

import re

from dayfly.control.routes import API

_FAMILY = re.compile(rf"{API}/orgs/[^/]+/([^/]+)(?:/.*)?", re.DOTALL)
_WHAT = {
    "jobs": "jobs",
    "runnergroups": "runner groups of jobs",
    "artifacts": "artifacts of jobs",
    "secrets": "secrets of an organisation",
    "devboxes": "devboxes",
    "service-accounts": "service accounts (it gives keys to programs: dayfly key create)",
    "users": "users (it gives keys to people: dayfly key create)",
    "events": "event log (it has /changes, /audit and CloudEvents)",
    "tests": "tests of its own",
    **dict.fromkeys(
        ("plans", "plan-tags", "plan-actions", "plan-runnergroups", "plan-runnergroup-settings"), "plans of that kind"
    ),
}


def foreign(path: str) -> str:
    """What of the original's an address asks for that is not ours; empty if it is none of those."""
    found = _FAMILY.fullmatch(path)
    return _WHAT.get(found[1], "") if found else ""
