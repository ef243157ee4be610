"""Logs of a cluster's steps: kept by the operator, or followed while they come."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest
from tests.cli.command import refused
from tests.cli.frozen_cluster import FLAGS, LIFE, LINE, NEVER_GOES, SLOW, Stage, running, stage, still, stuck, up
from tests.kube.fake import Fault, Harm

from dayfly.cli.backends import cluster_logs
from dayfly.cli.backends.cluster_objects import Objects
from dayfly.cli.commands.logs import LogPrinter
from dayfly.execute.fork.render import fork_name
from dayfly.kube.client import KubeClient

from tests.operator.rig.scenes import ready, wish  # isort: skip
from tests.operator.rig.world import World  # isort: skip

__all__ = ["stage"]


def following(world: World):
    """The logs of a sandbox for the user ada, the cluster, and the live output of db/make."""
    client = KubeClient(world.cluster.transport("ada"), seed=1)
    host = Objects(client, "shop", FLAGS)
    [pod] = world.pods("db/make")
    return (
        cluster_logs.ClusterLogs(client, "shop"),
        host,
        world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners"),
    )


class TestLogs:
    def test_they_outlive_their_pods(self, stage: Stage):
        asked = stage(LIFE, up)
        assert asked.cluster.objects("pods") == []
        done = asked("logs", "box")
        assert (done.code, done.err) == (0, "")
        assert done.out == f"db/make | {LINE}db/seed | {LINE}"
        assert asked("logs", "box", "db", "seed").out == LINE
        assert asked("logs", "box", "db", "seed", "-f").out == LINE

    def test_each_line_has_its_time_kept_or_live(self, stage: Stage):
        """The kubelet has the times while the pod exists; afterwards StepLogs have them."""

        async def talking(world: World) -> None:
            await running(world)
            [pod] = world.pods("db/make")
            log = world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners")
            log.write(b"one\n")
            await world.rest(11)
            log.write(b"two\n\x1e\x1ethree\n")

        live = stage(SLOW, talking)("logs", "box", "db", "make", "--timestamps")
        (one, first), (two, second), (three, third) = (
            line.split(" ") for line in live.out.removesuffix("\n").split("\n")
        )
        assert (first, second, third) == ("one", "two", "\x1ethree")
        gap = dt.datetime.fromisoformat(two) - dt.datetime.fromisoformat(one)
        assert (gap, two) == (dt.timedelta(seconds=11), three)

        asked = stage(LIFE, up)
        kept = asked("logs", "box", "--timestamps")
        (make, seed) = (line.split(" ") for line in kept.out.splitlines())
        assert (make[0], seed[0], kept.err) == ("db/make", "db/seed", "")
        assert (make[3:], seed[3:]) == (LINE.split(), LINE.split())
        assert make[2] < seed[2]
        assert asked("logs", "box", "--since-time", seed[2], "--timestamps").out == " ".join(seed) + "\n"
        assert asked("logs", "box", "db", "make", "--since-time", make[2]).out == LINE
        assert asked("logs", "box", "db", "make", "--since-time", seed[2], "-f").out == ""

    def test_truncated_log_keeps_times_of_its_remaining_lines(self, stage: Stage):
        async def long(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 200
            await running(world)
            [pod] = world.pods("db/make")
            log = world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners")
            log.write(b"x" * 69_999 + b"\n")
            await world.rest(100)
            log.write(b"last\n")
            await world.until(lambda: ready(world), "ready")
            await world.rest(5)

        asked = stage(LIFE, long)
        done = asked("logs", "box", "db", "make", "--timestamps")
        cut, last, end = done.out.splitlines()
        assert cut.split(" ")[1].strip("x") == ""
        assert last.endswith("Z last")
        assert (
            done.err == f"db/make: attempt 1 printed {70_005 + len(LINE)} bytes, of which the last 65536 are stored\n"
        )
        since = asked("logs", "box", "db", "make", "--since-time", last.split(" ")[0], "--timestamps")
        assert (since.out, since.err) == (f"{last}\n{end}\n", "")

    def test_logs_from_older_operator_have_no_times(self, stage: Stage):
        asked = stage(LIFE, up)
        for bundle in asked.cluster.objects("steplogs"):
            for log in bundle["spec"]["logs"]:
                del log["times"]
        done = asked("logs", "box", "db", "make", "--timestamps")
        assert done.out == f"- {LINE}"
        assert done.err == "db/make: the first lines of attempt 1 have no known time and have - instead of a time\n"

    def test_a_viewer_of_the_namespace_reads_them(self, stage: Stage):
        asked = stage(LIFE, up)
        asked.denied = ("/runs", "/objectlifecyclemethods", "/secrets", "/pods", "/dayfly-runners")
        assert asked("logs", "box", "db", "make").out == LINE
        assert asked("why", "box").code == asked("get").code == 0

    def test_every_attempt(self, stage: Stage):
        asked = stage(NEVER_GOES, stuck)
        assert asked("logs", "box", "db", "drop", "--attempt", "1").out == LINE
        refused(asked("logs", "box", "db", "drop", "--attempt", "7"), 3, "db/drop has no attempt 7; stored: 1")
        refused(asked("logs", "box", "dbx"), 3, '"box" has no dbx; it has db/make, db/drop')

    def test_truncated_log_reports_printed_and_kept_bytes(self, stage: Stage):
        async def long(world: World) -> None:
            world.sandbox(wish())
            await world.until(lambda: world.cloud.starts("db/make"), "the first step")
            [pod] = world.pods("db/make")
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"x" * 99_999 + b"\n")
            await world.until(lambda: ready(world), "ready")
            await world.rest(5)

        done = stage(LIFE, long)("logs", "box", "db", "make")
        assert (
            done.err == f"db/make: attempt 1 printed {100_000 + len(LINE)} bytes, of which the last 65536 are stored\n"
        )
        assert len(done.out) == 65536

    def test_running_step_shows_its_log_so_far(self, stage: Stage):
        async def talking(world: World) -> None:
            await running(world)
            [pod] = world.pods("db/make")
            world.cluster.log_of(pod["metadata"]["name"], "dayfly-runners").write(b"so far\n")

        asked = stage(SLOW, talking)
        assert asked("logs", "box", "db", "make").out == "so far\n"
        asked.denied = ("/log",)
        done = asked("logs", "box", "db", "make")
        assert (done.code, done.out) == (0, "")
        assert 'db/make: its log cannot be shown while it runs: User "ada" cannot get' in done.err
        assert "its log is available seconds after it has ended" in done.err

    def test_follow_streams_new_lines_and_ends_with_the_step(self, stage: Stage):
        """In the cluster's own time: live while it runs, without the runner's own lines, and the next step after it."""
        pieces = []

        async def followed(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 30
            await running(world)
            logs, host, out = following(world)
            for number in range(3):
                out.write(f"line {number}\n".encode())
                await world.rest(1)
                await logs.attempts(lambda: host.fetch("box"), world.now, follow=True)
                await world.rest(0.1)
                pieces.append(logs.text("db/make", 1))
            await world.until(lambda: ready(world), "ready")
            found = await logs.attempts(lambda: host.fetch("box"), world.now, follow=True)
            pieces.append(logs.text("db/make", 1))
            assert {(info["unit"], info["sealed"]) for info in found} >= {("db/make", True)}
            world.delete()
            await world.until(lambda: world.box() is None, "the end")
            assert all(
                each["sealed"] for each in await logs.attempts(lambda: host.find_same("box"), world.now, follow=True)
            )
            await logs.close()

        stage(LIFE, followed)
        assert pieces == [
            b"line 0\n",
            b"line 0\nline 1\n",
            b"line 0\nline 1\nline 2\n",
            b"line 0\nline 1\nline 2\n" + LINE.encode(),
        ]

    @pytest.mark.parametrize("long", [0, 80_000])
    def test_a_connection_that_breaks_hides_nothing(self, stage: Stage, capsys, long: int):
        """After the deletion of the pod, StepLogs continue the log, or the missing bytes are reported."""
        told = []

        async def broken(world: World) -> None:
            world.kubelet.scripts["db/make"].runs = 30
            await running(world)

            def breaks(_, call):
                follows = call.client == "ada" and call.request.path.endswith("/log")
                return Fault(Harm.BREAK, after=1) if follows else None

            world.hook = breaks
            logs, host, out = following(world)
            out.write(b"line 0\n")
            await world.rest(1)
            await logs.attempts(lambda: host.fetch("box"), world.now, follow=True)
            await world.rest(0.2)
            told.append(logs.text("db/make", 1))
            out.write(b"x" * long + b"line 1\n")
            await world.until(lambda: ready(world), "ready")
            await world.rest(10)
            [info] = [
                each
                for each in await logs.attempts(lambda: host.fetch("box"), world.now, follow=True)
                if each["unit"] == "db/make"
            ]
            printer = LogPrinter(info)
            printer.offset = len(told[0])
            printer.print_new(SimpleNamespace(read=lambda _, *where: logs.chunk(*where)), "box", "", info)
            assert (info["sealed"], info["size"]) == (True, printer.offset)
            await logs.close()

        stage(LIFE, broken)
        whole = "line 0\n" + "x" * long + "line 1\n" + LINE
        assert told == [b"line 0\n"]
        missing = max(len(whole) - 7 - 65_536, 0)
        out, err = capsys.readouterr()
        assert out == whole[7 + missing :]
        assert err == (f"db/make: {missing} bytes are missing here\n" if missing else "")

    def test_fork_logs_name_the_kubectl_command_for_its_pods(self, stage: Stage):
        asked = stage.at(
            still(
                status={
                    "units": [
                        {"id": "fork:shop/web", "kind": "fork", "event": "start", "state": "running", "attempt": 1}
                    ]
                }
            ),
            1_767_225_601_000,
        )
        uid = asked.cluster.objects("sandboxes")[0]["metadata"]["uid"]
        done = asked("logs", "box", "web")
        assert (done.code, done.out) == (0, "")
        label = f"dayfly.dev/fork={fork_name('box', uid, 'shop', 'web')}"
        assert done.err == f"the logs of forks are in their pods: kubectl --context kind logs -n shop -l {label}\n"
        timed = asked("logs", "box", "web", "--timestamps", "--since-time", "2026-01-01T00:00:00.5Z")
        assert timed.err.endswith(f" -l {label} --timestamps --since-time=2026-01-01T00:00:00.500Z\n")
