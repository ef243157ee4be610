"""The nesting depth of a Sandbox that a real API server accepts, and that our client can read."""

import pytest

from dayfly.kube import answers
from dayfly.kube.answers import Page, decode
from dayfly.kube.transport import Answer, KubeRequest
from dayfly.operator.cluster.objects import SandboxObject

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120, func_only=True)]

PATH = "/apis/dayfly.dev/v1alpha1/namespaces/default/sandboxes"


def raw(api, method, path, body=None):
    """As `Api.ask`, which could not read this either."""
    answer = api.send(method, path, body, {"Content-Type": "application/json"})
    return answer.status, answer.read()


def test_deeply_nested_object_is_readable_by_the_client(served):
    nested = b"[" * 9_000 + b"]" * 9_000
    head = b'{"apiVersion":"dayfly.dev/v1alpha1","kind":"Sandbox","metadata":{"name":"deep"},'
    status, said = raw(served, "POST", PATH, head + b'"spec":{"cluster":"c","routing":{"x":' + nested + b"}}}")
    assert status == 201, said[:500]
    try:
        status, body = raw(served, "GET", PATH)
        assert status == 200
        request = KubeRequest("GET", PATH, {})
        every = {
            each.metadata.name: each for each in decode(Page[SandboxObject], Answer(status, body, {}), request).items
        }
        found = every["deep"]
        assert found.spec["cluster"] == "c"
        assert answers.is_truncated(found.spec["routing"])
    finally:
        assert raw(served, "DELETE", f"{PATH}/deep")[0] == 200
