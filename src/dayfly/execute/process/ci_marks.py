"""The variables by which CI runners find and kill the processes of a job, and environments without them."""

from collections.abc import Mapping

CI_MARKS = frozenset(
    {
        "RUNNER_TRACKING_ID",  # GitHub Actions, and runners derived from it
        "VSTS_PROCESS_LOOKUP_ID",  # Azure Pipelines
        "JENKINS_NODE_COOKIE",  # Jenkins: Pipeline jobs
        "JENKINS_SERVER_COOKIE",  # Jenkins: other jobs
        "HUDSON_SERVER_COOKIE",
        "HUDSON_COOKIE",
        "BUILD_ID",  # Jenkins: other jobs, in older versions only by this one
    }
)


def without_ci_marks(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a process that must outlive the CI job that started it.

    The process must be started with it, because `/proc` shows the environment at the start of a process.
    """
    return {name: value for name, value in environment.items() if name not in CI_MARKS}
