"""The runs of the embedded host as traces: each is read until it is exported, and no turn fails because of it."""

from types import SimpleNamespace

from tests.embedded import documents as doc
from tests.embedded.machine import until
from tests.plan.test_trace import HISTORY, RUN
from tests.server.test_cloud_event_publisher import report

from dayfly.embedded.run_tracing import TraceExporter
from dayfly.execute.tracing import Tracer
from dayfly.lib.clock import now_ms
from dayfly.plan.reasons import Reason


class Bench:
    """An engine with one ready run, and a tracer whose traces are kept."""

    def __init__(self, history=lambda _uid: HISTORY):
        self.heard, self.looks, self.traces = [], [], []
        reader = SimpleNamespace(load=lambda _uid: SimpleNamespace(run=RUN), ended_run=lambda _uid: None)
        self.engine = SimpleNamespace(
            reader=reader,
            on_change=lambda uid: self.heard.append(("changed", uid)),
            on_end=lambda uid: self.heard.append(("ended", uid)),
        )
        self.tracer = Tracer(lambda spans: self.traces.append(spans) or True, now=lambda: 1000)
        TraceExporter(self.engine, self.tracer, self.report, history)

    def report(self, uid):
        self.looks.append(uid)
        return report(ready=True, reason=Reason.READY)


def test_ended_run_is_traced_only_once():
    bench = Bench()
    for _ in range(3):
        bench.engine.on_change(RUN.uid)
    bench.engine.on_end(RUN.uid)
    bench.tracer.close()
    assert bench.heard == [("changed", RUN.uid)] * 3 + [("ended", RUN.uid)], "earlier subscribers still get it"
    assert bench.looks == [RUN.uid], "an exported run is not read again"
    assert [len(spans) for spans in bench.traces] == [6]


def test_failing_trace_fails_no_turn(caplog):
    bench = Bench(history=lambda _uid: 1 / 0)
    bench.engine.on_change(RUN.uid)
    bench.tracer.close()
    assert bench.heard == [("changed", RUN.uid)]
    assert f"cannot export the trace of run {RUN.uid}" in caplog.text


async def test_host_with_a_tracer_traces_its_runs(machine):
    traces = []
    tracer = Tracer(lambda spans: traces.append(spans) or True, now=now_ms)
    await machine.down()
    machine.options = {"tracer": tracer}
    await machine.up()
    await machine.host.offer(doc.offer(doc.resource("r", [doc.step("make", "true")])))
    await machine.ready()
    await until(lambda: traces, "it is sent once it is ready")
    await machine.finish()
    tracer.close()
