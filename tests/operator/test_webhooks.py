"""Webhooks in a cluster: sent by pods, with only what their plugin was granted."""

from __future__ import annotations

import json

import pytest
from tests.operator.rig.kubelet import Script
from tests.operator.rig.runner import order
from tests.operator.rig.scenes import gone, message, plugin, ready, wish
from tests.operator.rig.world import Unit, World, live

from dayfly.execute.webhook.exit_codes import ORDER, ExitCode, code_of_status

RUNNERS = "/api/v1/namespaces/dayfly-runners"
HEADERS = {"Authorization": {"$secret": {"name": "own", "key": "token"}, "prefix": "Bearer "}}
MAKE = {
    "name": "make",
    "outputs": [{"name": "id", "valueFromJSONPath": "$.id", "sensitive": True}],
    "webhook": {"method": "POST", "url": "https://dns.internal:8443/v1", "headers": HEADERS, "body": {"a": 1}},
}
DROP = {
    "name": "drop",
    "inputs": [{"name": "id", "valueFromStep": {"name": "make", "output": "id"}}],
    "webhook": {"method": "DELETE", "url": "https://dns.internal:8443/v1", "path": [{"$input": "id"}]},
}
UNITS = {
    "db/make": Unit(creates=True, once=True, undone_by="db/drop"),
    "db/drop": Unit(creates=False, reads={"DAYFLY_INPUT_ID": ("db/make", "id")}),
}
SCRIPTS = {"db/make": Script(outputs={"id": b"r-1-secret"}), "db/drop": Script()}


def play(story, made=None, scripts=None, units=None, image="dayfly.test/dayfly:1") -> World:
    def born() -> World:
        world = World(units or UNITS, {**SCRIPTS, **(scripts or {})})
        world.plugin("pg", made or plugin([MAKE], [DROP]))
        world.posted, world.sender = [], image

        def note(_number, call):
            if call.request.method == "POST" and call.request.path.endswith("/pods"):
                world.posted.append(json.loads(call.request.body))

        world.hook = note
        return world

    async def begin(world: World) -> None:
        world.start()
        await story(world)

    return live(born, begin)


def secret(world: World, grant: str = "cluster:pg") -> None:
    meta = {"name": "own", "annotations": {"dayfly.dev/plugins": grant}}
    world.ask("POST", f"{RUNNERS}/secrets", {"metadata": meta, "data": {"token": "dDBrZW4="}})


def told(pod) -> dict:
    """Return the order of the sender in that pod."""
    records = [value.partition(b"=") for key, value in order(pod) if key == "env"]
    return json.loads(next(text for name, _, text in records if name == ORDER.encode()))


def test_a_life_by_webhooks_in_pods_of_our_own_image():
    async def story(world: World) -> None:
        secret(world)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 60)
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    world = play(story)
    make, drop = world.posted
    [main] = make["spec"]["containers"]
    assert main["image"] == "dayfly.test/dayfly:1"
    words = [value.decode() for key, value in order(make) if key == "arg"]
    assert words[1:] == ["-P", "-m", "dayfly.execute.webhook.sender"]
    reference = {"secretKeyRef": {"name": "own", "key": "token"}}
    assert {"name": "OWN_TOKEN", "valueFrom": reference} in main["env"]
    assert told(make)["secrets"] == [["own", "token", "OWN_TOKEN"]]
    assert told(make)["allowed"] is True
    assert told(drop)["sensitive"] == ["DAYFLY_INPUT_ID"]
    assert make["spec"]["automountServiceAccountToken"] is False
    text = json.dumps([make, drop])
    assert "r-1-secret" not in text
    assert "t0ken" not in text


def test_a_secret_that_does_not_name_the_plugin_is_not_read():
    async def story(world: World) -> None:
        secret(world, "cluster:other")
        world.sandbox(wish())
        said = "Secret dayfly-runners/own does not name the plugin cluster:pg"
        await world.until(lambda: said in message(world), "the objection", 30)
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    assert play(story).posted == []


def test_a_tenants_own_webhook_reads_no_secret():
    async def story(world: World) -> None:
        world.sandbox({"resources": [{"name": "db", "spec": plugin([MAKE], [DROP])}]})
        await world.until(lambda: world.status().get("reason") == "Refused", "the refusal", 10)
        assert "reads Secret own: only a published plugin can be granted that" in world.status()["message"]
        world.delete()
        await gone(world)

    play(story)


@pytest.mark.parametrize(
    ("codes", "reason", "words"),
    [
        ((code_of_status(404),), "UnexpectedStatus", "the server responded 404"),
        ((ExitCode.ADDRESS_REFUSED,), "AddressRefused", "webhooks may not be sent to its address"),
        (
            (code_of_status(503),),
            "ResponseLost",
            "the server responded 503, and may have carried out the request",
        ),
        ((ExitCode.NOT_JSON,), "ResponseNotJSON", "the response is not JSON"),
    ],
)
def test_how_its_sender_ends_is_said(codes, reason, words):
    async def story(world: World) -> None:
        secret(world)
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "ResourceFailed", "its failure", 60)
        [unit] = [each for each in world.status()["units"] if each["id"] == "db/make"]
        assert (unit["reason"], unit["message"], unit["kind"]) == (reason, words, "webhook")
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    play(story, scripts={"db/make": Script(codes=codes, outputs=SCRIPTS["db/make"].outputs)})


def test_request_of_a_killed_sender_is_cleaned_up_after_its_time():
    made = plugin([{**MAKE, "timeouts": {"run": "4m"}}], [DROP])

    async def story(world: World) -> None:
        secret(world)
        began = world.cluster.time()
        world.sandbox(wish())
        await world.until(lambda: world.status().get("reason") == "OutcomeUnknown", "its doubt", 60)
        [unit] = [each for each in world.status()["units"] if each["id"] == "db/make"]
        assert "its sender was killed before the response (exit code 1); the request may still be" in unit["message"]
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 600)
        assert world.cluster.time() - began >= 240
        assert world.cloud.starts("db/drop")
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    play(story, made, {"db/make": Script(codes=(1,), outputs=SCRIPTS["db/make"].outputs)})


def test_lost_answer_is_retried_with_the_same_key():
    made = plugin([{**MAKE, "retry": {"idempotent": True}}], [DROP])
    units = {**UNITS, "db/make": Unit(creates=True, undone_by="db/drop")}

    async def story(world: World) -> None:
        secret(world)
        world.sandbox(wish())
        await world.until(lambda: ready(world), "ready", 120)
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    lossy = Script(codes=(ExitCode.ANSWER_LOST, code_of_status(500), 0), outputs={"id": b"r-1"})
    keys = [told(pod)["key"] for pod in play(story, made, {"db/make": lossy}, units).posted]
    assert len(keys) == 4
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]


def test_without_an_image_of_ours_it_says_how_to_name_one():
    async def story(world: World) -> None:
        secret(world)
        world.sandbox(wish())
        await world.until(
            lambda: "start the operator with --webhook-image IMAGE" in message(world), "the objection", 30
        )
        world.delete()
        await world.until(lambda: not world.cluster.objects("sandboxes"), "its end", 300)
        world.ask("DELETE", f"{RUNNERS}/secrets/own")
        await gone(world)

    assert play(story, image="").posted == []
