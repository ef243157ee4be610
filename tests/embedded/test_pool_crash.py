"""The server is killed at every write of a pool and two holders; the scripts' journal shows what ran."""

import collections
import contextlib
import sqlite3

import pytest
from tests.embedded.killed_server import Life, killed_at_writes
from tests.processes import processes
from tests.selection import SELECTION

MOST_WRITES = 400
PARTS = 10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class PoolLife(Life):
    """A home with a pool and the sandboxes `a` and `b`."""

    server_module = "tests.embedded.self_killing_pool_server"

    async def check(self, *, only_servers):
        assert only_servers
        steps = collections.defaultdict(list)  # by resource ID
        for line in self.lines():
            *words, identity, url = line.split() if line.split()[-1] == "u" else [*line.split(), ""]
            assert words[0] == "make" or url, f"without the output of its member: {line}"
            steps[identity].append(" ".join(words))
        for identity, seen in steps.items():
            assert seen.count("make") == 1, f"a create step of {identity} did not run once: {seen}"
            assert seen.count("seed") <= 1, f"a create step of {identity} ran twice: {seen}"
            assert "drop" in seen, f"member {identity} is left: {seen}"
            assert len({step[-1] for step in seen if step.startswith("grant")}) <= 1, f"two holders: {seen}"
            assert [step for step in seen if step.startswith("revoke")] == [] or seen[-1] == "drop", seen
        granted = [step for seen in steps.values() for step in seen if step.startswith("grant")]
        assert sorted(granted) == ["grant a", "grant b"]
        self._check_ledger()

    def _check_ledger(self):
        assert not processes(str(self.journal)), "processes are left"
        assert not self.work.exists(), f"left: {list(self.work.iterdir())}"
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db")) as database:
            for table in ("run", "output", "pool"):
                assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
            joins = database.execute("SELECT count(*) FROM history WHERE move = 'Join' GROUP BY run").fetchall()
        assert joins == [(1,), (1,)], "a member has had two holders"


async def test_pool_survives_a_kill_at_each_write(tmp_path, runner, played):
    share = SELECTION.sample(range(1, MOST_WRITES), PARTS, "writes of pools")
    survived = await killed_at_writes(tmp_path, share, runner, PoolLife)
    assert survived, "the runs never ended"
    played("lives of pools on the embedded host, killed at a write", sum(number <= min(survived) for number in share))
    assert min(survived) > 20, "fewer writes than there are claims and records: the hook is not called"
