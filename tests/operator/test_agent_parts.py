"""What a control plane's host is made of, piece by piece: its objects, what was said of them, and who is let go."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import msgspec
import pytest
from rig.serving import BOXES, DOCUMENTS, NAME, TARGET, UID, WEB, Bench, over, played, report

from dayfly.kube import errors
from dayfly.operator.agent import objects, settled
from dayfly.operator.agent.admission import check_documents, check_kept
from dayfly.operator.agent.foreign import ForeignKeys
from dayfly.operator.agent.release import AT_ONCE, Release
from dayfly.operator.agent.spoken import VERSIONS_IN_A_SESSION, Spoken, endpoint
from dayfly.operator.agent.trouble import unless_troubled
from dayfly.operator.cluster.objects import (
    SANDBOXES,
    SERVED_END_ANNOTATION,
    SERVED_FOR_ANNOTATION,
    SERVED_LABEL,
    SERVED_NAME_ANNOTATION,
    TARGET_FINALIZER,
    RunObject,
    SandboxObject,
    served_for,
)
from dayfly.operator.targets import sandbox
from dayfly.operator.targets.adapter import Plain
from dayfly.operator.targets.group_state import AT_ONCE_S
from dayfly.operator.targets.sandbox import SandboxTarget
from dayfly.spec.identity import routing_key
from dayfly.spec.lifecycle import MAX_UNITS_PER_RUN, Kind, Preview, Route, Target, Unit
from dayfly.spec.run import Run, decode, encode
from dayfly.spec.wire import HostUnavailableError, RefusedError
from kube.fake import Harm, rest

ENDING = errors.Cause("NamespaceTerminating", "metadata.namespace", "")


def box(*, deleted: bool = False, finalizers: tuple[str, ...] = (), **notes: str) -> SandboxObject:
    meta = {"name": NAME, "namespace": "acme-boxes", "uid": "u", "finalizers": list(finalizers)}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if notes:
        meta["annotations"] = {SERVED_END_ANNOTATION: notes["end"]}
    return msgspec.convert({"metadata": meta}, SandboxObject)


class TestObjects:
    @pytest.mark.parametrize(
        ("seen", "run", "ended"),
        [
            (box(), False, False),
            (box(deleted=True), False, True),
            (box(deleted=True), True, False),
            (box(deleted=True, finalizers=(TARGET_FINALIZER,)), False, False),
            (box(end="{}"), True, True),
        ],
    )
    def test_it_has_ended_if_it_says_so_or_was_deleted_before_its_run(self, seen, run, ended):
        assert objects.has_ended(seen, run=run) is ended
        assert settled.is_lost(seen, run=run) is not ended

    def test_whose_it_is_there(self):
        meta = msgspec.structs.replace(box().metadata, labels={SERVED_LABEL: UID})
        assert served_for(box().metadata) == ""
        assert served_for(meta) == "/"
        notes = {SERVED_FOR_ANNOTATION: "acme", SERVED_NAME_ANNOTATION: "shop"}
        assert served_for(msgspec.structs.replace(meta, annotations=notes)) == "acme/shop"

    def test_what_shows_the_end(self):
        assert objects.end_shown(box(end="x")) == {"/metadata/annotations/served.dayfly.dev~1end": "x"}
        assert objects.end_shown(box(deleted=True)) == {"/metadata/deletionTimestamp": "2026-01-01T00:00:00Z"}
        assert objects.end_shown(box()) == {"/metadata/deletionTimestamp": ""}

    def test_it_ends_under_the_uid_that_it_has_there(self):
        last = Run(uid="its object's here", target=TARGET, plan="", phase="abandoned", ended_at=7)
        told = objects.last_word(box(end=encode(last).decode()), UID)
        assert (told.phase, told.uid) == ("abandoned", UID)

    @pytest.mark.parametrize("said", [{}, {"end": "no ledger"}])
    def test_of_one_that_said_nothing_its_end_is_said(self, said):
        told = objects.last_word(box(**said), UID)
        assert (told.phase, told.uid) == ("cleaned", UID)


class TestStaying:
    async def stays(self, bench: Bench, **offered: object) -> None:
        [made] = bench.server.objects("runs")
        found = msgspec.convert(made, RunObject)
        if not offered.get("kept", True):
            found = msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, offered=None))
        target = SandboxTarget(bench.caches, Plain(SANDBOXES))
        assert await target.stays(found) is False, "the ledger goes"

    def test_with_its_ledger_goes_all_but_how_it_ended(self):
        async def story(bench: Bench):
            await bench.begun()
            bench.ledger(phase="cleaned", units={"db/make": {"attempt": 1, "state": "done"}})
            await self.stays(bench, kept=False)
            assert SERVED_END_ANNOTATION not in bench.notes, "of one of this cluster's own nobody asks"
            await self.stays(bench)
            last = decode(bench.notes[SERVED_END_ANNOTATION].encode())
            assert (last.phase, last.units, last.plan) == ("cleaned", {}, "")
            bench.finalizers()
            bench.ask("DELETE", f"{BOXES}/{NAME}")
            await self.stays(bench)

        played(story)


class TestTelling:
    """A group of a control plane begins as soon as it may; whatever else is told, or comes from nowhere, waits its time."""

    @pytest.mark.parametrize(
        ("offered", "begins", "after"),
        [
            ("RouteGroup", True, AT_ONCE_S),
            ("RouteGroup", False, 7.0),
            ("Sandbox", True, 7.0),
            ("", True, 7.0),
            (None, True, 7.0),
        ],
    )
    async def test_a_group_that_may_begin_is_looked_at_at_once(self, monkeypatch, offered, begins, after):
        spec = SimpleNamespace(offered=SimpleNamespace(kind=offered) if offered else None)
        run = None if offered is None else SimpleNamespace(spec=spec)
        cluster = SimpleNamespace(sandboxes=None, ledger=SimpleNamespace(get=lambda _name: run))

        async def tell(*_, **__):
            return 7.0

        monkeypatch.setattr(sandbox, "group_begins", lambda _scene: begins)
        scene = SimpleNamespace(world=SimpleNamespace(run=SimpleNamespace(target=SimpleNamespace(name="a", uid="u"))))
        target = SandboxTarget(cluster, SimpleNamespace(tell=tell))
        assert await target.tell(scene, report()) == after


class TestSpoken:
    def test_numbers_rise_through_sessions_and_with_each_news(self):
        spoken = Spoken()
        spoken.begin(2)
        spoken.begin(3)
        assert spoken.version("a") == 2 * VERSIONS_IN_A_SESSION
        assert spoken.note("a", report(), {})
        assert not spoken.note("a", report(), {})
        assert not spoken.note("a", report(born_at=5), {}), "that it was born is no news"
        assert spoken.note("a", report(message="n"), {})
        assert spoken.note("a", report(message="n"), {"web": "http://a.example.com:8080/"})
        assert spoken.version("a") == 2 * VERSIONS_IN_A_SESSION + 3
        assert [(each.host, each.port) for each in spoken.endpoints("a")] == [("a.example.com", 8080)]
        assert spoken.note("b", report(), {}), "the first word is news"
        spoken.forget("a")
        assert (spoken.report("a"), spoken.endpoints("a"), spoken.version("a")) == (None, (), 2 * VERSIONS_IN_A_SESSION)

    def test_where_an_endpoint_answers(self):
        assert (endpoint("web", "http://a").port, endpoint("web", "https://a").port) == (80, 443)
        assert endpoint("web", "https://").host == ""


class TestRelease:
    async def waiting(self, bench: Bench, count: int) -> tuple[Release, list[str], asyncio.Event]:
        release, asked, go = Release(bench.caches), list[str](), asyncio.Event()

        async def ended(uid):
            asked.append(uid)
            await go.wait()

        task = asyncio.create_task(release.noted([str(number) for number in range(count)], ended))
        await rest(1)
        again = asyncio.create_task(release.noted(["0"], ended))
        await rest(1)
        go.set()
        await asyncio.gather(task, again)
        return release, asked, go

    def test_several_at_once_and_each_of_them_once(self):
        async def story(bench: Bench):
            release, asked, _ = await self.waiting(bench, AT_ONCE + 2)
            assert sorted(asked) == sorted(str(number) for number in range(AT_ONCE + 2))
            assert asked[:AT_ONCE] == [str(number) for number in range(AT_ONCE)]

            async def ended(uid):
                asked.append(uid)

            await release.noted(["0"], ended)
            assert asked[-1] == "0", "it may be noted again once it is not going any more"

        played(story)

    def test_what_goes_wrong_with_one_stops_no_other_and_is_told(self):
        async def story(bench: Bench):
            asked = []

            async def ended(uid):
                asked.append(uid)
                if uid == "a":
                    raise errors.ServerTrouble("GET", "slow", status=500)
                await rest(1)
                asked.append("done")

            with pytest.raises(errors.ServerTrouble):
                await Release(bench.caches).noted(["a", "b"], ended)
            assert asked == ["a", "b", "done"]

        played(story)

    def test_a_refusal_of_one_is_said_and_keeps_none_of_the_others(self, caplog):
        async def story(bench: Bench):
            asked = []

            async def ended(uid):
                asked.append(uid)
                if uid.startswith("theirs"):
                    raise RefusedError(f"Sandbox {uid} is not the control plane's")

            theirs = [f"theirs-{number}" for number in range(AT_ONCE)]
            await Release(bench.caches).noted([*theirs, "ours"], ended)
            assert asked == [*theirs, "ours"]

        with caplog.at_level(logging.WARNING):
            played(story)
        assert caplog.text.count("is not let go: Sandbox theirs-") == AT_ONCE

    def test_what_cannot_be_let_go_now_is_said(self, caplog):
        async def story(bench: Bench):
            await bench.begun()
            over(bench)
            seen = msgspec.convert(bench.box, SandboxObject)
            bench.harms[f"DELETE {NAME}"] = Harm.TROUBLE_BEFORE
            await Release(bench.caches).one(seen)
            assert bench.box is not None

        with caplog.at_level(logging.WARNING):
            played(story)
        assert f"sandbox acme-boxes/{NAME} is not let go" in caplog.text


class TestAdmission:
    def test_a_run_has_documents_and_so_many_units_at_most(self):
        check_documents(DOCUMENTS, "acme")
        with pytest.raises(RefusedError, match="a run has documents"):
            check_documents((), "acme")
        most = tuple(msgspec.structs.replace(DOCUMENTS[0].pre_start[0], name=f"s{n}") for n in range(MAX_UNITS_PER_RUN))
        check_documents((msgspec.structs.replace(DOCUMENTS[0], pre_start=most),), "acme")
        for event in ("post_start", "pre_stop", "post_stop"):
            more = msgspec.structs.replace(DOCUMENTS[0], pre_start=most, **{event: DOCUMENTS[0].pre_start})
            with pytest.raises(RefusedError, match=f"at most {MAX_UNITS_PER_RUN} units"):
                check_documents((more,), "acme")

    def test_it_is_of_one_kind_that_a_control_plane_has(self):
        for kinds in (("Machine",), ("Sandbox", "RouteGroup")):
            made = [
                msgspec.structs.replace(DOCUMENTS[1], target=Target(kind=kind, name="x", uid="u")) for kind in kinds
            ]
            with pytest.raises(RefusedError, match="sandboxes and route groups, and nothing else"):
                check_documents(tuple(made), "acme")

    def test_no_pod_is_made_that_none_may_be(self):
        work = DOCUMENTS[0].pre_start[0]
        bare = msgspec.structs.replace(work, exec=msgspec.structs.replace(work.exec, image=""))
        with pytest.raises(RefusedError, match="may not be made"):
            check_documents((msgspec.structs.replace(DOCUMENTS[0], pre_start=(bare,)),), "acme")

    @pytest.mark.parametrize(
        ("unit", "group", "said"),
        [
            (Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",))), False, ""),
            (
                Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k",))),
                True,
                "a route group has no forks",
            ),
            (Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=("k", "no key"))), False, "r"),
            (Unit(name="p", kind=Kind.PREVIEW, preview=Preview(scheme="http", host="a", port=1, key="k")), True, ""),
            (Unit(name="p", kind=Kind.PREVIEW, preview=Preview(scheme="http", host="a", port=1, key="")), True, "p"),
            (Unit(name="p", kind=Kind.PREVIEW, preview=Preview(scheme="ftp", host="a", port=1, key="k")), True, "ftp"),
        ],
    )
    def test_what_is_kept_leads_only_as_a_compiler_says(self, unit, group, said):
        async def story(bench: Bench):
            foreign = ForeignKeys(bench.caches)
            if not said:
                check_kept((unit,), group=group, foreign=foreign)
                return
            with pytest.raises(RefusedError, match=said):
                check_kept((unit,), group=group, foreign=foreign)

        played(story)

    def test_the_key_of_what_was_applied_here_is_nobody_elses_as_long_as_it_is_there(self):
        async def story(bench: Bench):
            foreign = ForeignKeys(bench.caches)
            plain = bench.ask("POST", BOXES, {"metadata": {"name": "plain"}, "spec": {"cluster": "c"}})
            await bench.begun()
            key = routing_key(plain["metadata"]["uid"])
            led = Unit(name="r", kind=Kind.ROUTE, route=Route(baseline=WEB, keys=(key,)))
            with pytest.raises(RefusedError, match="is the routing key of a sandbox applied here"):
                check_kept((led,), group=False, foreign=foreign)
            assert not foreign.has(routing_key(bench.box["metadata"]["uid"]))
            bench.ask("DELETE", f"{BOXES}/plain")
            bench.hears()
            check_kept((led,), group=False, foreign=foreign)

        played(story)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (errors.Forbidden("POST", "no right", status=403), "kubectl create rolebinding dayfly-agent -n acme-boxes "),
        (errors.Forbidden("POST", "it ends", status=403, causes=(ENDING,)), "it ends$"),
        (errors.ServerTrouble("POST", "slow", status=500), "slow"),
    ],
)
async def test_what_a_cluster_cannot_do_now_is_ordered_again(fault, said):
    class Bound:
        namespace = "acme-boxes"

        @unless_troubled
        async def work(self, *, fails: bool) -> str:
            if fails:
                raise fault
            return "done"

    assert await Bound().work(fails=False) == "done"
    with pytest.raises(HostUnavailableError, match=said):
        await Bound().work(fails=True)
