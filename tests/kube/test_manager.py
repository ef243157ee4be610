"""Controllers of one process: shared caches, owners of changed objects, one leader, and an orderly stop."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from tests.kube.fake import FakeCluster, Fault, Harm, run
from tests.kube.website_controller import MAPS, PAGES, SITES, WEBSITES, Sites, ask, cluster, manager, running, site

import dayfly.kube
from dayfly.kube import ApiResource, Elector, Key, KubeClient, LeaseTerms, Runnable
from dayfly.kube.objects import PartialObjectMetadata


def pages(cluster: FakeCluster) -> dict[str, str]:
    return {item["metadata"]["name"]: item["data"]["text"] for item in cluster.objects("configmaps")}


class TestControl:
    def test_object_is_reconciled_when_it_or_its_children_change(self):
        async def main():
            server = cluster()
            site(server, "old")
            sites = Sites(manager(server))
            async with running(sites.manager):
                await asyncio.sleep(1)
                assert pages(server) == {"old": "hello"}
                site(server, "new", "good day")
                await asyncio.sleep(1)
                assert pages(server) == {"old": "hello", "new": "good day"}
                ask(server, "PATCH", f"{SITES}/new", {"spec": {"text": "good night"}})
                await asyncio.sleep(1)
                assert pages(server)["new"] == "good night"
                # Another client deletes an owned object, and changes another one.
                ask(server, "DELETE", f"{MAPS}/old")
                ask(server, "PATCH", f"{MAPS}/new", {"data": {"text": "!"}})
                await asyncio.sleep(1)
                assert pages(server) == {"old": "hello", "new": "good night"}
                ask(server, "DELETE", f"{SITES}/old")
                await asyncio.sleep(1)
                assert pages(server) == {"new": "good night"}, "the garbage collector deletes owned objects"
                assert Key("default", "old") in sites.gone

        run(main())

    def test_all_objects_are_reconciled_periodically(self):
        async def main():
            server = cluster()
            site(server, "a")
            sites = Sites(manager(server), resync=60)
            async with running(sites.manager):
                await asyncio.sleep(5)
                before = len(sites.looked)
                await asyncio.sleep(180)
                assert len(sites.looked) == before + 3
                assert server.objects("websites")[0]["status"]["ready"] is True

        run(main())

    def test_object_of_another_owner_is_left_unchanged(self, caplog):
        """The name is taken: the error is logged and retried, and other objects do not wait."""

        async def main():
            server = cluster()
            ask(server, "POST", MAPS, {"metadata": {"name": "a"}, "data": {"text": "mine"}})
            site(server, "a")
            site(server, "b")
            sites = Sites(manager(server))
            async with running(sites.manager):
                await asyncio.sleep(60)
                assert pages(server) == {"a": "mine", "b": "hello"}
                assert 3 < sites.looked.count("a") < 20
                assert sites.looked.count("b") < 4
            assert "ConfigMap a already exists, and it has no controller" in caplog.text

        run(main())

    def test_followed_objects_trigger_reconcile(self):
        async def main():
            server = cluster()
            sites = Sites(manager(server))
            secrets = sites.manager.watch(ApiResource("", "v1", "secrets", "Secret", PartialObjectMetadata))
            sites.sites.follows(secrets, lambda item: [Key("default", item.metadata.name)])
            site(server, "a")
            async with running(sites.manager):
                await asyncio.sleep(1)
                before = len(sites.looked)
                ask(server, "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "a"}})
                ask(server, "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "b"}})
                await asyncio.sleep(1)
                assert len(sites.looked) == before + 1

        run(main())


class TestCaches:
    def test_equal_watches_share_one_cache(self):
        async def main():
            managed = manager(cluster())
            assert managed.watch(PAGES) is managed.watch(PAGES)
            assert managed.watch(PAGES) is not managed.watch(PAGES, labels="app=x")
            assert managed.watch(PAGES) is managed.control(PAGES, lambda _: asyncio.sleep(0)).cache

        run(main())

    def test_kind_watched_late_syncs_and_fails_separately(self):
        """The error of that kind is only in its own `trouble`; other kinds do not wait."""

        async def main():
            server = cluster()
            site(server, "a")
            sites = Sites(manager(server, namespace="default"))
            async with running(sites.manager):
                await asyncio.sleep(1)
                late = sites.manager.watch(ApiResource("", "v1", "secrets", "Secret", PartialObjectMetadata))
                ask(server, "POST", "/api/v1/namespaces/default/secrets", {"metadata": {"name": "a"}})
                chosen = ApiResource("", "v1", "secrets", "Secret", PartialObjectMetadata)
                marked = {"metadata": {"name": "b", "labels": {"mark": "yes"}}}
                ask(server, "POST", "/api/v1/namespaces/default/secrets", marked)
                some = sites.manager.watch(chosen, labels="mark=yes", index=("mark",))
                missing = sites.manager.watch(ApiResource("no.org", "v1", "things", "Thing", PartialObjectMetadata))
                await asyncio.sleep(10)
                assert [item.metadata.name for item in late] == ["a", "b"]
                assert [item.metadata.name for item in some.labelled("mark", "yes")] == ["b"]
                assert len(some) == 1
                assert (sites.manager.is_synced(late), sites.manager.watch_error(late)) == (True, None)
                assert not sites.manager.is_synced(missing)
                assert sites.manager.watch_error(missing).status == 404
                assert sites.manager.age < 100

        run(main())

    def test_one_namespace_is_watched_if_one_is_named(self):
        async def main():
            server = cluster()
            ask(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "other"}})
            ask(server, "POST", SITES.replace("default", "other"), {"metadata": {"name": "far"}})
            site(server, "near")
            sites = Sites(manager(server, namespace="default"))
            async with running(sites.manager):
                await asyncio.sleep(1)
            assert set(sites.looked) == {"near"}
            lists = {call.request.path for call in server.calls if call.request.method == "GET"}
            assert {path for path in lists if "namespaces/default" not in path} == set()

        run(main())


class TestProcess:
    def test_second_manager_takes_over_the_lease(self):
        async def main():
            server = cluster()
            both = []
            for name in ("a", "b"):
                client = KubeClient(server.transport(name), seed=1)
                elector = Elector(client, "sites", "default", name, LeaseTerms.for_duration(5), seed=sum(name.encode()))
                both.append(Sites(manager(server, name, elector=elector)))
            site(server, "one")
            tasks = [asyncio.create_task(each.manager.run()) for each in both]
            await asyncio.sleep(10)
            [leader] = [each for each in both if each.looked]
            [other] = [each for each in both if each is not leader]
            leader.manager.stop()
            await tasks[both.index(leader)]
            site(server, "two")
            await asyncio.sleep(4)
            assert pages(server) == {"one": "hello", "two": "hello"}
            assert set(other.looked) == {"one", "two"}
            other.manager.stop()
            await tasks[both.index(other)]
            assert server.objects("leases")[0]["spec"]["holderIdentity"] == ""

        run(main())

    def test_standby_reports_objects_gone_while_another_works(self):
        """The memory of its controllers must not grow until it leads."""

        async def main():
            server = cluster()
            both, leases = [], []
            for name in ("a", "b"):
                elector = Elector(
                    KubeClient(server.transport(f"{name}-lease"), seed=1),
                    "sites",
                    "default",
                    name,
                    LeaseTerms.for_duration(5),
                    seed=1,
                )
                both.append(Sites(manager(server, name, elector=elector)))
                leases.append(elector)
            tasks = [asyncio.create_task(each.manager.run()) for each in both]
            await asyncio.sleep(10)
            first = next(number for number, each in enumerate(leases) if each.is_leading)
            site(server, "before")
            await asyncio.sleep(1)
            server.faults = lambda call: (
                Fault(Harm.UNREACHABLE) if call.client == f"{leases[first].identity}-lease" else None
            )
            await asyncio.sleep(20)
            assert leases[1 - first].is_leading
            ask(server, "DELETE", f"{SITES}/before")
            await asyncio.sleep(1)
            assert both[first].gone == both[1 - first].gone == [Key("default", "before")]
            for each in both:
                each.manager.stop()
            await asyncio.gather(*tasks)

        run(main())

    def test_stopping_manager_finishes_running_work_only(self):
        async def main():
            server = cluster()
            begun, done = [], []

            async def slow(item):
                begun.append(item.metadata.name)
                await asyncio.sleep(5)
                done.append(item.metadata.name)

            managed = manager(server)
            managed.control(WEBSITES, slow, workers=1)
            for name in "abc":
                site(server, name)
            task = asyncio.create_task(managed.run())
            await asyncio.sleep(7)
            managed.stop()
            await task
            assert (begun, done) == (["a", "b"], ["a", "b"])

        run(main())

    def test_stop_cancels_work_after_the_grace_period(self):
        async def main():
            ended = []

            async def work():
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append(asyncio.get_running_loop().time())

            managed = manager(cluster())
            managed.add(Runnable(work, *[lambda: None] * 3))
            task = asyncio.create_task(managed.run())
            await asyncio.sleep(1)
            stopped = asyncio.get_running_loop().time()
            managed.stop()
            await task
            assert ended == [pytest.approx(stopped + 10, abs=0.1)]

        run(main())

    def test_manager_stops_without_a_server(self):
        async def main():
            server = cluster()
            server.faults = lambda _: Fault(Harm.UNREACHABLE)
            sites = Sites(manager(server))
            async with running(sites.manager):
                await asyncio.sleep(100)
            assert sites.looked == []

        run(main())


class TestFace:
    def test_every_public_name_can_be_imported(self):
        for name in dayfly.kube.__all__:
            assert getattr(dayfly.kube, name) is not None
        assert set(dayfly.kube.__all__) <= set(dir(dayfly.kube))
        with pytest.raises(AttributeError, match="no attribute 'Reconciler'"):
            _ = dayfly.kube.Reconciler

    def test_lazy_name_imports_no_http_client(self):
        """An installation without the extra `operator` has no HTTP client, but can decode objects."""
        code = "import sys; from dayfly.kube import Pod, errors; print('aiohttp' in sys.modules)"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
