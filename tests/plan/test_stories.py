"""Storyboards of the main paths, compared with golden files. `DAYFLY_GOLDEN=1` rewrites them; read the diff."""

import os
from pathlib import Path

import msgspec
import pytest
from tests.plan.builders import ABANDON, STOP, database, document, fork, plan_of, unit
from tests.plan.story import Story

from dayfly.spec.lifecycle import UnitRetry

GOLDEN = Path(__file__).parent / "stories"
IDEMPOTENT = UnitRetry(idempotent=True, limit=3, backoff_ms=5_000)


def create_seed_fork_delete() -> Story:
    s = Story(plan_of(database(), forks=(fork(),)))
    s.turn().later(1).runs("db/make").turn().later(3).ends("db/make").turn()
    s.runs("db/seed").turn().later(2).ends("db/seed").turn()
    s.later(1).runs("fork:shop/app", ready=False).turn().later(4).runs("fork:shop/app").turn()
    s.later(60).wishes("ada deletes the sandbox", stop=STOP).turn()
    s.later(1).fails("fork:shop/app", "ended by SIGTERM").turn()
    return s.runs("db/drop").turn().later(2).ends("db/drop").turn().turn()


def create_fails() -> Story:
    s = Story(plan_of(database()))
    s.turn().later(2).fails("db/make").turn().later(600).turn()
    s.wishes("ada deletes the sandbox", stop=STOP).turn()
    return s.later(1).ends("db/drop").turn().turn()


def delete_in_mid_create() -> Story:
    s = Story(plan_of(database()))
    s.turn().runs("db/make").turn().later(1).wishes("ada deletes the sandbox", stop=STOP).turn()
    s.later(9).turn().later(1).fails("db/make", "ended by SIGTERM").turn()
    return s.later(1).ends("db/drop").turn().turn()


def unknown_that_resolves() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make"), unit("other")), post_stop=(unit("drop"),))), slots=1)
    s.turn().runs("db/make").turn().later(5).unclear("db/make", seconds=3600).turn().later(30).turn()
    return s.says("the node is back").ends("db/make").turn()


def unknown_until_its_deadline() -> Story:
    s = Story(plan_of(database()))
    s.turn().runs("db/make").turn().later(5).unclear("db/make", seconds=3600).turn()
    s.later(30).wishes("ada deletes the sandbox", stop=STOP).turn().later(3600).turn()
    return s.later(1).ends("db/drop").turn().turn()


def idempotent_retry() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make", retry=IDEMPOTENT), unit("seed", "make")))))
    s.turn().later(1).fails("db/make").turn().later(2).turn().later(3).turn()
    s.later(1).fails("db/make").turn().later(10).turn().later(1).ends("db/make").turn()
    return s


def retry_waits_for_the_end() -> Story:
    s = Story(plan_of(database()))
    s.turn().seals("db/make").turn().runs("db/seed").turn()
    s.later(1).wishes("ada deletes the sandbox", stop=STOP).turn().fails("db/seed", "ended by SIGTERM").turn()
    return s.later(1).says("the last process of db/make#1 is gone").ends("db/make").turn()


def cleanup_stuck() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),))))
    s.turn().ends("db/make").turn().wishes("ada deletes the sandbox", stop=STOP).turn()
    for wait in (5, 10, 20, 40, 80, 160):
        s.later(1).fails("db/drop", "the cloud answers 500").turn().later(wait).turn()
    return s.later(1).ends("db/drop").turn().turn()


def abandon() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),))))
    s.turn().ends("db/make").turn().wishes("ada deletes the sandbox", stop=STOP).turn()
    s.later(1).fails("db/drop", "the cloud answers 403").turn().later(5).turn().runs("db/drop").turn()
    s.later(60).wishes("ada abandons the cleanup", abandon=ABANDON).turn()
    return s.later(1).fails("db/drop", "ended by SIGTERM").turn().turn()


def time_to_live() -> Story:
    s = Story(plan_of(database()))
    s.wishes("it may live for 1 h", expires_at=s.now + 3_600_000).turn().ends("db/make").turn().ends("db/seed").turn()
    return s.later(3599).turn().later(1).turn().ends("db/drop").turn().turn()


def fork_crash_loop() -> Story:
    s = Story(plan_of(document(resource=""), forks=(fork(),)))
    s.turn().runs("fork:shop/app").turn()
    for wait in (1, 2, 4, 8):
        s.later(0.5).fails("fork:shop/app").turn().later(wait).turn().runs("fork:shop/app").turn()
    s.later(120).says("it has run for long").fails("fork:shop/app").turn()
    return s


def readers_first() -> Story:
    web = document("web", pre_start=(unit("deploy", "db/make"),), post_stop=(unit("remove", "db/make"),))
    s = Story(plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),)), web))
    s.turn().ends("db/make").turn().ends("web/deploy").turn().wishes("ada deletes the sandbox", stop=STOP).turn()
    return s.later(1).ends("web/remove").turn().later(1).ends("db/drop").turn().turn()


def crash_and_resume() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),))))
    s.says("the server is killed while it decides").turn(commits=False)
    s.says("a new server").turn(performs=False)
    s.later(1).says("a new server").stalls("db/make").turn().never("db/make").turn()
    s.later(5).turn().runs("db/make").turn().says("a new server adopts what runs").turn()
    return s.later(1).ends("db/make").turn(performs=False).says("a new server").turn()


def hooks_around_everything() -> Story:
    hooks = document(
        "",
        pre_start=(unit("before"),),
        post_start=(unit("warm"),),
        pre_stop=(unit("drain"),),
        post_stop=(unit("report"),),
    )
    s = Story(plan_of(hooks, forks=(fork(),)))
    s.turn().ends("before").turn().runs("fork:shop/app").turn().ends("warm").turn()
    s.wishes("ada deletes the sandbox", stop=STOP).turn()
    for wait in (5, 10, 20, 40):
        s.fails("drain", "no answer").turn().later(wait).turn()
    s.fails("drain", "no answer").turn().fails("fork:shop/app", "ended by SIGTERM").turn()
    return s.ends("report").turn().turn()


def a_target_of_its_own() -> Story:
    hooks = document(
        "",
        pre_start=(unit("before"),),
        post_start=(unit("warm"),),
        pre_stop=(unit("drain"),),
        post_stop=(unit("report"),),
    )
    s = Story(plan_of(hooks)).target_is("nothing of the target is at work")
    s.turn().ends("before").turn().later(5).target_is("the target has started", started=True).turn().ends("warm").turn()
    s.wishes("ada deletes the target", stop=STOP).turn().ends("drain").turn()
    s.later(5).target_is("the target has stopped", started=True, stopped=True).turn().ends("report").turn()
    return s.turn()


def a_target_that_never_starts() -> Story:
    hooks = document("", pre_start=(unit("before"),), pre_stop=(unit("drain"),), post_stop=(unit("report"),))
    s = Story(plan_of(hooks)).target_is("nothing of the target is at work")
    s.turn().wishes("ada deletes the target", stop=STOP).turn().ends("before").turn()
    s.target_is("the target is gone", stopped=True).turn().ends("report").turn()
    return s.turn()


def one_fork_after_another() -> Story:
    last = msgspec.structs.replace(fork("web"), after=("fork:shop/app",))
    s = Story(plan_of(document(resource=""), forks=(last, fork())))
    s.turn().runs("fork:shop/app", ready=False).turn().runs("fork:shop/app").turn().runs("fork:shop/web").turn()
    s.wishes("ada deletes the sandbox", stop=STOP).turn().fails("fork:shop/web", "ended by SIGTERM").turn()
    return s.fails("fork:shop/app", "ended by SIGTERM").turn().turn()


def behind_a_gate() -> Story:
    s = Story(plan_of(document(pre_start=(unit("make"),), post_stop=(unit("drop"),))), gated=True, ref="")
    s.turn().held("db/make", "uid-1").turn(performs=False)
    s.says("another operator goes on").turn().runs("db/make").turn().seals("db/make").turn()
    s.ends("db/make").turn().wishes("ada deletes the sandbox", stop=STOP).turn()
    s.taken("db/drop").turn().later(5).turn().held("db/drop", "uid-3").turn().ends("db/drop").turn().turn()
    return s


def a_revision_of_the_forks() -> Story:
    s = Story(plan_of(document(resource=""), forks=(fork(), fork("old"))))
    s.turn().runs("fork:shop/app").runs("fork:shop/old").turn()
    s.plan = plan_of(document(resource=""), forks=(fork(revision="2"),))
    s.later(60).says("ada gives app a new image and drops old").turn()
    s.later(1).fails("fork:shop/app", "ended by SIGTERM").turn().runs("fork:shop/app").turn()
    return s.later(1).fails("fork:shop/old", "ended by SIGTERM").turn()


STORIES = (
    create_seed_fork_delete,
    create_fails,
    delete_in_mid_create,
    unknown_that_resolves,
    unknown_until_its_deadline,
    idempotent_retry,
    retry_waits_for_the_end,
    cleanup_stuck,
    abandon,
    time_to_live,
    fork_crash_loop,
    readers_first,
    crash_and_resume,
    hooks_around_everything,
    a_target_of_its_own,
    a_target_that_never_starts,
    one_fork_after_another,
    behind_a_gate,
    a_revision_of_the_forks,
)


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_story(story):
    file = GOLDEN / f"{story.__name__}.golden"
    text = story().text(story.__name__.replace("_", " ").capitalize())
    if os.environ.get("DAYFLY_GOLDEN"):
        file.write_text(text)
    assert text == file.read_text()


def test_every_golden_file_has_its_story():
    assert {file.stem for file in GOLDEN.iterdir()} == {story.__name__ for story in STORIES}
