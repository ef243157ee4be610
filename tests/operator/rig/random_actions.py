"""Random actions of users on forks and baselines: changed specs, and deleted or modified objects."""

from __future__ import annotations

import random

from tests.operator.rig.cloud import Object
from tests.operator.rig.scenes import READY, fork, wish
from tests.operator.rig.world import World

MERGE = "application/merge-patch+json"


class RandomActions:
    """The users of a sandbox `box` with forks, and the owners of its baselines `web` and `api`."""

    def __init__(self, world: World, dice: random.Random) -> None:
        self._world, self._dice = world, dice
        self._edits = 0
        self._acts = (
            self.wish_another_image, self.wish_another_image, self.wish_another_image, self.wish_none, self.edit_baseline, self.edit_baseline,
            self.edit_service, self.delete_deployment, self.delete_pod, self.delete_service, self.scale_down,
            self.forsake,
        )  # fmt: skip
        self.wished: list[Object] = self._forks()
        self.there = {"web": True, "api": True}
        for name in self.there:
            world.forks.baseline(name)

    def _forks(self) -> list[Object]:
        """Return one or two forks; the second one reads the address of the first one."""
        image = [{"image": f"web:{self._edits}"}]
        found = [fork(images=image)]
        if self._dice.random() < 0.5:
            source = {"fork": {"forkOf": found[0]["forkOf"], "expression": "{{ .Service.Host }}:{{ .Service.Port }}"}}
            env = [*fork()["customizations"]["env"], {"name": "WEB", "valueFrom": source}]
            found.append(fork("api", images=image, env=env))
        return found

    def act(self) -> None:
        """Perform one random action."""
        self._dice.choice(self._acts)()

    def calm(self) -> None:
        """Restore everything that forks need, and set one or two forks, perhaps other ones than before."""
        for name in [name for name, there in self.there.items() if not there]:
            self._world.forks.baseline(name)
            self.there[name] = True
        if not self.wished or self._dice.random() < 0.5:
            self.wish_another_image()

    def settled(self) -> bool:
        """Return whether the sandbox has its forks, or one of its resources has failed permanently."""
        return self._world.status().get("reason") in (READY, "ResourceFailed")

    def differs(self) -> list[str]:
        """Return how the forks of a ready sandbox differ from their spec."""
        found = {each["metadata"]["name"]: each for each in self._world.forks.all()}
        services = {each["metadata"]["name"]: each for each in self._world.forks.all("services")}
        wrong = []
        if len(found) != len(self.wished):
            wrong.append(f"wished for are {len(self.wished)} forks, there are {sorted(found)}")
        if services.keys() != found.keys():
            wrong.append(f"forks {sorted(found)}, Services {sorted(services)}")
        for each in self.wished:
            of = each["forkOf"]["name"]
            baseline, service = (self._world.forks.of(of, plural) for plural in ("deployments", "services"))
            for name in [name for name in found if f"-{of}-" in name]:
                main = found[name]["spec"]["template"]["spec"]["containers"][0]
                wanted = each["customizations"]["images"][0]["image"]
                args = baseline["spec"]["template"]["spec"]["containers"][0].get("args")
                if (main["image"], main.get("args")) != (wanted, args):
                    wrong.append(f"{name} runs {main['image']} {main.get('args')}, wanted are {wanted} {args}")
                ports = [
                    [port["port"] for port in one["spec"]["ports"]] for one in (services.get(name, service), service)
                ]
                if ports[0] != ports[1]:
                    wrong.append(f"{name} answers at {ports[0]}, its baseline at {ports[1]}")
        return wrong

    # --- single actions ----------------------------------------------------------------------------------------------

    def _wish(self, forks: list[Object]) -> None:
        self.wished = forks
        if "deletionTimestamp" not in (self._world.box() or {"metadata": {"deletionTimestamp": ""}})["metadata"]:
            self._world.change({"spec": wish(forks=forks)})

    def wish_another_image(self) -> None:
        self._edits += 1
        self._wish(self._forks())

    def wish_none(self) -> None:
        self._wish([])

    def edit_baseline(self) -> None:
        self._edits += 1
        if self.there["web"]:
            container = {"name": "main", "args": [str(self._edits)]}
            self._world.forks.edit({"spec": {"template": {"spec": {"containers": [container]}}}})

    def edit_service(self) -> None:
        self._edits += 1
        if self.there["web"]:
            self._world.forks.reports([1000 + self._edits])

    def forsake(self) -> None:
        name = self._dice.choice(list(self.there))
        if self.there[name]:
            self._world.forks.forsake(name)
        else:
            self._world.forks.baseline(name)
        self.there[name] = not self.there[name]

    def _any(self, plural: str) -> str:
        found = [each["metadata"]["name"] for each in self._world.forks.all(plural)]
        return self._dice.choice(found) if found else ""

    def delete_deployment(self) -> None:
        if name := self._any("deployments"):
            self._world.forks.delete(name)

    def delete_pod(self) -> None:
        if name := self._any("pods"):
            self._world.ask("DELETE", f"/api/v1/namespaces/shop/pods/{name}")

    def delete_service(self) -> None:
        if name := self._any("services"):
            self._world.ask("DELETE", f"/api/v1/namespaces/shop/services/{name}")

    def scale_down(self) -> None:
        if name := self._any("deployments"):
            path = f"/apis/apps/v1/namespaces/shop/deployments/{name}"
            self._world.ask("PATCH", path, {"spec": {"replicas": 0}}, MERGE)
