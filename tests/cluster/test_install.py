"""Dayfly as the manifest installs it: two replicas with the rights and under the policies that are shipped."""

import json
import time
from datetime import UTC, datetime

from tests.cluster.installed import SYSTEM
from tests.cluster.waiting import eventually


class TestOperator:
    def test_two_replicas_run_as_they_should(self, operator):
        """Both became ready without a restart; one leads, and both answer for themselves."""
        assert operator.restarts == [0, 0]
        eventually(
            lambda: all(pod["status"]["containerStatuses"][0]["ready"] for pod in operator.replicas()), "both are ready"
        )  # after a test that killed them the kubelet may be taking its time
        pods = operator.replicas()
        assert len(pods) == 2
        names = [pod["metadata"]["name"] for pod in pods]
        eventually(lambda: operator.leader() in names, "one leads")  # after a rollout no replica leads for a moment
        for pod in pods:
            path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8080/proxy"
            assert "dayfly_watch_age_seconds" in operator.get(f"{path}/metrics")
            assert operator.get(f"{path}/readyz") == "ready\n"

    def test_chained_steps_run_and_leave_nothing(self, operator, wishes, journal, record_property):
        """A value goes from step to step and into the Secret that the namespace gets; deletion takes everything."""
        began = time.monotonic()
        operator.apply(wishes.plugin(), wishes.sandbox())
        operator.wait_ready(wishes.name, wishes.namespace)
        ready = time.monotonic() - began
        (resource,) = operator.items("/apis/dayfly.dev/v1alpha1/resources")
        assert resource["status"]["ready"]
        secret = operator.get(f"/api/v1/namespaces/{wishes.namespace}/secrets/{resource['status']['binding']['name']}")
        assert sorted(secret["data"]) == ["first.word", "second.words"]
        began = time.monotonic()
        operator.delete(wishes.name, wishes.namespace)
        gone = time.monotonic() - began
        operator.check_nothing_left()
        assert [entry.said for entry in journal.entries] == ["create first", "create second", "delete gone"]
        took = operator.took | {"two steps ready": ready, "deleted": gone}
        record_property("took", ", ".join(f"{what} in {seconds:.1f} s" for what, seconds in took.items()))

    def test_nothing_is_refused_or_goes_wrong(self, operator, wishes):
        """The log of a whole life has no warning: all permissions suffice, and no policy refuses a request."""
        began = datetime.now(UTC).isoformat()
        operator.apply(wishes.plugin(), wishes.sandbox())
        operator.wait_ready(wishes.name, wishes.namespace)
        operator.delete(wishes.name, wishes.namespace)
        operator.check_nothing_left()
        said = operator.own.kubectl("logs", "-n", SYSTEM, "-l", "app.kubernetes.io/component=operator", "--tail=-1")
        lines = [json.loads(line) for line in said.splitlines()]
        assert lines
        assert [line for line in lines if line["level"] != "info" and line["time"] >= began] == []
