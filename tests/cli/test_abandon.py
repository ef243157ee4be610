"""A cleanup that cannot succeed: why says so, and abandon is the way out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cli import wishes
from cli.command import Cli, refused, until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_cleanup_that_fails_is_waited_for_explained_and_given_up(served: Cli, journal: Path):
    served.write("p.yaml", wishes.plugin(journal, delete="echo no network >&2; exit 6"))
    served.write("s.yaml", wishes.sandbox())
    assert served("apply", "-f", ".").code == 0
    done = served("sandbox", "delete", "demo", "--timeout", "2s")
    assert done.code == 4
    last = done.err.splitlines()[-1]
    assert last.startswith("dayfly: demo is still being deleted after 2 s: ")
    assert last.endswith("see: dayfly why demo")
    until(lambda: "to do: read its log" in served("why", "demo").out)
    assert "db/drop" in served("why", "demo").out
    refused(served("apply", "-f", "s.yaml"), 1, "demo", "dayfly why demo")
    assert served("logs", "demo", "db", "drop", "--attempt", "1").out == "no network\n"

    done = served("abandon", "demo", "--reason", "the database is gone with its machine")
    assert done.code == 0, done.err
    assert "may be left over" in done.err
    until(lambda: served.sandboxes() == [])
    refused(served("abandon", "demo", "--reason", "again"), 3, 'no sandbox "demo"')
