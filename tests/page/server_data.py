"""Reports of a fake host for the page."""

from __future__ import annotations

from dayfly.spec.report import UnitReport
from dayfly.spec.run_data import HistoryEntry, Value


def told(host, uid: str, **more) -> None:
    """A run with a unit in every state, some of it not as it should be."""

    def unit(name: str, event: str, state: str, **of) -> UnitReport:
        return UnitReport(id=f"mydb/{name}", resource="mydb", name=name, event=event, kind="exec", state=state, **of)

    units = (
        unit("provision", "preStart", "succeeded", attempt=1, started_at=1_000, ended_at=2_500, outputs=("host", "pw")),
        unit("drop", "postStop", "retrying", attempt=2, reason="WaitingToRetry", message="exit 1", since=3_000,
             started_at=2_000, reads=("mydb/provision",)),
    )  # fmt: skip
    said = {"ready": False, "reason": "ResourceFailed", "message": "mydb/provision: exit 1", "units": units}
    host.outputs[uid] = (
        Value(unit="mydb/provision", output="host", value=b"h1"),
        Value(unit="mydb/provision", output="pw", value=b"canary", sensitive=True),
    )
    host.lines[uid] = tuple(
        HistoryEntry(seq=n, at=n * 1000, unit="mydb/drop", attempt=n, move="Record", reason="failed", message="exit 1")
        for n in (1, 2)
    )
    host.log_data[uid, "mydb/drop", 2] = (b"could not drop\n", True)
    host.say(uid, **{**said, **more})
