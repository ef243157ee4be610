"""The server, the runners, or both are killed at every write and at random moments; the scripts' journal shows what
ran.

`make test` kills at a tenth of the writes and moments, others with each commit. `test_container_crash.py` does the same
with containers.
"""

import pytest
from tests.embedded.killed_server import killed_at_moments, killed_at_writes
from tests.selection import SELECTION

MOST_WRITES = 400
TRIES = 50
PARTS = 10

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


async def test_the_server_is_killed_at_each_of_its_writes(tmp_path, runner, played):
    share = SELECTION.sample(range(1, MOST_WRITES), PARTS, "writes")
    survived = await killed_at_writes(tmp_path, share, runner)
    # Before and after each write: eight steps with nine attempts, each with a claim and a record.
    assert survived, "the run never ended"
    played("lives on the embedded host, killed at a write", sum(number <= min(survived) for number in share))
    assert min(survived) > 30, "fewer writes than there are claims and records: the hook is not called"


@pytest.mark.parametrize(
    "victims", [{"servers"}, {"runners"}, {"servers", "runners"}], ids=lambda each: " ".join(sorted(each))
)
async def test_anything_is_killed_at_any_moment(tmp_path, runner, victims, played):
    tries = TRIES if victims == {"servers"} else TRIES // 2
    share = SELECTION.sample(range(tries), PARTS, f"kills of {sorted(victims)}")
    played("lives on the embedded host, server and runners killed at any moment", len(share))
    await killed_at_moments(tmp_path, share, runner, victims)
