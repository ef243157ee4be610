"""Invariants of everything that was ever stored, checked at the end of a world."""

from __future__ import annotations

from collections.abc import Iterator

from tests.kube.fake.store import Write
from tests.operator.rig.cloud import Object

_ORDER = {"": 0, "none": 0, "claimed": 1, "unknown": 2, "done": 3, "void": 3}
_HELD = ("claimed", "unknown")
_PHASES = ("open", "closed", "cleaned", "abandoned")


def violations(runs: list[Write], pods: list[Write], once: set[str], creates: set[str]) -> list[str]:
    """Return violations of the ledger's promises.

    `runs` and `pods` are all versions that were ever stored; `once` and `creates` are the names of such units.
    """
    return [*_ledgers(runs, once, creates), *_vanished([*runs, *pods])]


def _ledgers(runs: list[Write], once: set[str], creates: set[str]) -> Iterator[str]:
    for write in runs:
        old, new = write.old and write.old["ledger"], write.new and write.new["ledger"]
        if old is None:
            if new.get("units") or new.get("phase", "open") != "open":
                yield f"a run is born with {new}"
            continue
        if new is None:
            if old.get("units") and old.get("phase", "open") not in ("cleaned", "abandoned"):
                yield f"(8) the ledger of {write.key.name} goes while it is {old.get('phase', 'open')}"
            continue
        yield from _compared(write.key.name, old, new, once, creates)


def _compared(name: str, old: Object, new: Object, once: set[str], creates: set[str]) -> Iterator[str]:
    if new != old and new.get("seq", 0) != old.get("seq", 0) + 1:
        yield f"(8) {name}: seq {old.get('seq', 0)} -> {new.get('seq', 0)}"
    before, after = (_PHASES.index(each.get("phase", "open")) for each in (old, new))
    if after < before:
        yield f"(8) {name}: phase goes back"
    for unit, record in new.get("units", {}).items():
        was = old.get("units", {}).get(unit, {})
        if record == was:
            continue
        attempt, had = record.get("attempt", 0), was.get("attempt", 0)
        state, held = record.get("state", ""), was.get("state", "")
        if record == {**was, "ref": record.get("ref")} and not was.get("ref"):
            continue  # the first observation of its object
        if attempt == had and _ORDER[state] <= _ORDER[held] and (state, held) != ("claimed", "unknown"):
            yield f"(8) {name}: {unit}#{attempt} {held} -> {state}"
        if attempt > had:
            # One write may contain a claim and its void: then nothing was permitted.
            if (unit in creates or unit.startswith("fork:")) and (before or after) and state != "void":
                yield f"(3) {name}: {unit}#{attempt} is claimed in a run that is {new.get('phase', 'open')}"
            if held in ("claimed", "unknown"):
                yield f"(9) {name}: {unit}#{attempt} is claimed while #{had} is {held}"
            is_reset = record.get("kind") == "acquire" and record.get("ref") != was.get("ref")
            if held == "done" and (unit in once or was.get("outcome") == "succeeded") and not is_reset:
                yield f"(9) {name}: {unit}#{attempt} is claimed after #{had} {was.get('outcome')}"


def _vanished(writes: list[Write]) -> Iterator[str]:
    """(6) A pod is only deleted once the ledger contains its end, or has never contained the pod."""
    ledgers: dict[str, Object] = {}
    for write in sorted(writes, key=lambda each: each.version):
        whole = write.new or write.old
        if "ledger" in whole:
            ledgers[write.old["metadata"]["uid"] if write.new is None else write.new["metadata"]["uid"]] = whole[
                "ledger"
            ]
            continue
        if write.new is not None or not whole["metadata"].get("ownerReferences"):
            continue
        meta = whole["metadata"]
        if "dayfly.dev/unit" not in meta.get("annotations", {}):
            continue  # not a pod of a step
        ledger = ledgers.get(meta["ownerReferences"][0]["uid"], {})
        record = ledger.get("units", {}).get(meta["annotations"]["dayfly.dev/unit"], {})
        if record.get("ref") == meta["uid"] and record.get("state") in ("claimed", "unknown"):
            yield f"(6) pod {meta['name']} vanishes while the ledger says {record.get('state')}"


def unclaimed_objects(runs: list[Write], objects: list[Write]) -> Iterator[str]:
    """An object is only created for a claimed attempt without an object; a late one is deleted again.

    Tests that check for leftovers find an object that was not deleted.
    """
    ledgers: dict[str, Object] = {}
    seen: dict[str, str] = {}
    for write in sorted([*runs, *objects], key=lambda each: each.version):
        whole = write.new or write.old
        meta = whole["metadata"]
        if "ledger" in whole:
            ledgers[meta["name"]] = whole["ledger"] if write.new else {}
            continue
        notes, owners = meta.get("annotations", {}), meta.get("ownerReferences", [])
        if write.old is not None or not owners or "dayfly.dev/unit" not in notes:
            continue
        ledger = ledgers.get(owners[0]["name"], {})
        record = ledger.get("units", {}).get(notes["dayfly.dev/unit"], {})
        over = not ledger or ledger.get("phase", "open") != "open"
        if not over and (str(record.get("attempt")), record.get("state")) != (notes["dayfly.dev/attempt"], "claimed"):
            yield f"(2) {meta['name']} is made while the ledger holds {record}"
        if not over and record.get("ref"):
            yield f"twice: {meta['name']} is made while the ledger holds {record}"
        if not over and (before := seen.setdefault(notes["dayfly.dev/nonce"], meta["uid"])) != meta["uid"]:
            yield f"twice: {meta['name']} is made as {meta['uid']}, and was as {before}"


def unclaimed_forks(runs: list[Write], deployments: list[Write]) -> Iterator[str]:
    """A fork has replicas only while its UID is claimed. There is one at a time, and it is deleted before its ledger."""
    ledgers: dict[str, Object] = {}
    scaled: dict[str, tuple[str, str]] = {}
    for write in sorted([*runs, *deployments], key=lambda each: each.version):
        whole = write.new or write.old
        meta = whole["metadata"]
        if "ledger" in whole:
            if write.new is None:
                left = [name for name, (run, _) in scaled.items() if run == meta["name"]]
                yield from (f"ledger {meta['name']} goes before its fork {name}" for name in left)
            ledgers[meta["name"]] = whole["ledger"]
            continue
        run, uid = meta.get("labels", {}).get("dayfly.dev/run", ""), meta["uid"]
        if not run or write.new is None:
            if scaled.get(meta["name"], ("", ""))[1] == uid:
                del scaled[meta["name"]]
        elif whole["spec"]["replicas"]:
            had = scaled.get(meta["name"], (run, uid))
            if had[1] != uid:
                yield f"twice: fork {meta['name']} is scaled as {uid} while it lives as {had[1]}"
            scaled[meta["name"]] = run, uid
            held = ledgers.get(run, {}).get("units", {}).items()
            if uid not in {each["ref"] for unit, each in held if unit.startswith("fork:") and each["state"] in _HELD}:
                yield f"(2) fork {meta['name']} has {whole['spec']['replicas']} replicas, and no ledger has claimed it"
