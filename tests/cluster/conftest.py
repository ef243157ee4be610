"""A disposable cluster for a test session: a given one, or a new one.

DAYFLY_TEST_KUBECONFIG names a cluster that these tests may change freely. Without it `testcluster/` builds and starts
one. If neither is possible, the tests are skipped, and the last lines of the session state their number and the reason.
With CI=true such a skip is a failure.
"""

import dataclasses
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from testcluster import build, images
from testcluster import cluster as clusters
from tests.cluster import custom_controllers
from tests.cluster.installed import ACCOUNT, Installed
from tests.cluster.journal import Journal
from tests.cluster.kubectl_specs import Wishes

HERE = Path(__file__).resolve().parent
# All tests of these files are in every run; all other tests of this folder are long stories.
ALWAYS = (
    "test_conformance.py",
    "test_controllers.py",
    "test_good_operator.py",
    "test_image.py",
    "test_install.py",
    "test_object_examples.py",
)
# Properties of reports for the last lines of the session, from any worker process.
SKIPPED, TOOK = "skipped for want of a cluster", "took"
# The namespace of the sandboxes of all tests.
TEAM = "team"
MOST_LETTERS = 30  # the maximum length of a generated name


@dataclasses.dataclass(frozen=True)
class DisposableCluster:
    """The session's cluster; `own` is set if it is ours, with all that `testcluster.cluster` can do."""

    kubeconfig: Path
    shell_image: str
    own: clusters.Cluster | None

    def kubectl(self, *arguments: str, stdin: str = "") -> str:
        """Return the output of kubectl as an administrator; fail the test with its error output."""
        if self.own:
            return self.own.kubectl(*arguments, stdin=stdin)
        command = ["kubectl", f"--kubeconfig={self.kubeconfig}", *arguments]
        ended = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(command)}: {ended.stderr}"
        return ended.stdout

    def load(self, archive: Path) -> None:
        """Bring an image to the nodes; a test that needs it is skipped on a cluster that is not ours."""
        if not self.own:
            pytest.skip("images can be brought to our own cluster only, and DAYFLY_TEST_KUBECONFIG names another")
        self.own.load(archive)


@pytest.fixture(scope="session")
def machine(request: pytest.FixtureRequest) -> None:
    """Skip the test if this machine cannot run clusters; fail in CI."""
    try:
        build.check_machine()
    except build.UnavailableError as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[DisposableCluster]:
    """The session's cluster. A test removes its objects, or keeps them in a separate namespace."""
    named = os.environ.get("DAYFLY_TEST_KUBECONFIG")
    if named:
        yield DisposableCluster(Path(named), "busybox:stable", None)
        return
    request.getfixturevalue("machine")
    ours = os.pidfd_open(os.getpid())  # a killed session leaves no cluster behind
    try:
        own = clusters.up(owner=ours)
    except build.UnavailableError as problem:
        pytest.skip(str(problem))
    finally:
        os.close(ours)
    try:
        yield DisposableCluster(own.kubeconfig, images.SHELL, own)
    finally:
        clusters.down(own)


@pytest.fixture
def namespace(cluster: DisposableCluster) -> Iterator[str]:
    """A namespace for one test, ready for pods; it goes in the background."""
    name = cluster.kubectl("create", "-f", "-", "-o", "jsonpath={.metadata.name}", stdin=_NAMESPACE)
    cluster.kubectl("wait", "--for=create", "serviceaccount/default", "-n", name, "--timeout=30s")
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")


@pytest.fixture(scope="session")
def operator(cluster: DisposableCluster) -> Installed:
    """Dayfly, installed on the session's cluster; a cluster that is not ours cannot be brought its image."""
    if not cluster.own:
        pytest.skip("images can be brought to our own cluster only, and DAYFLY_TEST_KUBECONFIG names another")
    installed = Installed(cluster.own)
    cluster.kubectl("apply", "-f", "-", stdin=custom_controllers.definitions())
    for definitions in sorted((HERE.parents[1] / "examples" / "controllers").glob("*/definitions.yaml")):
        cluster.kubectl("apply", "-f", str(definitions))  # as early, and for the same reason
    installed.install()
    cluster.kubectl("create", "namespace", TEAM)
    grant = ["--clusterrole=dayfly-forks", f"--serviceaccount={ACCOUNT}"]
    cluster.kubectl("create", "rolebinding", "dayfly-forks", "-n", TEAM, *grant)
    return installed


@pytest.fixture
def journal(operator: Installed) -> Iterator[Journal]:
    """The log of a test's steps, checked at the end of the test."""
    journal = Journal(operator.own.network.host)
    try:
        yield journal
        journal.check()
    finally:
        journal.close()


@pytest.fixture
def wishes(request: pytest.FixtureRequest, operator: Installed, journal: Journal) -> Iterator[Wishes]:
    """A plugin and a sandbox with unique names. A sandbox that the test leaves is deleted with all its resources."""
    name = "-".join(re.findall("[a-z0-9]+", request.node.name.removeprefix("test_").lower()))
    if len(name) > MOST_LETTERS:  # two that begin alike must not meet: a plugin never changes
        name = f"{name[: MOST_LETTERS - 5].strip('-')}-{hashlib.sha256(name.encode()).hexdigest()[:4]}"
    wishes = Wishes(name, TEAM, journal)
    yield wishes
    journal.let_go()
    if operator.sandbox(wishes.name, wishes.namespace):
        operator.delete(wishes.name, wishes.namespace)
    operator.check_nothing_left()


_NAMESPACE = '{"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}'


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder. The creation of a cluster may take minutes and does not count as test time."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.slow)
            if item.path.name not in ALWAYS:
                item.add_marker(pytest.mark.long_story)
            if "operator" in item.fixturenames:
                item.add_marker(pytest.mark.builds("image"))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(300, func_only=True))


def _logs(operator: Installed) -> str:
    """Return the operators' logs. They may be gone at the last report, where an error would end the session."""
    try:
        return operator.logs()
    except (AssertionError, OSError, clusters.CommandError) as fault:
        return f"they cannot be read: {fault}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Record skipped tests, which fail in CI, and add the operators' logs to failed ones."""
    report = yield
    operator = getattr(item, "funcargs", {}).get("operator")
    if report.failed and isinstance(operator, Installed):
        report.sections.append(("the operators' logs", _logs(operator)))
    if report.skipped and item.get_closest_marker("cluster") and not hasattr(report, "wasxfail"):
        reason = str(call.excinfo.value) if call.excinfo else "skipped"
        report.user_properties.append((SKIPPED, reason))
        if os.environ.get("CI") == "true":
            report.outcome = "failed"
            report.longrepr = f"cluster tests may not be skipped in CI: {reason}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One loud line: a green session without its cluster tests has shown less than it seems. And what things took."""
    reports = [each for found in terminalreporter.stats.values() for each in found if hasattr(each, "user_properties")]
    noted = [(report, name, said) for report in reports for name, said in report.user_properties]
    for report, _, said in (each for each in noted if each[1] == TOOK and each[0].when == "call"):
        terminalreporter.write_line(f"{report.head_line}: {said}")
    if reasons := [said for _, name, said in noted if name == SKIPPED]:
        why = "; ".join(sorted(set(reasons)))
        terminalreporter.write_line(f"{len(reasons)} CLUSTER TESTS SKIPPED: {why}", red=True, bold=True)
