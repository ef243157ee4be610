"""The rules of the executors on this machine: refusals, objections, work orders and probes."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest
from tests.embedded import documents as doc
from tests.embedded.kinds import KEY, Bench

from dayfly.embedded import attempt_executor
from dayfly.embedded.attempts import UnitAttempt
from dayfly.embedded.executors import ProcessStepExecutor
from dayfly.execute.inputs import ForkAddressUnknownError
from dayfly.execute.state import access
from dayfly.execute.work_order import CannotRenderError
from dayfly.plan.actions import Launch
from dayfly.plan.reasons import Reason
from dayfly.plan.world import NeverRan
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import As, Baseline, ForkValue, Unit, UnitInput, WebhookUnit
from dayfly.spec.run import OutputRecord, State, UnitRecord

NOW = 1_000
FORK = "fork:default/app"
TOLD = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1)}
MADE = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=TOLD)
ALIVE = UnitRecord(attempt=1, state=State.CLAIMED)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setattr(attempt_executor, "now_ms", lambda: NOW)
    return Bench(tmp_path)


class TestLaunching:
    @pytest.mark.parametrize(
        ("fault", "reason"),
        [(CannotRenderError(Reason.INPUT_INVALID, "m"), Reason.INPUT_INVALID), (OSError("m"), Reason.CANNOT_START)],
    )
    async def test_launch_that_cannot_be_rendered_never_ran(self, bench, monkeypatch, fault, reason):
        def order(*_):
            raise fault

        monkeypatch.setattr(bench.steps, "order", order)
        bench.attempts.slot_holders |= {KEY, KEY._replace(unit="r/b")}
        await bench.steps.launch(bench.live, Launch(unit="r/a", attempt=1))
        assert bench.attempts.slot_holders == {KEY._replace(unit="r/b")}
        assert bench.attempts.done == [("set_fact", KEY, NeverRan(reason=reason, message="m"))]


class TestOrders:
    READS = doc.step("a", inputs=["url=make.url"], schedule_ms=20, pull_ms=3)
    MAKE = doc.step("make", outputs=[("url", "/u")])

    def test_order_has_folder_deadline_and_inputs(self, bench):
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=MADE)
        order = bench.steps.order(live, KEY, self.READS)
        records = bench.records(order)
        assert (records["isolation"], records["cwd"]) == (b"root", b"/begins/r/a")
        assert records["start-before-ms"] == b"%d" % (NOW + 23)
        assert records["log"] == bench.attempts.folder(KEY).log.encode()
        assert "private" in records
        assert bench.variables(order)["URL"] == "db://1"
        assert bench.variables(order)["DAYFLY_OUTPUTS_COMPLETE"] == "false"
        assert bench.asked == ["u"]

    @pytest.mark.parametrize(("attempt", "read"), [(1, "at hand"), (2, "db://1")])
    def test_cached_value_is_used_only_for_its_attempt(self, bench, attempt, read):
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=MADE)
        bench.attempts.outputs[KEY._replace(unit="r/make", attempt=attempt)] = {"url": b"at hand"}
        assert bench.variables(bench.steps.order(live, KEY, self.READS))["URL"] == read
        assert bench.asked == ([] if read == "at hand" else ["u"])

    def test_cached_value_of_an_unrecorded_attempt_is_ignored(self, bench):
        """A new attempt failed or is not recorded yet: the output of the earlier attempt is still valid."""
        later = msgspec.structs.replace(MADE, attempt=2, outcome="failed")
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=later)
        bench.attempts.outputs[KEY._replace(unit="r/make", attempt=2)] = {"url": b"at hand"}
        assert bench.variables(bench.steps.order(live, KEY, self.READS))["URL"] == "db://1"

    def test_order_has_no_private_paths_without_namespaces(self, bench):
        bench.starter.isolation = "none"
        assert "private" not in bench.records(bench.steps.order(bench.live, KEY, doc.step("a")))

    def test_delete_step_gets_unusable_input_as_absent_and_logs_it(self, bench):
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        drop = doc.step("a", inputs=["url=make.url"])
        live = bench.of(doc.resource("r", [self.MAKE], [drop]), r__make=made)
        order = bench.steps.order(live, KEY, drop)
        assert bench.variables(order)["URL"] == ""
        assert bench.variables(order)["DAYFLY_OUTPUTS_COMPLETE"] == "true"
        said = bench.attempts.folder(KEY).read_log(0, 1000)
        assert b"input url contains a zero byte" in said
        assert b"; it is passed as absent]" in said

    def test_a_create_step_is_refused_that(self, bench):
        told = {"url": OutputRecord(digest="sha256:0", size=1, attempt=1, text=False)}
        made = UnitRecord(attempt=1, state=State.DONE, outcome="succeeded", outputs=told)
        live = bench.of(doc.resource("r", [self.MAKE, self.READS]), r__make=made)
        with pytest.raises(CannotRenderError):
            bench.steps.order(live, KEY, self.READS)

    def test_step_gets_only_the_secrets_of_its_resource(self, bench):
        unit = doc.step("a", inputs=[UnitInput(name="key", secret=True, as_=As(env="KEY"))])
        live = bench.of(doc.resource("r", [unit]))
        bench.secrets = {("r", "key"): b"ours", ("s", "key"): b"theirs"}
        assert bench.variables(bench.steps.order(live, KEY, unit))["KEY"] == "ours"
        assert bench.asked == ["secrets of u"]
        bench.steps.order(live, KEY, doc.step("a"))
        assert bench.asked == ["secrets of u"], "a step without inputs gets none"

    @pytest.mark.parametrize("traced", [True, False])
    def test_step_gets_a_trace_parent_only_if_traced(self, bench, traced):
        told = {"traced": True} if traced else {}
        steps = ProcessStepExecutor(
            bench.reader,
            bench.attempts,
            bench.starter,
            runs=bench.runs,
            environment={},
            has_images=False,
            **told,
        )
        found = bench.variables(steps.order(bench.live, KEY, doc.step("a"))).get("TRACEPARENT")
        assert found == (bench.live.traceparent("r/a", 1) if traced else None)

    def test_webhook_runs_as_our_process_under_any_isolation(self, bench):
        request = {"method": "POST", "url": "https://dns.example/"}
        unit = Unit(name="a", kind="webhook", webhook=WebhookUnit(request=request))
        records = bench.records(bench.hooks.order(bench.of(doc.resource("r", [unit])), KEY, unit))
        assert records["isolation"] == b"user"
        assert "private" not in records, "it is not a script and writes nothing"


class TestStates:
    """Only a step with a state gets its variables."""

    def steps(self, bench, door, environment=None, *, has_images=False):
        given = {"runs": bench.runs, "environment": environment or {}, "has_images": has_images, "states": door}
        return ProcessStepExecutor(bench.reader, bench.attempts, bench.starter, **given)

    def unit(self, *, state):
        unit = doc.step("a")
        return msgspec.structs.replace(unit, exec=msgspec.structs.replace(unit.exec, state=state))

    @pytest.mark.parametrize(
        ("state", "has_images", "seen"),
        [(True, False, {"TF_CLI_ARGS": "", "TF_CLI_ARGS_init": ""}), (False, False, {}), (True, True, {})],
    )
    def test_inherited_terraform_arguments_are_cleared(self, bench, state, has_images, seen):
        door = SimpleNamespace(variables=lambda _who: {})
        inherited = {"TF_CLI_ARGS": "-no-color", "TF_CLI_ARGS_init": "-backend=false", "TF_VAR_x": "1"}
        steps, unit = self.steps(bench, door, inherited, has_images=has_images), self.unit(state=state)
        found = bench.variables(steps.order(bench.of(doc.resource("r", [unit])), KEY, unit))
        assert {name: value for name, value in found.items() if name.startswith("TF_")} == seen

    @pytest.mark.parametrize("state", [True, False])
    async def test_stateful_step_gets_state_variables_and_clears_them(self, bench, state):
        asked, cleared = [], []
        door = SimpleNamespace(variables=lambda who: asked.append(who) or {"TF_HTTP": "x"}, clear=cleared.append)
        steps, unit = self.steps(bench, door), self.unit(state=state)
        steps.admit("r/a", unit)
        live = bench.of(doc.resource("r", [unit]))
        assert bench.variables(steps.order(live, KEY, unit)).get("TF_HTTP") == ("x" if state else None)
        assert asked == [access.state_caller("u", "r", "r/a", 1)] * state
        await steps.clear(live)
        assert (cleared, bench.attempts.done) == ([live.run], [("drop", "u")])

    async def test_stateful_step_is_refused_without_a_state_server(self, bench):
        steps = self.steps(bench, None)
        steps.admit("r/a", self.unit(state=False))
        with pytest.raises(DocumentsRefusedError, match="started without a server for states"):
            steps.admit("r/a", self.unit(state=True))
        await steps.clear(bench.live)
        assert bench.attempts.done == [("drop", "u")]


class TestSteps:
    def test_step_without_an_image_is_refused_in_containers(self, bench):
        inside = ProcessStepExecutor(
            bench.reader, bench.attempts, bench.starter, runs=bench.runs, environment={}, has_images=True
        )
        inside.admit("r/a", doc.step("a", image="busybox:1"))
        with pytest.raises(
            DocumentsRefusedError, match=r"r/a: this host runs steps in containers, and the step has no image"
        ):
            inside.admit("r/a", doc.step("a"))
        bench.steps.admit("r/a", doc.step("a"))

    @pytest.mark.parametrize(
        ("entry", "fits"),
        [
            ({"name": "SECRET", "valueFrom": {}}, True),
            ({"name": "OTHER", "valueFrom": {}}, False),
            ({"name": "OTHER", "value": "x"}, True),
        ],
    )
    def test_template_value_from_a_cluster_must_be_in_environment(self, bench, entry, fits):
        unit = doc.step("a", template={"spec": {"containers": [{"name": "main", "env": [entry]}]}})
        if fits:
            bench.steps.admit("r/a", unit)
        else:
            with pytest.raises(DocumentsRefusedError, match="takes OTHER from a cluster"):
                bench.steps.admit("r/a", unit)

    def test_refusal_lists_all_missing_template_values(self, bench):
        taken = [{"name": name, "valueFrom": {}} for name in ("ONE", "SECRET", "TWO", "ONE")]
        unit = doc.step("a", template={"spec": {"containers": [{"name": "main", "env": taken}]}})
        with pytest.raises(
            DocumentsRefusedError, match=r"takes ONE, TWO from a cluster.*: ONE=\.\.\. TWO=\.\.\. dayfly up$"
        ):
            bench.steps.admit("r/a", unit)

    def test_only_create_steps_wait_for_untold_fork_values(self, bench):
        def untold(_value):
            raise ForkAddressUnknownError(Reason.WAITING_FOR_FORKS, "it is not there")

        bench.runs.fork_values = lambda _live, _answers: untold
        asks = ForkValue(fork_of=Baseline(kind="Deployment", namespace="default", name="app"), expression="{{.Name}}")
        reads = UnitInput(name="who", fork=asks, as_=As(env="WHO"))
        says = Unit(
            name="say", kind="webhook", inputs=(reads,), webhook=WebhookUnit(request={"url": "https://a.example/"})
        )
        hooks = doc.hooks(
            post_start=[doc.step("warm", inputs=[reads]), says], pre_stop=[doc.step("drain", inputs=[reads])]
        )
        bench.of(doc.resource("r", [doc.step("a")]), hooks)
        found = bench.steps.objections(bench.live)
        assert {name: each.reason for name, each in found.items()} == {"warm": Reason.WAITING_FOR_FORKS}
        assert list(bench.hooks.objections(bench.live)) == ["say"], "each executor reports its own units"

    SHARED = doc.step("a", outputs=[("x", "/srv/x"), ("y", "/srv/y")])

    def objections(self, bench, *busy: UnitAttempt):
        other = doc.step("b", outputs=[("y", "/srv/y")])
        bench.of(doc.resource("r", [self.SHARED, other, doc.step("c", outputs=[("z", "/srv/z")])]))
        bench.attempts.slot_holders |= set(busy)
        return {name: (each.reason, each.message) for name, each in bench.steps.objections(bench.live).items()}

    def test_step_sharing_a_path_with_a_running_one_waits(self, bench):
        bench.starter.isolates_paths = False
        [(name, (reason, message))] = self.objections(bench, KEY).items()
        assert (name, reason) == ("r/b", Reason.PATH_IN_USE)
        assert message.startswith("uses /srv/y, as does the running r/a; this machine has no mount namespaces")

    def test_step_sharing_a_path_with_another_run_waits(self, bench):
        bench.starter.isolates_paths = False
        other = SimpleNamespace(unit=lambda _name: self.SHARED)
        peek = bench.runs.peek
        bench.runs.peek = lambda uid: other if uid == "v" else peek(uid)
        assert set(self.objections(bench, UnitAttempt("v", "r/a", 1))) == {"r/a", "r/b"}

    def test_step_of_a_removed_run_blocks_no_path(self, bench):
        bench.starter.isolates_paths = False
        assert self.objections(bench, UnitAttempt("gone", "r/a", 1)) == {}

    def test_steps_with_private_paths_do_not_wait(self, bench):
        assert self.objections(bench, KEY) == {}


def test_a_header_takes_its_secret_from_the_environment(bench):
    def hook(name):
        header = {"$secret": {"name": name, "key": "key"}}
        return Unit(name="a", kind="webhook", webhook=WebhookUnit(request={"headers": {"Authorization": header}}))

    bench.hooks.admit("r/a", hook("dns"))
    with pytest.raises(DocumentsRefusedError, match="set OTHER_KEY in the environment"):
        bench.hooks.admit("r/a", hook("other"))


def test_only_steps_with_fork_inputs_read_forks(bench):
    of = Baseline(kind="Deployment", namespace="default", name="app")
    asks = UnitInput(name="at", fork=ForkValue(fork_of=of, expression="{{.Host}}"), as_=As(env="AT"))
    reads = msgspec.structs.replace(doc.step("a"), inputs=(asks,))
    live = bench.of(doc.resource("r", [reads, doc.step("b")], [msgspec.structs.replace(reads, name="gone")]))
    assert [step.id for step in live.reading_forks] == ["r/a"]
