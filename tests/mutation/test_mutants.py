"""The changes that are made by rule, and what is remembered and named of them."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import time

import pytest

from mutation.equivalent import EQUIVALENT
from mutation.mutants import mutants
from mutation.plant import SOURCE, End, edited, folder
from mutation.played import Figures, Memory, of, sample, stale
from share import SHARE

CODE = '''"""A file."""

LIMIT = 5


def check(pods, now, *, late=False):
    """Which of them."""
    log.info("not played %s", now > LIMIT)
    found = [pod for pod in pods if pod.due <= now and not late]
    for pod in found:
        if pod.gone:
            continue
        client.delete(pod.name, uid=pod.uid)
    return found, f"{now + 1}"
'''


def test_each_kind_of_change_is_made_in_its_place():
    found = [(mutant.where, mutant.old, mutant.new) for mutant in mutants("a.py", CODE)]
    assert found == [
        ("check", "False", "True"),
        ("check", "[pod for pod in pods if pod.due <= now and not late]", "[pod for pod in pods]"),
        ("check", "pod.due <= now and not late", "(not late)"),
        ("check", "pod.due <= now and not late", "(pod.due <= now)"),
        ("check", "pod.due <= now", "(pod.due < now)"),
        ("check", "pod.due <= now", "(now <= pod.due)"),
        ("check", "not late", "(late)"),
        ("check", "pod.gone", "not (pod.gone)"),
        ("check", "continue", "pass"),
        ("check", "client.delete(pod.name, uid=pod.uid)", "pass"),
        ("check", "client.delete(pod.name, uid=pod.uid)", "client.delete(pod.name)"),
        ("check", 'return found, f"{now + 1}"', "return None"),
    ]
    assert sum("client.delete(pod.name)\n" in mutant.text for mutant in mutants("a.py", CODE)) == 1


@pytest.mark.parametrize("room", ["plan", "execute", "operator", "embedded"])
def test_every_mutant_of_the_product_can_be_read_and_has_a_name(room):
    found = list(of([room]))
    assert len({mutant.name for mutant in found}) == len(found) > 500
    for mutant in SHARE.of(found, 80, f"mutants of {room}"):
        ast.parse(mutant.text)


def test_a_sample_is_the_same_for_the_same_seed_and_keeps_their_order():
    every = mutants("a.py", CODE)
    one = sample(every, 5, "seed")
    assert one == sample(every, 5, "seed")
    assert len(one) == 5
    assert [every.index(each) for each in one] == sorted(every.index(each) for each in one)
    assert sample(every, 0, "seed") == sample(every, 99, "seed") == every
    assert any(sample(every, 5, str(seed)) != one for seed in range(9))


def test_those_that_nothing_could_notice_are_there_still():
    assert stale() == []
    assert all(len(reason) > 20 for reason in EQUIVALENT.values())


def test_a_mutant_that_was_noticed_is_not_played_again_until_its_function_is_another(tmp_path):
    one, *_ = mutants("a.py", CODE)
    Memory("tests of then", tmp_path / "memory").note(one, "tests/x.py::test (noticed)")
    memory = Memory("other tests", tmp_path / "memory")
    elsewhere, *_ = mutants("a.py", CODE.replace("LIMIT = 5", "LIMIT = 6\n\nMORE = 7"))
    assert memory.noticed(one) == memory.noticed(elsewhere) == "tests/x.py::test (noticed)"
    assert memory.by_test["a.py", "tests/x.py::test"] == memory.by_test["a.py", "tests/x.py"] == 1
    other, *_ = mutants("a.py", CODE.replace("return found", "return list(found)"))
    assert memory.noticed(other) is None


def test_a_mutant_that_was_not_noticed_is_played_again_once_there_are_other_tests(tmp_path):
    one, *_ = mutants("a.py", CODE)
    Memory("tests of then", tmp_path / "memory").note(one, "")
    assert Memory("tests of then", tmp_path / "memory").noticed(one) == ""
    assert Memory("other tests", tmp_path / "memory").noticed(one) is None


def test_figures_leave_out_what_nothing_could_notice():
    figures = Figures()
    for mutant, how in zip(mutants("plan/a.py", CODE), ["noticed"] * 3 + ["equivalent", "survived"], strict=False):
        figures.count(mutant, how)
    [line] = figures.sentences({"plan": 12})
    assert line == "plan: 5 of 12 mutants played, 3 noticed, 1 equivalent, 1 not noticed: 75.0 %"
    assert (figures.below(75.0), figures.below(75.1)) == ([], ["plan"])


def test_the_package_is_laid_out_whole_with_one_file_changed():
    from mutation.plant import Edit, plant

    with folder() as home:
        plant(edited([Edit("plan/retry.py", "VOID_LIMIT: Final = 3", "VOID_LIMIT: Final = 4")]), home)
        there = home / "dayfly"
        assert "VOID_LIMIT: Final = 4" in (there / "plan" / "retry.py").read_text()
        assert (there / "plan" / "table.py").resolve() == SOURCE / "plan" / "table.py"
        assert (there / "operator").is_symlink()
    assert not home.exists()
    assert End.HUNG.value == "hung"


def test_whoever_a_play_has_started_ends_with_it():
    """Also who has left its session, as a resident runner does."""
    from processes import processes

    with folder() as home:
        environment = os.environ | {"PYTHONPATH": f"{home}:x"}
        own = subprocess.Popen(["sh", "-c", "sleep 60 & exec setsid sleep 60"], env=environment)
        while len(processes(str(home))) < 2:
            time.sleep(0.01)
    assert processes(str(home)) == []
    assert own.wait(10) == -signal.SIGKILL


def numbered(first, *, second=1):
    """A function to be changed below."""
    return [number for number in range(first) if number > second]


def test_the_code_of_a_function_is_changed_where_it_is_held():
    """Whoever has it under another name calls the mutant, its defaults included."""
    from dayfly.plan.retry import backoff
    from mutation.inplace import Functions, NotInPlaceError

    every = mutants("plan/retry.py", (SOURCE / "plan" / "retry.py").read_text())
    functions, held, before = Functions(), backoff, backoff.__code__
    [one, *_] = [mutant for mutant in every if mutant.where == "backoff"]
    try:
        functions.prepare(one)()
        assert held.__code__ is not before
    finally:
        backoff.__code__ = before
    with pytest.raises(NotInPlaceError):
        functions.prepare(one._replace(function=0))


class TestReach:
    """Which tests a mutant is shown to, and whether it has to be there when the package is loaded."""

    HERE, THERE = "tests/mutation/test_mutants.py::here", "tests/test_share.py::there"

    def test_where_no_test_comes_those_of_its_file_are_asked_and_those_that_name_it(self):
        from mutation.reach import Reach

        every = mutants("plan/retry.py", (SOURCE / "plan" / "retry.py").read_text())
        lines = {"plan/retry.py:backoff": {offset: {self.THERE} for offset in range(1, 40)}}
        reach = Reach(dict.fromkeys((self.HERE, self.THERE), 0.1), lines)
        assert next(reach.tests(each) for each in every if each.where == "backoff") == {self.THERE}
        assert next(reach.tests(each) for each in every if each.where != "backoff") == {self.HERE, self.THERE}

    @pytest.mark.parametrize(
        ("works", "loaded"), [("offer.seal_or_revise", True), ("offer", True), ("stop", False), ("off", False)]
    )
    def test_a_function_within_one_that_works_at_loading_is_made_then(self, works, loaded):
        from mutation.reach import Reach

        every = mutants("embedded/host.py", (SOURCE / "embedded" / "host.py").read_text())
        [inner, *_] = [each for each in every if each.where == "EmbeddedHost.offer.seal_or_revise"]
        assert Reach(at_import={f"embedded/host.py:EmbeddedHost.{works}"}).loaded(inner) is loaded


class TestHunt:
    """Whom a mutant is shown to, one after the other."""

    HERE, LONG, THERE = (f"tests/mutation/test_mutants.py::{name}" for name in ("here", "long", "there"))

    class Plays:
        """A player whose tests notice what they are told to."""

        def __init__(self, *noticing: str) -> None:
            self.noticing, self.shown = noticing, []

        def play(self, tests, _seconds, _before):
            from mutation.player import Verdict

            self.shown.append(list(tests))
            found = next((each for each in tests if each in self.noticing), "")
            return Verdict(End.NOTICED if found else End.SURVIVED, found)

    def hunt(self, tmp_path, player, *, patient, slow=""):
        from mutation.played import Hunt
        from mutation.reach import Reach

        [mutant, *_] = [
            each
            for each in mutants("plan/retry.py", (SOURCE / "plan" / "retry.py").read_text())
            if each.where == "backoff"
        ]
        seconds = {self.HERE: 0.1, self.LONG: 40.0, self.THERE: 0.2}
        reach = Reach(seconds, {"plan/retry.py:backoff": {offset: set(seconds) for offset in range(1, 40)}})
        asked = []

        def anew(_mutant, tests, only):
            asked.append((tests, only))
            return slow

        found = Hunt(player, reach, Memory("", tmp_path / "memory"), anew, patient=patient).notice(mutant)
        return found, asked

    def test_the_quick_ones_come_first_and_are_all_if_nobody_is_patient(self, tmp_path):
        player = self.Plays(self.LONG)
        assert self.hunt(tmp_path, player, patient=False) == ("", [])
        assert player.shown == [[self.HERE, self.THERE]]

    def test_who_is_patient_asks_the_rest_of_them(self, tmp_path):
        player = self.Plays(self.LONG)
        assert self.hunt(tmp_path, player, patient=True) == (f"{self.LONG} (noticed)", [])
        assert player.shown == [[self.HERE, self.THERE], [self.LONG]]

    def test_and_then_the_slow_ones_of_its_room(self, tmp_path):
        from mutation.played import SLOW

        found, asked = self.hunt(tmp_path, self.Plays(), patient=True, slow="tests/x.py::test (noticed)")
        assert found == "tests/x.py::test (noticed)"
        assert asked == [(SLOW["plan"], "slow")]

    def test_the_slow_ones_are_there(self):
        from mutation.played import ROOT, SLOW

        assert SLOW.keys() == {"plan", "execute", "operator", "embedded"}
        assert [place for places in SLOW.values() for place in places if not (ROOT / place).exists()] == []
