"""Objects that steps make, on a whole cluster: by the rights of their namespace's account, and with real controllers."""

from testcluster import images
from tests.cluster import rights
from tests.cluster.installed import API
from tests.cluster.test_examples import TEAM, outputs, wishes_of

JOBS = f"/apis/batch/v1/namespaces/{TEAM}/jobs"


def unit(status, name):
    return next((each for each in status.get("units", ()) if each["id"] == name), {})


def test_job_is_granted_by_the_printed_line_and_read(operator):
    """Example object-job: no permissions are granted at first."""
    operator.apply(*wishes_of("object-job", image=images.SHELL))
    lacking = operator.wait_status(
        "parts-demo", TEAM, lambda status: unit(status, "work/work").get("reason") == "ObjectsNotGranted", "the lack"
    )
    assert operator.items(JOBS) == []
    line = unit(lacking, "work/work")["message"].rpartition("can run: ")[2]
    rights.type_line(operator, line)
    operator.wait_ready("parts-demo", TEAM)
    [job] = operator.items(JOBS)
    [run] = operator.items(f"/apis/{API}/runs")
    assert run["ledger"]["units"]["work/work"]["ref"] == job["metadata"]["uid"]
    assert job["spec"]["completions"] == 3
    found = outputs(operator, "parts-demo")
    assert found["work.succeeded"] == b"3"
    assert found["work.finished"].decode() == job["status"]["completionTime"]
    # Its own account has no right to any Job, so whatever was done to this one was done by the other.
    mine = "--as=system:serviceaccount:dayfly-system:dayfly-operator"
    for verb in ("get", "create", "patch", "delete"):
        assert "no" in operator.refused("auth", "can-i", verb, "jobs.batch", "-n", TEAM, mine)
    managers = {(each["manager"], each["operation"]) for each in job["metadata"].get("managedFields", ())}
    assert ("dayfly", "Update") in managers or not managers
    operator.delete("parts-demo", TEAM)
    assert operator.items(JOBS) == []
    operator.check_nothing_left()
    rights.take_back(operator, TEAM, "jobs.batch")
