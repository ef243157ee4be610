"""Every example, whatever happens to it: afterwards nothing is left in the outside world."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.examples.home import Home, until
from tests.examples.kinds import FOLDER, GALLERY, IN_A_CLUSTER, STEPS, WITH_A_POOL, Example, failing, refusing, waiting
from tests.selection import SELECTION

IN_PROOF = dict.fromkeys(GALLERY, pytest.mark.proof)
ALL = {**STEPS, **GALLERY}
EACH = [pytest.param(name, marks=IN_PROOF.get(name, ())) for name in ALL]
EACH_STEP = [
    pytest.param(name, step, id=f"{name}-{step}", marks=IN_PROOF.get(name, ()))
    for name, steps in (ALL if SELECTION.is_complete else STEPS).items()
    for step in steps
]


def each_step(test: Callable[..., None]) -> Callable[..., None]:
    """Play the test with a sample of the steps of all examples."""
    steps = SELECTION.sample(EACH_STEP, 12, test.__name__)
    return pytest.mark.slow(pytest.mark.parametrize(("example", "step"), steps, indirect=["example"])(test))


def test_every_example_is_tested():
    assert sorted([*ALL, *IN_A_CLUSTER, *WITH_A_POOL, "controllers", "notifications"]) == sorted(
        entry.name for entry in FOLDER.iterdir() if entry.is_dir()
    )


@pytest.mark.parametrize("example", EACH, indirect=True)
def test_a_whole_life_leaves_nothing(example: Example, home: Home):
    home.dayfly("apply", *example.arguments())
    assert example.left() != []
    example.use(home.outputs(example.sandbox))
    report = home.json("sandbox", "get", example.sandbox)
    assert report["status"]["ready"] is True
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []


@each_step
@pytest.mark.parametrize("reporting", [True, False], ids=["reported", "unreported"])
def test_a_create_step_that_fails_after_its_work_leaves_nothing(
    example: Example, home: Home, step: str, reporting: bool, tmp_path: Path
):
    wishes = example.changed(tmp_path, step, failing, reporting=reporting)
    home.dayfly("apply", *wishes, code=1)
    assert example.left() != [], "the step is to have done its work"
    assert step in home.dayfly("why", example.sandbox)
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []


@each_step
def test_sandbox_deleted_during_a_step_leaves_nothing(example: Example, home: Home, step: str, tmp_path: Path):
    record, gate = tmp_path / "record", tmp_path / "gate"
    wishes = example.changed(tmp_path, step, lambda script: waiting(script, step, record, gate))
    home.dayfly("apply", *wishes, "--wait=false")
    until(lambda: record.exists() and f"{step} waits" in record.read_text(), f"{step} has done its work")
    assert example.left() != []
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []
    assert record.read_text().splitlines() == [f"{step} begins", f"{step} waits"]


@each_step
def test_server_killed_during_a_step_runs_it_once(example: Example, home: Home, step: str, tmp_path: Path):
    record, gate = tmp_path / "record", tmp_path / "gate"
    wishes = example.changed(tmp_path, step, lambda script: waiting(script, step, record, gate))
    home.dayfly("apply", *wishes, "--wait=false")
    until(lambda: record.exists() and f"{step} waits" in record.read_text(), f"{step} has done its work")
    home.kill()
    home.up()
    gate.touch()
    home.dayfly("apply", *wishes)
    assert home.json("sandbox", "get", example.sandbox)["status"]["ready"] is True
    assert record.read_text().splitlines() == [f"{step} begins", f"{step} waits"]
    home.dayfly("sandbox", "delete", example.sandbox)
    assert example.left() == []


@pytest.mark.proof
@pytest.mark.parametrize("example", ALL, indirect=True)
def test_two_at_once_have_each_their_own(example: Example, home: Home, tmp_path: Path):
    first, second = example.arguments(), example.renamed(tmp_path, "another")
    for wishes in (first, second):
        home.dayfly("apply", *wishes, "--wait=false")
    for wishes in (first, second):
        home.dayfly("apply", *wishes)
    both = set(example.left())
    home.dayfly("sandbox", "delete", example.sandbox)
    left = set(example.left())
    assert set() < left < both
    example.use(home.outputs("another"))
    home.dayfly("sandbox", "delete", "another")
    assert example.left() == []


@pytest.mark.proof
@pytest.mark.parametrize("example", [name for name, steps in ALL.items() if steps], indirect=True)
def test_repeated_delete_steps_succeed_and_leave_nothing(example: Example, home: Home, tmp_path: Path):
    """Each delete step does its work, fails all the same, and is run again where nothing is left."""
    home.dayfly("apply", *example.changed(tmp_path, None, refusing))
    home.dayfly("sandbox", "delete", example.sandbox, "--wait=false")
    until(lambda: "WaitingToRetry" in home.dayfly("why", example.sandbox), "the delete step has failed")
    # A state is kept for the next attempt and deleted with the run.
    assert [each for each in example.left() if not each.startswith("the state ")] == []
    home.dayfly("sandbox", "delete", example.sandbox, code=(0, 3))
    assert home.json("sandbox", "list") == []
    assert example.left() == []
