"""Baselines for the forks of stories on a real server: a Deployment and a Service for each."""

from __future__ import annotations

from typing import Any

from tests.operator.proxied.recorder import Object, Record
from tests.operator.rig.scenes import fork

from dayfly.execute.fork.run import DEPLOYMENTS, SERVICES
from dayfly.kube.client import KubeClient

_DEPLOYMENTS, _SERVICES = (each.read_as(dict[str, Any]) for each in (DEPLOYMENTS, SERVICES))


class Baseline:
    """A baseline with the name of its plan, without pods."""

    def __init__(self, client: KubeClient, plan: str, namespace: str) -> None:
        self.name = f"base-{plan}"
        self._client, self._namespace = client, namespace

    async def make(self) -> None:
        """Create the baseline."""
        labels = {"app": self.name}
        container = {"name": "main", "image": "web:1", "ports": [{"name": "http", "containerPort": 8080}]}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        await self._client.create(_DEPLOYMENTS, {"metadata": {"name": self.name}, "spec": spec}, self._namespace)
        service = {"selector": labels, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}
        await self._client.create(_SERVICES, {"metadata": {"name": self.name}, "spec": service}, self._namespace)

    async def edit(self) -> None:
        """Change the arguments of its containers and the port of its Service."""
        edits = [{"name": "main", "image": "web:1", "args": ["new"]}]
        template = {"spec": {"template": {"spec": {"containers": edits}}}}
        await self._client.patch(_DEPLOYMENTS, template, self.name, self._namespace)
        ports = {"spec": {"ports": [{"name": "http", "port": 90, "targetPort": 8080}]}}
        await self._client.patch(_SERVICES, ports, self.name, self._namespace)

    async def forsake(self) -> None:
        """Delete the baseline."""
        await self._client.delete(DEPLOYMENTS, self.name, self._namespace)
        await self._client.delete(SERVICES, self.name, self._namespace)

    def wish(self, **customizations: Object) -> list[Object]:
        """Return a fork of it that reads an output."""
        return [fork(self.name, **customizations)]

    def touched(self, changes: list[str]) -> list[str]:
        """Return the operators' changes of it."""
        return [f"a baseline is changed: {each}" for each in changes if f"/{self.name}" in each]

    @staticmethod
    def follows(record: Record, image: str, args: list[str] | None, port: int) -> bool:
        """Return whether the fork has that image, these arguments and that port."""
        found, service = record.one("deployments"), record.one("services")
        if not found or not service:
            return False
        main = found["spec"]["template"]["spec"]["containers"][0]
        return (main["image"], main.get("args"), service["spec"]["ports"][0]["port"]) == (image, args, port)
