"""Tables of pools and their members."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dayfly.cli.output import show

if TYPE_CHECKING:
    from collections.abc import Sequence

HEADER = ("NAME", "PLUGIN", "CLUSTER", "READY", "CREATING", "HELD", "FAILED", "HITS", "CREATED", "STATUS")


def row(pool: Any) -> Sequence[str]:
    """Return the cells of a pool, below `HEADER`."""
    spec, status = pool["spec"], pool["status"]
    counts = status["counts"]
    return (
        pool["name"],
        spec["plugin"],
        spec.get("cluster", ""),
        f"{counts['ready']}/{counts['wanted']}",
        *(str(counts[name]) for name in ("creating", "held", "failed")),
        hit_ratio(status),
        show.age(pool["createdAt"]),
        state(pool),
    )


def state(pool: Any) -> str:
    """Return the state of a pool in one word."""
    status = pool["status"]
    return "Paused" if status["paused"] else "Ready" if status["ready"] else str(status["reason"] or "Not Ready")


def hit_ratio(status: Any) -> str:
    """Return the share of resources that found a ready member, in percent; empty before the first one."""
    requests = status["hits"] + status["misses"]
    return f"{100 * status['hits'] / requests:.1f} %" if requests else ""


def print_pool(pool: Any) -> None:
    """Print a pool and its members."""
    spec, status = pool["spec"], pool["status"]
    counts = status["counts"]
    params = [f"{name}={value}" if value is not None else f"{name} not given" for name, value in spec["params"].items()]
    show.print_facts(
        [
            ("Name", pool["name"]),
            ("Cluster", spec.get("cluster", "")),
            ("Plugin", spec["plugin"] if "@" in spec["plugin"] else f"{spec['plugin']} (newest version)"),
            ("Params", ", ".join(params)),
            ("Created", f"{pool['createdAt']} ({show.age(pool['createdAt'])} ago)"),
            ("Status", state(pool)),
            ("Message", status["message"]),
            ("Paused", status["paused"]),
            ("Ready", f"{counts['ready']} of {counts['wanted']}"),
            ("Creating", str(counts["creating"])),
            ("Held", str(counts["held"])),
            ("Failed", str(counts["failed"])),
            ("Hits", f"{status['hits']} of {status['hits'] + status['misses']}"),
        ]
    )
    if status["members"]:
        show.print_line()
        rows = [
            (
                each["name"],
                each["state"],
                show.age(each["createdAt"]) if each.get("createdAt") else "",
                each.get("holder", ""),
                each.get("message", ""),
            )
            for each in status["members"]
        ]
        show.print_table(("MEMBER", "STATE", "AGE", "HOLDER", "MESSAGE"), rows, elastic="MESSAGE")


def print_explanation(found: Any) -> None:
    """Print the use of a pool and the predictions for other sizes."""
    requests = found["hits"] + found["misses"]
    refill, rate = found["refillSeconds"], found["ratePerHour"]
    show.print_facts(
        [
            ("Pool", found["name"]),
            ("Ready members", str(found["wanted"])),
            ("Requests", f"{requests}, {rate:.4g} per hour" if rate else str(requests)),
            ("Hits", f"{found['hits']} ({hit_ratio(found)})" if requests else "0"),
            ("Misses", _describe_misses(found)),
            ("Refill time", f"{refill:.3g} s" if refill else "not measured yet"),
            ("Load", f"{found['load']:.3g} members in creation on average" if found["load"] else ""),
            ("Idle time", f"{found['idleSeconds']:.0f} s of all existing members"),
        ]
    )
    if found["sizes"]:
        show.print_line()
        now = found["wanted"]
        rows = [
            (f"{each['ready']}{' (now)' if each['ready'] == now else ''}", f"{100 * each['missRatio']:.2f} %")
            for each in found["sizes"]
        ]
        show.print_table(("READY", "PREDICTED MISSES"), rows)


def _describe_misses(found: Any) -> str:
    """Return the measured share of misses, and the predicted one for the size of the pool now."""
    requests = found["hits"] + found["misses"]
    if not requests:
        return ""
    measured = f"{found['misses']} ({100 * found['misses'] / requests:.1f} %)"
    predicted = [each["missRatio"] for each in found["sizes"] if each["ready"] == found["wanted"]]
    return f"{measured}, {100 * predicted[0]:.1f} % predicted for this size" if predicted else measured
