"""Statuses and Events, and ownership: bound to the object that was read, and written once."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, run
from tests.kube.website_controller import KINDS, PAGES, SITES, WEBSITES, Status, ask, site

from dayfly.kube import (
    KubeClient,
    NameConflictError,
    ObjectCondition,
    Recorder,
    add_finalizer,
    create_owned,
    drop_finalizer,
    errors,
)
from dayfly.kube.status import StatusWriter

FINALIZER = "example.org/held"


class Stage:
    """One Website, and its status writer."""

    def __init__(self) -> None:
        self.server = FakeCluster(seed=1, extra=KINDS)
        self.made = site(self.server, "a")
        self.client = KubeClient(self.server.transport("one"), seed=1)
        self.events = Recorder(self.client, "example.org/sites", "one")
        self.writer = StatusWriter(self.client, self.events, warnings={"Broken"})

    async def item(self):
        return await self.client.get(WEBSITES, "a", "default")

    async def say(self, *conditions: ObjectCondition, **fields) -> bool:
        """Write a status; return whether it was a change."""
        before = self.server.writes
        await self.writer.write(WEBSITES, await self.item(), Status(conditions=list(conditions), **fields))
        return self.server.writes > before

    async def said(self) -> list[tuple[str, str, str]]:
        """Return all Events."""
        task = asyncio.create_task(self.events.run())
        await self.events.wait_written()
        task.cancel()
        every = sorted(self.server.objects("events"), key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [(each["action"], each["reason"], each["type"]) for each in every]

    @property
    def status(self) -> dict:
        return self.server.objects("websites")[0].get("status", {})


def playing(story):
    async def main():
        await story(Stage())

    run(main())


class TestStatus:
    def test_status_is_written_only_if_it_differs(self):
        async def story(stage: Stage):
            waiting = ObjectCondition("Ready", "False", "Waiting", "for a page")
            assert await stage.say(waiting)
            assert stage.status["ready"] is False, "including default values"
            assert not await stage.say(waiting)
            since = stage.status["conditions"][0].pop("lastTransitionTime")
            assert stage.status["conditions"] == [
                {"type": "Ready", "status": "False", "reason": "Waiting", "message": "for a page"}
            ]
            await asyncio.sleep(5)
            assert await stage.say(ObjectCondition("Ready", "False", "Waiting", "for two pages"), shown="x")
            assert stage.status["conditions"][0]["lastTransitionTime"] == since, "the time of the change"
            assert await stage.say(ObjectCondition("Ready", "True", "Shown"), ready=True)
            assert "shown" not in stage.status
            assert not await stage.say(ObjectCondition("Ready", "True", "Shown"), ready=True)

        playing(story)

    def test_event_is_recorded_only_when_a_condition_changes(self):
        async def story(stage: Stage):
            for number in range(20):
                await stage.say(ObjectCondition("Ready", "False", "Waiting", f"for {number} s"))
            await stage.say(ObjectCondition("Ready", "False", "Broken", "no page"))
            for _ in range(20):
                await stage.say(ObjectCondition("Ready", "True", "Shown"), ready=True)
            assert await stage.said() == [
                ("Ready", "Waiting", "Normal"),
                ("Ready", "Broken", "Warning"),
                ("Ready", "Shown", "Normal"),
            ]

        playing(story)

    def test_status_of_a_changed_object_conflicts(self):
        """Two writers with the same object: one writes."""

        async def story(stage: Stage):
            item = await stage.item()
            news = Status(conditions=[ObjectCondition("Ready", "True", "Shown")])
            await stage.writer.write(WEBSITES, item, news)
            with pytest.raises(errors.Conflict):
                await stage.writer.write(WEBSITES, item, msgspec.structs.replace(news, ready=True))
            assert stage.status["ready"] is False
            assert len(await stage.said()) == 1

        playing(story)

    def test_foreign_status_fields_are_kept(self):
        async def story(stage: Stage):
            ask(stage.server, "PATCH", f"{SITES}/a/status", {"status": {"theirs": 1}})
            await stage.say(ObjectCondition("Ready", "True", "Shown"), shown="x")
            await stage.say(ObjectCondition("Ready", "True", "Shown"))
            assert stage.status["theirs"] == 1

        playing(story)


class TestOwnership:
    @pytest.mark.parametrize("harm", [None, Harm.LOST_ANSWER, Harm.LOST_REQUEST, Harm.TROUBLE_AFTER])
    def test_owned_object_is_created_once_despite_lost_answers(self, harm):
        async def story(stage: Stage):
            first = stage.server.writes + 1
            stage.server.faults = lambda call: Fault(harm) if harm and call.write == first else None
            owner, body = await stage.item(), {"metadata": {"name": "p"}, "data": {"text": "x"}}
            if harm:
                with pytest.raises(errors.OutcomeUnknown):
                    await create_owned(stage.client, PAGES, body, owner, WEBSITES)
            page = await create_owned(stage.client, PAGES, body, owner, WEBSITES)
            assert page.data == {"text": "x"}
            [made] = stage.server.objects("configmaps")
            [reference] = made["metadata"]["ownerReferences"]
            assert reference == {
                "apiVersion": "example.org/v1",
                "kind": "Website",
                "name": "a",
                "uid": owner.metadata.uid,
                "controller": True,
                "blockOwnerDeletion": True,
            }
            ask(stage.server, "DELETE", f"{SITES}/a")
            assert stage.server.objects("configmaps") == []

        playing(story)

    def test_an_owner_of_the_same_name_is_another_one(self):
        async def story(stage: Stage):
            owner = await stage.item()
            stage.server.controllers.settle = lambda: None
            body = {"metadata": {"name": "p"}}
            await create_owned(stage.client, PAGES, body, owner, WEBSITES)
            ask(stage.server, "DELETE", f"{SITES}/a")
            site(stage.server, "a")
            with pytest.raises(NameConflictError, match="Website a controls it"):
                await create_owned(stage.client, PAGES, body, await stage.item(), WEBSITES)

        playing(story)


class TestFinalizers:
    def test_finalizer_is_added_to_the_version_read(self):
        async def story(stage: Stage):
            seen = (await stage.item()).metadata
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": ["theirs.org/x"]}})
            with pytest.raises(errors.Conflict):
                await add_finalizer(stage.client, WEBSITES, seen, FINALIZER)
            assert await add_finalizer(stage.client, WEBSITES, (await stage.item()).metadata, FINALIZER)
            assert not await add_finalizer(stage.client, WEBSITES, (await stage.item()).metadata, FINALIZER)
            assert stage.server.objects("websites")[0]["metadata"]["finalizers"] == ["theirs.org/x", FINALIZER]

        playing(story)

    def test_finalizer_is_removed_after_others_were(self):
        async def story(stage: Stage):
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": ["theirs.org/x", FINALIZER]}})
            seen = (await stage.item()).metadata
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": [FINALIZER]}})
            await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)
            assert (
                "finalizers" not in stage.server.objects("websites")[0]["metadata"]
                or not (stage.server.objects("websites")[0]["metadata"]["finalizers"])
            )
            await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)

        playing(story)

    def test_none_is_taken_off_another_object_of_the_name(self):
        async def story(stage: Stage):
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": [FINALIZER]}})
            seen = (await stage.item()).metadata
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": None}})
            ask(stage.server, "DELETE", f"{SITES}/a")
            site(stage.server, "a")
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": [FINALIZER]}})
            await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)
            assert stage.server.objects("websites")[0]["metadata"]["finalizers"] == [FINALIZER]

        playing(story)

    @pytest.mark.parametrize("method", ["PATCH", "GET"])
    def test_unsupported_kind_does_not_count_as_finalized(self, method):
        """Return the request of a drop; with the second one, another finalizer is gone before."""

        async def story(stage: Stage):
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": ["theirs.org/x", FINALIZER]}})
            seen = (await stage.item()).metadata
            ask(stage.server, "PATCH", f"{SITES}/a", {"metadata": {"finalizers": [FINALIZER]}})
            forgotten = []

            def forget(call):
                if call.request.method == method and not forgotten:
                    forgotten.append(stage.server.forget("websites"))

            stage.server.faults = forget
            with pytest.raises(errors.NotServed):
                await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)
            stage.server.serve(*forgotten)
            await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)
            assert not stage.server.objects("websites")[0]["metadata"].get("finalizers")
            ask(stage.server, "DELETE", f"{SITES}/a")
            await drop_finalizer(stage.client, WEBSITES, seen, FINALIZER)

        playing(story)
