"""Requests that carry a key reach the fork, with a real Envoy; all others reach the baseline, whatever comes and goes."""

import pytest
import pytest_asyncio

from dayfly.spec.routing import Forms
from embedded.machine import Machine
from embedded.routed import Routed, preview


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


async def test_a_preview_gives_its_key_and_an_endpoint_of_a_baseline_has_one_too(ways):
    await ways.declare("front")
    also = (preview("k1"), preview("k1", "other", "front"), preview("k1", "nowhere", "missing"))
    await ways.offer("u", "k1", also=also)
    await ways.machine.ready("u")
    where = {each.unit: each.port for each in ways.host.endpoints("u")}
    said = await ways.ask(("baggage", "a=b"), ("baggage", "sd-routing-key=k2"), port=where["preview:front"])
    assert said.who == "u"
    assert ",".join(said.all("baggage")) == "a=b,sd-routing-key=k2,sd-routing-key=k1,sd-sandbox=k1"
    assert said.all("tracestate") == ["sd-routing-key=k1,sd-sandbox=k1"]
    assert (await ways.ask(port=where["preview:other"])).who == "front"
    assert "preview:nowhere" not in where
    assert "the endpoint nowhere (no baseline default/missing with a port is declared)" in ways.machine.report().message
    await ways.machine.finish("u")
    with pytest.raises(OSError):
        await ways.ask(port=where["preview:front"])
