"""`dayfly retry` with the server of a home; `test_cluster` has it for a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.cli import sample_specs
from tests.cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_retry_starts_waiting_unit_at_once(served: Cli, journal: Path):
    gate = journal.with_name("gate")
    plugin = sample_specs.plugin(journal, delete=f"[ -e {gate} ] || exit 6")
    served.write("p.yaml", plugin.replace("name: drop\n", "name: drop\n    retry: {backoff: 1h}\n"))
    served.write("s.yaml", sample_specs.sandbox())
    assert served("apply", "-f", ".").code == 0
    refused(served("retry", "demo"), 1, "nothing in it is waiting for a retry: All desired")
    refused(served("retry", "demo", "db/nothing"), 3, 'no unit "db/nothing"; it has db/provision, db/seed')
    refused(served("retry", "nobody"), 3, 'no sandbox "nobody"')
    assert served("sandbox", "delete", "demo", "--wait=false").code == 0
    until(lambda: "WaitingToRetry" in served("why", "demo").out)
    refused(served("retry", "demo", "db/seed"), 1, "db/seed is not waiting for a retry: its state is succeeded")
    gate.touch()
    done = served("retry", "demo", "db/drop")
    assert (done.code, done.out) == (0, "")
    assert done.err == "db/drop: attempt 1 has failed; it is retried now.\nSee: dayfly why demo\n"
    until(lambda: served.sandboxes() == [])
    assert journal.read_text().split()[-1] == "drop"
