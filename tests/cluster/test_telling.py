"""The installed operator sends CloudEvents and traces, with the options from the comment of its manifest."""

from __future__ import annotations

import pytest
from tests.cluster.conftest import TEAM
from tests.cluster.installed import SYSTEM
from tests.cluster.waiting import eventually
from tests.execute.collector import collecting

# A port that the operator's NetworkPolicy permits.
PORT = 8443


@pytest.fixture
def collector(operator):
    """A collector that receives from the installed operator during the test."""
    kubectl, at = operator.own.kubectl, ("-n", SYSTEM, "deployment/dayfly-operator")
    with collecting(operator.own.network.host, PORT) as found:
        where = found.url.removeprefix("http://")
        wanted = [f"DAYFLY_EVENTS_TO={found.url}/events", f"DAYFLY_ALLOW_WEBHOOK={where}"]
        kubectl("set", "env", *at, *wanted, f"OTEL_EXPORTER_OTLP_ENDPOINT={found.url}")
        try:
            kubectl("rollout", "status", *at, "--timeout=120s")
            yield found
        finally:
            kubectl("rollout", "undo", *at)
            kubectl("rollout", "status", *at, "--timeout=120s")


@pytest.mark.proof
@pytest.mark.timeout(600, func_only=True)
def test_sandbox_produces_events_and_traces(operator, collector, wishes, journal):
    told = 'echo "$TRACEPARENT" | cut -c4-52'
    made = wishes.plugin(script=wishes.script(f"create first of $({told})", "printf hello >/tmp/word"))
    operator.apply(made, wishes.sandbox())
    operator.wait_ready(wishes.name, TEAM)
    eventually(lambda: collector.events, "the event")
    eventually(lambda: "create sandbox" in collector.roots(), "the trace of its creation")
    operator.delete(wishes.name, TEAM)
    eventually(lambda: "delete sandbox" in collector.roots(), "the trace of its end")
    (system,) = [each for each in operator.items("/api/v1/namespaces") if each["metadata"]["name"] == "kube-system"]
    told = {(each["type"].rpartition(".")[2], each["subject"], each["source"]) for each in collector.events}
    assert told == {("ready", wishes.name, f"urn:dayfly:cluster:{system['metadata']['uid']}:namespace:{TEAM}")}
    create, delete = (collector.roots()[f"{part} sandbox"] for part in ("create", "delete"))
    assert [each.name for each in collector.below(create)] == ["pair/first", "pair/second"]
    assert [each.name for each in collector.below(delete)] == ["pair/gone"]
    assert all(
        each.attributes["dayfly.waited_ms"] > 0 for unit in collector.below(create) for each in collector.below(unit)
    )
    (attempt,) = collector.below(collector.below(create)[0])
    assert journal.of(f"create first of {attempt.trace}-{attempt.id}"), "a step knows the span that its own hang below"
    assert delete.links == ((create.trace, create.id),)
    assert "hello" not in str([collector.spans, collector.events]), "no output is sent"
