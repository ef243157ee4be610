"""The proxy applies its faults as declared, seen from a client and from the server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kube.fake import FakeCluster, serving
from tests.operator.proxied import proxy as proxies
from tests.operator.proxied.plans import LIVES, Names, Plan, chosen, every, shares
from tests.operator.proxied.proxy import Call, FaultProxy, Harm, Through
from tests.operator.proxied.recorder import Record
from tests.operator.proxied.trial import Trial
from tests.operator.proxied.trials import Server, Trials
from tests.selection import Selection

from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS
from dayfly.kube.transport import HttpTransport
from dayfly.kube.watch import WatchEvent, watch

SECRET = {"metadata": {"name": "a"}, "data": {}}


class Line:
    """A client, its proxy, and the fault of the client's first change."""

    def __init__(self, harm: Harm | None, address: str) -> None:
        self.cluster: FakeCluster
        self.changes: list[Call] = []
        self.dead: list[str] = []
        self._harm = harm
        self.proxy = FaultProxy(address, None, hook=self._hook, died=self.dead.append)

    def _hook(self, call: Call) -> Harm | None:
        self.changes.append(call)
        return self._harm if len(self.changes) == 1 else None

    def stored(self) -> bool:
        return bool(self.cluster.objects("secrets"))


@contextlib.asynccontextmanager
async def line(harm: Harm | None) -> AsyncIterator[tuple[KubeClient, Line]]:
    cluster = FakeCluster()
    async with serving(cluster) as address:
        between = Line(harm, address)
        between.cluster = cluster
        async with between.proxy.serving():
            client = KubeClient(HttpTransport(Through(between.proxy.url("one"), "token")))
            try:
                yield client, between
            finally:
                await client.close()


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    monkeypatch.setattr(proxies, "HELD_S", 0.3)


@pytest.mark.parametrize(
    ("harm", "answer", "done"),
    [
        (Harm.CONFLICT, errors.Conflict, False),
        (Harm.TROUBLE_BEFORE, errors.OutcomeUnknown, False),
        (Harm.TROUBLE_AFTER, errors.OutcomeUnknown, True),
        (Harm.THROTTLE, errors.Throttled, False),
        (Harm.LOST_REQUEST, errors.OutcomeUnknown, False),
        (Harm.LOST_ANSWER, errors.OutcomeUnknown, True),
        (Harm.TWICE, errors.AlreadyExists, True),
        (Harm.CRASH_BEFORE, errors.OutcomeUnknown, False),
        (Harm.CRASH_AFTER, errors.OutcomeUnknown, True),
        (Harm.PEER_CRASH_BEFORE, errors.OutcomeUnknown, False),
        (Harm.PEER_CRASH_AFTER, errors.OutcomeUnknown, True),
    ],
)
async def test_a_harmed_change(harm, answer, done):
    """The client gets this answer, and the change was or was not made. The proxy must not send it again."""
    async with line(harm) as (client, between):
        with pytest.raises(answer):
            await client.create(SECRETS, SECRET, "default")
        assert between.stored() is done
        assert len(between.changes) == 1


@pytest.mark.parametrize("harm", [harm for harm in Harm if harm.crash])
async def test_crashed_operator_is_cut_off(harm):
    """The operator receives nothing after the crash, and its peer continues."""
    async with line(harm) as (client, between):
        with pytest.raises(errors.OutcomeUnknown):
            await client.create(SECRETS, SECRET, "default")
        with pytest.raises(errors.OutcomeUnknown):
            await client.delete(SECRETS, "a", "default")
        assert between.dead == ["one"]
        peer = KubeClient(HttpTransport(Through(between.proxy.url("two"), "token")))
        await peer.create(SECRETS, {"metadata": {"name": "b"}}, "default")
        await peer.close()


async def test_late(monkeypatch):
    """The change is delayed, and then made."""
    held = []
    async with line(Harm.LATE) as (client, between):

        async def hold(seconds: float) -> None:
            held.append((seconds, between.stored()))

        monkeypatch.setattr(proxies, "hold", hold)
        await client.create(SECRETS, SECRET, "default")
        assert held == [(proxies.HELD_S, False)]
        assert between.stored()


def harmed(proxy: FaultProxy, monkeypatch) -> asyncio.Event:
    """Set when the proxy is done with the change; its sender may have been ended by then."""
    done, harm = asyncio.Event(), proxy.do_harm

    async def noted(*given):
        try:
            return await harm(*given)
        finally:
            done.set()

    monkeypatch.setattr(proxy, "do_harm", noted)
    return done


async def test_held_request_of_a_dead_sender_is_not_sent(monkeypatch):
    """Otherwise it would be executed in the middle of later actions."""
    async with line(Harm.LATE) as (client, between):
        done = harmed(between.proxy, monkeypatch)

        async def hold(_seconds: float) -> None:
            between.proxy.cut_off("one")

        monkeypatch.setattr(proxies, "hold", hold)
        with pytest.raises(errors.OutcomeUnknown):
            await client.create(SECRETS, SECRET, "default")
        await done.wait()
        assert not between.stored()


async def test_request_of_a_dead_sender_is_not_repeated(monkeypatch):
    async with line(Harm.TWICE) as (client, between):
        done, sent, send = harmed(between.proxy, monkeypatch), [], between.proxy.send_on

        def dying(request, body):
            sent.append(request.method)
            between.proxy.cut_off("one")
            return send(request, body)

        monkeypatch.setattr(between.proxy, "send_on", dying)
        with pytest.raises(errors.OutcomeUnknown):
            await client.create(SECRETS, SECRET, "default")
        await done.wait()
        assert (sent, between.stored()) == (["POST"], True)


async def events(client: KubeClient, heard: asyncio.Queue[str]) -> None:
    """Watch Secrets until the watch ends."""
    version = (await client.list_all(SECRETS)).resource_version
    async for event in watch(client, SECRETS, version):
        assert isinstance(event, WatchEvent)
        heard.put_nowait(event.object.metadata.name)


async def watched(between: Line) -> None:
    """Wait until the proxy delays the client's watch."""
    while not between.proxy.watches("one"):  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(("harm", "end"), [(Harm.CUT, errors.ServerError), (Harm.EXPIRED, errors.Gone)])
async def test_watches_end(harm, end):
    """The change is made and answered."""
    async with line(harm) as (client, between):
        hearing = asyncio.create_task(events(client, asyncio.Queue()))
        await watched(between)
        await client.create(SECRETS, SECRET, "default")
        assert between.stored()
        with pytest.raises(end):
            await hearing


async def test_blind(monkeypatch):
    """The change is made and answered; its consequences are seen later."""
    monkeypatch.setattr(proxies, "HELD_S", 1.0)
    async with line(Harm.BLIND) as (client, between):
        heard: asyncio.Queue[str] = asyncio.Queue()
        hearing = asyncio.create_task(events(client, heard))
        await watched(between)
        began = time.monotonic()
        await client.create(SECRETS, SECRET, "default")
        assert await heard.get() == "a"
        assert time.monotonic() - began >= 1.0
        hearing.cancel()


async def test_unharmed():
    """Queries, bodies, statuses and watches are passed unchanged."""
    async with line(None) as (client, between):
        heard: asyncio.Queue[str] = asyncio.Queue()
        hearing = asyncio.create_task(events(client, heard))
        await watched(between)
        made = await client.create(SECRETS, SECRET, "default")
        with pytest.raises(errors.AlreadyExists):
            await client.create(SECRETS, SECRET, "default")
        with pytest.raises(errors.Conflict):
            await client.delete(SECRETS, "a", "default", uid="another")
        assert (await client.get(SECRETS, "a", "default")).metadata.uid == made.metadata.uid
        assert await heard.get() == "a"
        hearing.cancel()


class TestPlans:
    def test_eight_shares_meet_each_change(self):
        """There is one fault for each change of each story, and each story has each fault."""
        parts = shares()
        assert len(parts) == 120
        for first in range(0, 120, 8):
            share = [plan for part in parts[first : first + 8] for plan in part]
            for name, life in LIVES.items():
                mine = [plan for plan in share if plan.life == name]
                assert sorted(plan.number for plan in mine) == list(range(1, life.changes + 1))
                assert all(sum(plan.harm is harm for plan in mine) >= 2 for harm in Harm)

    def test_a_share_has_all_harms(self):
        """Even a few faults are spread over each story, and cover all kinds."""
        for share in shares():
            assert {plan.harm for plan in share} == set(Harm)
            for name, life in LIVES.items():
                mine = [plan for plan in share if plan.life == name]
                assert len(mine) >= life.changes // 8 - 1
                assert max(sum(plan.harm is harm for plan in mine) for harm in Harm) <= 2

    def test_the_shares_are_all(self):
        unharmed = [plan for plan in every() if plan.harm is None]
        assert sorted(map(str, [*unharmed, *(plan for share in shares() for plan in share)])) == sorted(
            map(str, every())
        )

    def test_run_plays_half_a_share_and_the_proof_all(self):
        picked = chosen(Selection(seed=4711))
        assert [plan for plan in picked if plan.harm] in [share[of::2] for share in shares() for of in (0, 1)]
        assert len([plan for plan in picked if not plan.harm]) == len(LIVES) // 4
        assert sorted(map(str, chosen(Selection(is_complete=True)))) == sorted(map(str, every()))

    def test_names_tell_plans_apart(self):
        """A Run's name leads to the plan of its Sandbox, and to no other."""
        for plan in every():
            assert Names().said(f"/apis/dayfly.dev/v1alpha1/runs/{plan}-abcdefghijklmnop") == str(plan)


class TestJudgement:
    """Violations in a story are detected, and none in a correct one."""

    def trial(self, *, harm: Harm | None = None) -> Trial:
        """Return a story whose Run has claimed everything."""
        made = Trial(Plan("retry", 1 if harm else 0, harm), Record())
        made.uid = "box"
        units = {"db/make": {"attempt": 1, "ref": "pod-1"}, "db/drop": {"attempt": 1, "ref": "pod-2"}}
        made.stage.runs.append({"ledger": {"uid": "box", "units": units}})
        return made

    def run(self, trial: Trial, unit: str, pod: str) -> None:
        reads = {"MAKE_URL": b"db://1"} if unit == "db/drop" else {}
        trial.cloud.start("box", unit, 1, pod, reads)
        trial.cloud.end("box", unit, 1, pod, "exited 0")

    def test_all_is_well(self):
        trial = self.trial()
        self.run(trial, "db/make", "pod-1")
        self.run(trial, "db/drop", "pod-2")
        assert trial.broken() == []

    def test_never_claimed(self):
        trial = self.trial()
        self.run(trial, "db/make", "another")
        self.run(trial, "db/drop", "pod-2")
        assert ["unclaimed" in each for each in trial.broken()] == [True]

    def test_not_undone(self):
        trial = self.trial()
        self.run(trial, "db/make", "pod-1")
        assert "(4) db/make is not undone" in trial.broken()

    def test_left(self):
        trial = self.trial()
        self.run(trial, "db/make", "pod-1")
        self.run(trial, "db/drop", "pod-2")
        secret = {"metadata": {"name": "o", "namespace": "shop", "resourceVersion": "1"}}
        trial.record.take("secrets", secret, deleted=False)
        assert trial.broken() == ["(14) secrets/shop/o is left"]
        trial.record.take("secrets", secret, deleted=True)
        assert trial.broken() == []

    def test_ledger_goes_back(self):
        """The recorder's versions reach the checks of histories."""
        trial = self.trial()
        self.run(trial, "db/make", "pod-1")
        self.run(trial, "db/drop", "pod-2")
        for version, phase in enumerate(("open", "closed", "open"), 1):
            run = {
                "metadata": {"name": "r", "uid": "u", "resourceVersion": str(version)},
                "ledger": {"seq": version, "phase": phase},
            }
            trial.record.take("runs", run, deleted=False)
        trial.record.take("runs", run, deleted=True)
        assert trial.broken() == ["(8) r: phase goes back"]

    def test_not_harmed(self):
        """A plan without its change has shown nothing."""
        trial = self.trial(harm=Harm.CUT)
        self.run(trial, "db/make", "pod-1")
        self.run(trial, "db/drop", "pod-2")
        played = self.played(trial)
        assert played.wrong(trial.plan)[0] == "its lives had but 0 changes, so nothing was harmed"
        assert trial.harm(Call("operator-1", "POST", "/x", b"")) is Harm.CUT
        assert played.wrong(trial.plan) == []

    def test_fault_of_an_earlier_life_is_kept(self):
        earlier, later = self.trial(harm=Harm.CUT), self.trial(harm=Harm.CUT)
        self.run(earlier, "db/make", "pod-1")
        self.run(later, "db/make", "pod-1")
        self.run(later, "db/drop", "pod-2")
        later.harm(Call("operator-1", "POST", "/x", b""))
        assert self.played(later).wrong(later.plan) == []
        assert "(4) db/make is not undone" in self.played(earlier, later).wrong(later.plan)

    def played(self, *lives: Trial) -> Trials:
        """Pretend that these stories of the same plan were played."""
        played = Trials(Server(url="", authority=Path(), admin=Path(), scheduler=Path(), kubelet=Path(), token=""))
        played.trials[str(lives[0].plan)] = list(lives)
        return played
