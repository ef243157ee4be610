"""`dayfly up` with a collector: one sees what took how long, and what steps trace hangs below them."""

from __future__ import annotations

from cli import wishes
from cli.command import until
from execute.collector import collecting

CANARY = "s3cr3t-canary"


def test_a_sandbox_is_two_traces_and_its_steps_know_theirs(cli, journal):
    say = f"echo $TRACEPARENT >> {journal}"
    drop = f"[ -e {journal}.once ] && exit 0; {say}; touch {journal}.once; echo {CANARY}; exit 7"
    cli.write("p.yaml", wishes.plugin(journal, create=f"{say}; echo {CANARY}", delete=drop))
    cli.write("demo.yaml", wishes.sandbox())
    with collecting() as collector:
        assert cli("up", "--detach", "--port", "0", OTEL_EXPORTER_OTLP_ENDPOINT=collector.url).code == 0
        try:
            assert cli("apply", "-f", ".").code == 0
            (name,) = cli.sandboxes()
            until(lambda: "create sandbox" in collector.roots())
            assert cli("sandbox", "delete", name).code == 0
            until(lambda: "delete sandbox" in collector.roots())
        finally:
            assert cli("down").code == 0
        create, delete = collector.roots()["create sandbox"], collector.roots()["delete sandbox"]
        assert (create.attributes["dayfly.outcome"], create.attributes["dayfly.target.name"]) == ("ready", name)
        assert (create.error, delete.error) == ("", "")
        first = collector.below(create)[0]
        (attempt,) = collector.below(first)
        assert create.start <= first.start <= attempt.start <= attempt.end <= first.end <= create.end
        failed = [each for unit in collector.below(delete) for each in collector.below(unit) if each.error]
        assert [(each.name, each.error) for each in failed] == [("attempt 1", "ExitCode")]
        parents = [line for line in journal.read_text().split() if line.startswith("00-")]
        assert parents == [f"00-{each.trace}-{each.id}-01" for each in (attempt, failed[0])]
        assert CANARY not in str(collector.spans)
        assert collector.resources[0]["service.name"] == "dayfly"
