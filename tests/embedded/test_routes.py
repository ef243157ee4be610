"""Requests that carry a key reach the fork, with a real Envoy; all others reach the baseline, whatever comes and goes."""

import pytest
import pytest_asyncio

from dayfly.spec.routing import Forms
from embedded.machine import Machine
from embedded.routed import Routed


@pytest_asyncio.fixture
async def ways(tmp_path, runner):
    found = Routed(Machine(tmp_path, runner))
    await found.up(forms=Forms(("x-team-key",), "sd-key"))
    yield found
    await found.machine.end()
    found.close()


@pytest.mark.parametrize(
    "header",
    [
        ("baggage", "a=b, sd-routing-key = k1 ;p=1"),
        ("tracestate", "v=1,sd-sandbox=k1"),
        ("ot-baggage-sd-workspace", "k1"),
    ],
)
async def test_a_key_leads_to_the_fork_and_no_other_does(ways, header):
    await ways.offer("u", "k1")
    await ways.machine.ready("u")
    assert await ways.who(header) == "u"
    assert await ways.who((header[0], header[1].replace("k1", "k2"))) == "app"
    await ways.machine.finish("u")
    assert await ways.who(header) == "app"
