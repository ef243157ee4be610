"""Strategic merge: cases by hand, and dry runs of a real server."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from typing import Any

import pytest
from tests.selection import SELECTION

from dayfly.kube import auth, errors
from dayfly.kube.client import KubeClient, Limits
from dayfly.kube.forms import Style
from dayfly.kube.objects import untyped_resource
from dayfly.kube.strategic import POD_TEMPLATE, MergeError, merge, type_of
from dayfly.kube.transport import HttpTransport

TEMPLATES = untyped_resource("v1", "PodTemplate", "podtemplates")
MAX_REFUSED = 20  # patches of one seed that both may refuse


def template(**spec: Any) -> dict[str, Any]:
    return {"spec": spec}


class TestMerge:
    def test_containers_merge_by_name(self):
        """A container that the patch names keeps its place among the others."""
        base = template(containers=[{"name": "a", "image": "1"}, {"name": "b", "image": "2"}])
        patch = template(containers=[{"name": "b", "env": [{"name": "X", "value": "1"}]}])
        expected = [{"name": "a", "image": "1"}, {"name": "b", "image": "2", "env": [{"name": "X", "value": "1"}]}]
        assert expected == merge(base, patch, POD_TEMPLATE)["spec"]["containers"]

    def test_other_lists_are_replaced(self):
        """A list without a merge key, such as a command, is replaced."""
        base = template(containers=[{"name": "a", "command": ["x", "y"]}])
        patch = template(containers=[{"name": "a", "command": ["z"]}])
        assert merge(base, patch, POD_TEMPLATE)["spec"]["containers"][0]["command"] == ["z"]

    def test_null_deletes(self):
        """A null removes the key, and is not stored if there is none."""
        merged = merge(template(nodeName="n", hostname="h"), template(nodeName=None, subdomain=None), POD_TEMPLATE)
        assert merged["spec"] == {"hostname": "h"}

    def test_patch_delete(self):
        """`$patch: delete` removes an item of a keyed list."""
        base = template(containers=[{"name": "a"}, {"name": "b"}])
        patch = template(containers=[{"name": "a", "$patch": "delete"}])
        assert merge(base, patch, POD_TEMPLATE)["spec"]["containers"] == [{"name": "b"}]

    @pytest.mark.parametrize(
        ("patch", "place"),
        [
            ({"spec": {"containers": [{"name": {"a": 1}}]}}, "spec.containers[0].name"),
            ({"metadata": {"finalizers": ["b", {}]}}, "metadata.finalizers[1]"),
        ],
    )
    def test_merge_key_must_be_a_plain_value(self, patch, place):
        """The error has the place, as for other invalid patches."""
        base = {"metadata": {"finalizers": ["a"]}, "spec": {"containers": [{"name": "a"}]}}
        with pytest.raises(MergeError) as refused:
            merge(base, patch, POD_TEMPLATE)
        assert refused.value.path == place

    def test_patch_replace(self):
        """`$patch: replace` replaces a map or list."""
        base = template(containers=[{"name": "a"}], securityContext={"runAsUser": 1})
        patch = template(
            containers=[{"$patch": "replace"}, {"name": "c"}],
            securityContext={"$patch": "replace", "runAsGroup": 2},
        )
        merged = merge(base, patch, POD_TEMPLATE)["spec"]
        assert merged == {"containers": [{"name": "c"}], "securityContext": {"runAsGroup": 2}}

    def test_retain_keys(self):
        """`$retainKeys` removes keys that the patch does not list: a volume has one source."""
        base = template(volumes=[{"name": "v", "emptyDir": {}}])
        patch = template(volumes=[{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}])
        assert merge(base, patch, POD_TEMPLATE)["spec"]["volumes"] == [{"name": "v", "secret": {"secretName": "s"}}]

    def test_finalizers_are_a_set(self):
        """Plain values merge without duplicates, and can be removed by value."""
        base = {"metadata": {"finalizers": ["a", "b"]}}
        assert {"a", "b", "c"} == set(
            merge(base, {"metadata": {"finalizers": ["c", "a"]}}, POD_TEMPLATE)["metadata"]["finalizers"]
        )
        gone = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
        assert merge(base, gone, POD_TEMPLATE)["metadata"]["finalizers"] == ["b"]

    def test_merge_changes_neither_argument(self):
        """The result is a new object."""
        base, patch = template(containers=[{"name": "a"}]), template(containers=[{"name": "a", "image": "i"}])
        merge(base, patch, POD_TEMPLATE)["spec"]["containers"][0]["image"] = "x"
        assert template(containers=[{"name": "a"}]) == base
        assert template(containers=[{"name": "a", "image": "i"}]) == patch

    @pytest.mark.parametrize(
        ("patch", "path"),
        [
            (template(containers=[{"image": "i"}]), "spec.containers[0]"),
            (template(containers=["a"]), "spec.containers[0]"),
            (template(securityContext={"$patch": "mend"}), "spec.securityContext.$patch"),
            (template(**{"$setElementOrder/containers": []}), "spec.$setElementOrder/containers"),
            (template(**{"$retainKeys": "name"}), "spec.$retainKeys"),
            (template(**{"$retainKeys": [], "hostname": "h"}), "spec.hostname"),
            (
                {"metadata": {"$deleteFromPrimitiveList/finalizers": "a"}},
                "metadata.$deleteFromPrimitiveList/finalizers",
            ),
        ],
    )
    def test_senseless_patches_are_refused_with_their_place(self, patch, path):
        """Each error names the field."""
        base = template(containers=[{"name": "a"}], securityContext={"runAsUser": 1}) | {"metadata": {"finalizers": []}}
        with pytest.raises(MergeError) as refused:
            merge(base, patch, POD_TEMPLATE)
        assert path == refused.value.path

    def test_kinds(self):
        """Built-in kinds have their own keys, custom kinds have none."""
        assert type_of("apps/v1", "Deployment") == "io.k8s.api.apps.v1.Deployment"
        assert type_of("dayfly.dev/v1alpha1", "Sandbox") == ""
        ports = {"spec": {"ports": [{"port": 80, "name": "http"}]}}
        merged = merge(ports, {"spec": {"ports": [{"port": 81}]}}, type_of("v1", "Service"))
        assert merged["spec"]["ports"] == [{"port": 81}, {"port": 80, "name": "http"}]


def drawn(dice: random.Random, *, patch: bool) -> dict[str, Any]:
    """Return a random pod template, or a patch of one, over few names, so that they collide."""

    def some(make, least: int = 0) -> list[Any]:
        names = dice.sample(["a", "b", "c", "d"], dice.randint(least, 4))
        items = [make(name) for name in names]
        if patch and items and dice.random() < 0.1:
            items.insert(dice.randint(0, len(items)), {"$patch": "replace"})
        return items

    def maybe(item: dict[str, Any], key: str, make) -> None:
        roll = dice.random()
        if roll < 0.4:
            item[key] = make()
        elif patch and roll < 0.5:
            item[key] = None

    def gone(item: dict[str, Any]) -> bool:
        if patch and dice.random() < 0.15:
            item["$patch"] = "delete"
            return True
        return False

    def env(name: str) -> dict[str, Any]:
        item: dict[str, Any] = {"name": name}
        if not gone(item):
            item["value"] = str(dice.randint(0, 3))
        return item

    def mount(name: str) -> dict[str, Any]:
        item: dict[str, Any] = {"mountPath": f"/{name}"}
        if not gone(item):
            item["name"] = dice.choice("abcd")
            maybe(item, "readOnly", lambda: True)
        return item

    def container(name: str) -> dict[str, Any]:
        item: dict[str, Any] = {"name": name}
        if gone(item):
            return item
        if not patch or dice.random() < 0.5:
            item["image"] = f"image{dice.randint(0, 3)}"
        maybe(item, "command", lambda: [dice.choice("xyz") for _ in range(dice.randint(1, 3))])
        maybe(item, "env", lambda: some(env))
        maybe(item, "volumeMounts", lambda: some(mount))
        maybe(item, "resources", lambda: {"limits": {dice.choice(["cpu", "memory"]): str(dice.randint(1, 3))}})
        maybe(item, "securityContext", lambda: {dice.choice(["runAsUser", "runAsGroup"]): dice.randint(1, 3)})
        maybe(item, "ports", lambda: [{"containerPort": 80 + dice.randint(0, 2)}])
        return item

    def volume(name: str) -> dict[str, Any]:
        item: dict[str, Any] = {"name": name}
        if gone(item):
            return item
        source = dice.choice([{"emptyDir": {}}, {"secret": {"secretName": "s"}}, {"configMap": {"name": "m"}}])
        if patch:
            item["$retainKeys"] = ["name", *source]
        return item | source

    spec: dict[str, Any] = {"containers": some(container, least=0 if patch else 1)}
    if not patch:
        spec["volumes"] = [volume(name) for name in "abcd"]
    else:
        maybe(spec, "volumes", lambda: some(volume))
    maybe(spec, "imagePullSecrets", lambda: some(lambda name: {"name": name}))
    maybe(spec, "nodeSelector", lambda: {dice.choice("xy"): dice.choice("12")})
    maybe(spec, "tolerations", lambda: [{"key": dice.choice("xy"), "operator": "Exists"}])
    maybe(spec, "hostAliases", lambda: some(lambda name: {"ip": f"10.0.0.{ord(name)}", "hostnames": [name]}))
    maybe(spec, "securityContext", lambda: {dice.choice(["runAsUser", "fsGroup"]): dice.randint(1, 3)})
    if patch and isinstance(spec.get("securityContext"), dict) and dice.random() < 0.3:
        spec["securityContext"]["$patch"] = "replace"
    metadata: dict[str, Any] = {}
    maybe(metadata, "labels", lambda: {dice.choice("xy"): dice.choice("12")})
    maybe(metadata, "annotations", lambda: {dice.choice("xy"): dice.choice("12")})
    return {"metadata": metadata, "spec": spec}


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.timeout(300, func_only=True)
class TestAgainstRealServer:
    async def test_the_server_merges_the_same(self, kubeconfig: Path):
        """Random patches of random templates, 400 in the proof: our result equals that of the server."""
        client = KubeClient(HttpTransport(await auth.load(kubeconfig)), Limits(rate=5000, burst=5000))
        try:
            for seed in SELECTION.sample(range(400), 2, "templates"):
                dice = random.Random(seed)
                for _ in range(MAX_REFUSED):
                    if await self._agree(client, drawn(dice, patch=False), drawn(dice, patch=True), seed):
                        break
                else:
                    pytest.fail(f"each patch of seed {seed} was refused")
        finally:
            await client.close()

    async def _agree(self, client: KubeClient, base: dict[str, Any], patch: dict[str, Any], seed: int) -> bool:
        """Return whether the case was useful: it was not if both refused."""
        name = f"strategic-{seed}"
        with contextlib.suppress(errors.NotFound):
            await client.delete(TEMPLATES, name, "default")
        made = await client.create(TEMPLATES, {"metadata": {"name": name}, "template": base}, "default")
        try:
            ours: Any = merge(made["template"], patch, POD_TEMPLATE)
            body = {"metadata": {"name": f"{name}-ours"}, "template": ours}
            ours = (await client.create(TEMPLATES, body, "default", dry_run=True))["template"]
        except (errors.Invalid, MergeError):
            ours = None
        try:
            theirs: Any = (
                await client.patch(TEMPLATES, {"template": patch}, name, "default", style=Style.STRATEGIC, dry_run=True)
            )["template"]
        except errors.Refused:
            theirs = None
        finally:
            await client.delete(TEMPLATES, name, "default")
        assert theirs == ours, (seed, made["template"], patch)
        return ours is not None
