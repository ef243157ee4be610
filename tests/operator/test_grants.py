"""Grants of namespaces for steps: which sandboxes, which pods, and how long a grant is cached."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dayfly.kube import errors
from dayfly.operator.pods import namespaces
from dayfly.operator.pods.namespaces import GRANT_CACHE_MS, NotGrantedError, RunnerConfigMap
from dayfly.plan.reasons import Reason

RUNNERS = {"dayfly.dev/runners": "true"}
GONE = errors.NotFound("GET", "gone", status=404)


class Bench:
    """Namespaces on a server; `made` are the runners that were created."""

    def __init__(self, program: bytes = b"program") -> None:
        self.clock = 0
        self.meta: dict[str, SimpleNamespace] = {}
        self.equipped: dict[str, dict] = {}
        self.made: list[str] = []
        self.asked: list[str] = []
        self.fault: Exception | None = None
        client = SimpleNamespace(get=self._get, create=self._create)
        self.known = namespaces.Namespaces(client, RunnerConfigMap("runner-1", program), lambda: self.clock)

    async def _get(self, _kind, name, namespace=""):
        if namespace:
            if namespace in self.equipped:
                return self.equipped[namespace]
            raise GONE
        self.asked.append(name)
        if name not in self.meta:
            raise GONE
        return SimpleNamespace(metadata=self.meta[name])

    async def _create(self, _kind, body, namespace):
        self.made.append(namespace)
        if self.fault:
            raise self.fault
        assert body["metadata"] == {"name": "runner-1", "namespace": namespace}

    def there(self, name: str, labels: dict | None = None, **annotations: str):
        notes = {f"dayfly.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
        self.meta[name] = SimpleNamespace(labels=labels, annotations=notes or None)
        return self

    async def refused(self, namespace: str, home: str = "shop") -> tuple[str, str]:
        with pytest.raises(NotGrantedError) as refused:
            await self.known.grant_for(namespace, home)
        return refused.value.reason, str(refused.value)


class TestGrants:
    @pytest.mark.parametrize(
        ("namespace", "advice"),
        [("dayfly-runners", "apply the install manifest again"), ("team", "create it, or change the plugin")],
    )
    async def test_missing_namespace_is_refused(self, namespace, advice):
        reason, said = await Bench().refused(namespace)
        assert (reason, said) == (Reason.NAMESPACE_MISSING, f"namespace {namespace} does not exist: {advice}")

    @pytest.mark.parametrize("labels", [None, {}, {"dayfly.dev/runners": "false"}, {"dayfly.dev/runners": "True"}])
    async def test_namespace_without_label_is_refused(self, labels):
        bench = Bench().there("team", labels)
        reason, said = await bench.refused("team", "team")
        assert reason == Reason.NAMESPACE_NOT_GRANTED
        assert "label it dayfly.dev/runners=true" in said
        assert bench.made == []

    async def test_namespace_takes_only_the_listed_homes(self):
        bench = Bench().there("team", RUNNERS, runners_from="other, shops")
        assert (await bench.known.grant_for("team", "team")).sandbox_namespaces == {"other", "shops"}
        reason, said = await bench.refused("team")
        assert reason == Reason.NAMESPACE_NOT_GRANTED
        assert "does not accept steps of sandboxes in shop" in said

    async def test_grant_lists_homes_and_pod_keys(self):
        bench = Bench().there("team", RUNNERS, runners_from=" other , shop,", pod_keys="a/b,c/*")
        granted = await bench.known.grant_for("team", "shop")
        assert (granted.sandbox_namespaces, granted.keys) == ({"other", "shop"}, {"a/b", "c/*"})

    async def test_default_namespace_takes_all_homes(self):
        granted = await Bench().there("dayfly-runners").known.grant_for("dayfly-runners", "shop")
        assert (granted.level, granted.sandbox_namespaces, granted.keys) == ("baseline", {"*"}, frozenset())

    @pytest.mark.parametrize(
        ("enforced", "level"), [("restricted", "restricted"), ("baseline", "baseline"), ("", "baseline")]
    )
    async def test_level_is_the_enforced_pod_security_level(self, enforced, level):
        bench = Bench().there("team", RUNNERS | {"pod-security.kubernetes.io/enforce": enforced})
        assert (await bench.known.grant_for("team", "team")).level == level


class TestBelieving:
    async def test_grant_is_cached_for_a_while(self):
        bench = Bench().there("team", RUNNERS)
        for clock, asked in ((0, 1), (GRANT_CACHE_MS - 1, 1), (GRANT_CACHE_MS, 2), (2 * GRANT_CACHE_MS - 1, 2)):
            bench.clock = clock
            await bench.known.grant_for("team", "team")
            assert len(bench.asked) == asked

    async def test_withdrawn_grant_is_refused_after_the_cache_expires(self):
        bench = Bench().there("team", RUNNERS)
        await bench.known.grant_for("team", "team")
        bench.there("team", {})
        bench.clock = GRANT_CACHE_MS
        await bench.refused("team", "team")

    async def test_refusal_is_not_cached(self):
        bench = Bench().there("team", {})
        await bench.refused("team", "team")
        bench.there("team", RUNNERS)
        await bench.known.grant_for("team", "team")


class TestRunner:
    async def test_runner_is_created_where_it_is_missing(self):
        bench = Bench().there("team", RUNNERS).there("other", RUNNERS)
        bench.equipped["other"] = RunnerConfigMap("runner-1", b"program").manifest("other")
        for namespace in ("team", "other"):
            await bench.known.grant_for(namespace, namespace)
        assert bench.made == ["team"]

    @pytest.mark.parametrize(
        "planted",
        [{"binaryData": {"runner": "AAAA"}}, {"immutable": False}, {"binaryData": None, "data": {"runner": ""}}],
    )
    async def test_foreign_program_of_the_runners_name_is_never_run(self, planted):
        bench = Bench().there("team", RUNNERS)
        bench.equipped["team"] = RunnerConfigMap("runner-1", b"program").manifest("team") | planted
        for _ in range(2):
            reason, said = await bench.refused("team", "team")
            assert reason == Reason.NAMESPACE_NOT_GRANTED
            assert "ConfigMap runner-1 in namespace team is not the operator's program" in said
        bench.equipped.clear()
        await bench.known.grant_for("team", "team")
        assert bench.made == ["team"]

    async def test_runner_created_by_another_replica_is_used(self):
        bench = Bench().there("team", RUNNERS)
        bench.fault = errors.AlreadyExists("POST", "exists", status=409)
        await bench.known.grant_for("team", "team")
        bench.clock, bench.fault = GRANT_CACHE_MS, errors.Forbidden("POST", "no", status=403)
        with pytest.raises(errors.Forbidden):
            await bench.known.grant_for("team", "team")

    async def test_no_runner_is_created_without_a_program(self):
        bench = Bench(b"").there("team", RUNNERS)
        await bench.known.grant_for("team", "team")
        assert bench.made == []

    @pytest.mark.parametrize(("machine", "name"), [(62, "amd64"), (183, "arm64"), (3, "amd64")])
    def test_runner_manifest_states_its_architecture(self, machine, name):
        program = bytes(18) + machine.to_bytes(2, "little")
        assert RunnerConfigMap.from_program(program).architecture == name
        assert RunnerConfigMap.from_program(program).name != RunnerConfigMap.from_program(program + b"x").name
        assert RunnerConfigMap.from_program(program).manifest("team")["immutable"] is True
