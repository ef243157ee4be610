"""The promises of docs/reference/embedded-host.md for processes, with containers: the same tests again."""

import stat

import pytest
import pytest_asyncio
from tests.embedded import documents as doc
from tests.embedded.machine import Machine, until
from tests.embedded.test_adoption import (
    test_a_runner_that_was_killed_makes_a_lost_step,
    test_a_running_step_goes_on_while_there_is_no_server,
    test_a_step_of_an_earlier_server_is_ended_on_delete,
    test_lost_work_folder_leaves_outcome_unknown_until_deadline,
    test_next_server_reads_receipt_of_step_that_ended_before,
    test_step_of_an_earlier_boot_is_lost,
)
from tests.embedded.test_containers import IMAGE, containers, store
from tests.embedded.test_full_disk import (
    disk,
    test_a_full_disk_costs_a_step_its_log_and_no_more,
    test_a_full_work_folder_starts_nothing_and_goes_on_with_room,
    test_a_server_that_ends_on_a_full_home_carries_on_with_room,
    test_a_step_that_can_have_no_log_is_not_started_and_says_why,
    test_full_home_refuses_runs_and_loses_nothing,
)
from tests.embedded.test_removed import (
    test_the_folder_of_a_step_while_there_is_no_server,
    test_the_folder_of_an_adopted_step,
    test_the_work_folder_and_all_logs_under_a_living_server,
)
from tests.processes import processes

__all__ = [
    "disk",
    "store",
    "test_a_full_disk_costs_a_step_its_log_and_no_more",
    "test_a_full_work_folder_starts_nothing_and_goes_on_with_room",
    "test_a_runner_that_was_killed_makes_a_lost_step",
    "test_a_running_step_goes_on_while_there_is_no_server",
    "test_a_server_that_ends_on_a_full_home_carries_on_with_room",
    "test_a_step_of_an_earlier_server_is_ended_on_delete",
    "test_a_step_that_can_have_no_log_is_not_started_and_says_why",
    "test_full_home_refuses_runs_and_loses_nothing",
    "test_lost_work_folder_leaves_outcome_unknown_until_deadline",
    "test_next_server_reads_receipt_of_step_that_ended_before",
    "test_step_of_an_earlier_boot_is_lost",
    "test_the_folder_of_a_step_while_there_is_no_server",
    "test_the_folder_of_an_adopted_step",
    "test_the_work_folder_and_all_logs_under_a_living_server",
]

pytestmark = [pytest.mark.timeout(120), pytest.mark.long_story]


@pytest_asyncio.fixture
async def machine(store, request, tmp_path, runner, monkeypatch):
    """A machine whose steps have images; podman mounts the folder of the test's journal in them."""
    if "disk" in request.fixturenames:
        request.getfixturevalue("disk")  # so that this fixture ends before the others
    monkeypatch.setitem(doc.step.__kwdefaults__, "image", IMAGE)
    found = Machine(tmp_path, runner)
    seen = tmp_path / "seen"
    seen.mkdir()
    found.journal = seen / "journal"
    engine = tmp_path / "bin" / "podman"
    engine.parent.mkdir()
    show = f"run --volume {seen}:{seen} --env JOURNAL={found.journal}"
    engine.write_text(f'#!/bin/sh\n[ "$1" = run ] || exec podman "$@"\nshift\nexec podman {show} "$@"\n')
    engine.chmod(stat.S_IRWXU)
    found.options = {"engine": str(engine)}
    if "disk" not in request.fixturenames:
        await found.up()
    yield found
    await found.end()
    await until(lambda: not containers(), "no containers")
    assert not processes(str(found.journal)), "processes are left"
