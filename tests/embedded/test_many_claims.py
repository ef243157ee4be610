"""Thousands of sandboxes claim members of a pool while the server is killed: each gets one member, and none is lost.

`make proof` plays 100,000 claims, in hours. DAYFLY_TEST_CLAIMS=1000 plays this number instead:

    DAYFLY_TEST_SLICE=all DAYFLY_TEST_CLAIMS=1000 .venv/bin/python -m pytest -m proof tests/embedded/test_many_claims.py
"""

import asyncio
import collections
import contextlib
import json
import os
import random
import shutil
import sqlite3
import sys

import pytest
from tests.embedded.machine import work_of
from tests.processes import processes
from tests.selection import SELECTION

from dayfly.plan.reasons import Reason
from dayfly.plan.retry import MAX_NEVER_RAN
from dayfly.spec.run import Phase, State, decode

WORKERS, READY = 12, 8
# A server is killed at a random write up to this number, or up to the number of claims if that is smaller.
MAX_WRITES = 1_500
MAX_SERVERS = 2_000
CLAIMS_IN_PROOF = int(os.environ.get("DAYFLY_TEST_CLAIMS") or 100_000)
CLAIMS = "claims of pool members on the embedded host, with kills of the server"


class Claims:
    """A home whose server is killed again and again until all sandboxes have ended."""

    def __init__(self, folder, runner, total, dice):
        self.home, self.journal = folder / "home", folder / "journal"
        self.runner, self.total, self.dice = runner, total, dice
        self.kills = 0

    async def run(self):
        for _ in range(MAX_SERVERS):
            code = await self._serve(self.dice.randint(1, min(MAX_WRITES, self.total)))
            assert code in (0, -9), f"the server failed with {code}"
            if code == 0:
                return
            self.kills += 1
            assert self.violations() == []
        raise AssertionError(f"not over after {MAX_SERVERS} servers")

    async def _serve(self, die_at):
        told = {"home": self.home, "runner": self.runner, "journal": self.journal, "die_at": die_at}
        argument = json.dumps({**told, "total": self.total, "workers": WORKERS, "ready": READY}, default=str)
        path = os.pathsep.join(["src", ".", *filter(None, [os.environ.get("PYTHONPATH")])])
        server = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.embedded.claiming_server", argument, env={**os.environ, "PYTHONPATH": path}
        )
        return await server.wait()

    @contextlib.contextmanager
    def ledger(self):
        with contextlib.closing(sqlite3.connect(self.home / "ledger.db")) as database:
            yield database

    def runs(self, table):
        with self.ledger() as database:
            return {uid: decode(ledger) for uid, ledger in database.execute(f"SELECT uid, ledger FROM {table}")}

    def violations(self):
        """Return what is wrong with the ledger now: members with two holders, and ready holders without a member."""
        living = self.runs("run")
        found = [f"{uid} has {len(run.holders)} holders" for uid, run in living.items() if len(run.holders) > 1]
        claimed = collections.Counter()
        for uid, run in living.items():
            record = run.units.get("db/make")
            if run.phase is not Phase.OPEN or record is None or record.state is not State.DONE:
                continue
            claimed[record.ref] += 1
            member = living.get(record.ref)
            if member is None or uid not in [each.run for each in member.holders]:
                found.append(f"{uid} is ready without its member {record.ref}")
        return found + [f"{ref} has {count} sandboxes" for ref, count in claimed.items() if count > 1]

    def double_holds(self):
        """Return the number of members that had more than one holder in their life."""
        with self.ledger() as database:
            joins = database.execute("SELECT count(*) FROM history WHERE move = 'Join' GROUP BY run").fetchall()
        return sum(count > 1 for (count,) in joins)

    def members_of_sandboxes(self):
        """Return the member of each sandbox, from its last ledger."""
        return {uid: run.units["db/make"].ref for uid, run in self.runs("ended").items() if uid.startswith("s")}

    def count_failures(self):
        """Return the number of sandboxes whose member failed because no server lived long enough to start its step."""
        claims = [run.units["db/make"] for uid, run in self.runs("ended").items() if uid.startswith("s")]
        failures = [claim for claim in claims if claim.outcome == "failed"]
        assert {claim.reason for claim in failures} <= {Reason.START_INTERRUPTED}
        return len(failures)

    def steps(self):
        """Return how often each step ran for each member."""
        return collections.Counter(self.journal.read_text().splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    "total",
    [
        pytest.param(60, marks=pytest.mark.timeout(300)),
        pytest.param(CLAIMS_IN_PROOF, marks=[pytest.mark.proof, pytest.mark.timeout(6 * 3600)]),
    ],
)
async def test_each_claim_gets_one_member_and_none_is_lost(tmp_path, runner, played, total):
    claims = Claims(tmp_path, runner, total, random.Random(SELECTION.seed))
    try:
        await claims.run()
    finally:
        if claims.home.exists():
            shutil.rmtree(work_of(claims.home), ignore_errors=True)
    assert claims.kills > 0
    assert not processes(str(claims.journal)), "processes are left"
    assert claims.double_holds() == 0
    taken = claims.members_of_sandboxes()
    assert len(taken) == len(set(taken.values())) == total, "a sandbox had no member, or that of another one"
    steps = claims.steps()
    made = {line.removeprefix("make ") for line in steps if line.startswith("make ")}
    dropped = {line.removeprefix("drop ") for line in steps if line.startswith("drop ")}
    assert made == dropped, f"{len(made - dropped)} members are lost"
    assert max(count for line, count in steps.items() if line.startswith("make ")) == 1
    failures = claims.count_failures()
    assert len(made) >= total - failures
    assert failures * MAX_NEVER_RAN <= claims.kills * WORKERS
    played(CLAIMS, total, f"{claims.kills} kills; no double hold, lost member or holder without a member")
