"""Access of steps to their states: the address of the server, and a token in a Secret next to the pod."""

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.state import access
from dayfly.execute.state.head import DamagedError, Head, damaged_head
from dayfly.execute.state.service import StateOwner
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, Key, untyped_resource
from dayfly.operator.cluster.objects import RunObject, is_owned_by, owned_secret
from dayfly.operator.states import authority
from dayfly.operator.states.authority import Authority
from dayfly.operator.states.state_secrets import TYPE, StateSecrets
from dayfly.plan.sealed import SealedStep
from dayfly.spec.run import Phase

_SERVICES = untyped_resource("v1", "Service", "services")
_TOKEN = "token"  # noqa: S105 - the key's name


class NoStatesError(Exception):
    """States are not served in this cluster. The message contains the solution."""


class ForeignTokenError(Exception):
    """Another object has the name of an attempt's token Secret."""


class StateEnvironment(NamedTuple):
    """The environment of a step with a state: variables, and the key of the token's Secret."""

    variables: Mapping[str, str]
    token: PodSecretKey


class StateAccess:
    """Provides steps with the address of the state server and a token. `port` is that of the Service."""

    def __init__(self, client: KubeClient, namespace: str, port: int) -> None:
        self.client = client
        self.namespace = namespace
        self.port = port
        self._authority: Authority | None = None
        self._secrets = StateSecrets(client, namespace)

    async def authority(self) -> Authority:
        """Return what all replicas share.

        Raises:
            NoStatesError: it cannot be used.
            errors.ApiError: the API server failed or refused the request.
        """
        if self._authority is None:
            try:
                self._authority = await authority.load(self.client, self.namespace)
            except authority.BrokenAuthorityError as error:
                raise NoStatesError(str(error)) from None
        return self._authority

    def forget_authority(self) -> None:
        """Drop the cached authority, which is invalid, so that it is read again: it may have been repaired."""
        self._authority = None

    async def service_names(self) -> list[str]:
        """Return the names of the Service. Its IP address comes first, since it needs no DNS.

        Raises:
            NoStatesError: the Service is missing.
        """
        service = await self.client.find(_SERVICES, authority.NAME, self.namespace)
        if service is None:
            missing = f"Service {self.namespace}/{authority.NAME}, which serves states, is missing"
            raise NoStatesError(f"{missing}: kubectl apply --server-side -f deploy/install.yaml")
        address = service["spec"].get("clusterIP", "None")
        name = f"{authority.NAME}.{self.namespace}.svc"
        return [name] if address in ("", "None") else [address, name]

    async def environment_for(self, run: RunObject, step: SealedStep, number: int) -> StateEnvironment:
        """Return the environment of an attempt.

        Raises:
            NoStatesError: this cluster does not serve states.
            errors.ApiError: the API server failed.
        """
        known, (host, *_) = await self.authority(), await self.service_names()
        host = f"[{host}]" if ":" in host else host
        door = access.StateEndpoint(f"https://{host}:{self.port}", known.certificate.decode())
        variables = access.variables(door, _caller(run, step, number))
        return StateEnvironment(variables, PodSecretKey(_name(run, step.id, number), _TOKEN))

    async def grant(self, run: RunObject, step: SealedStep, number: int) -> None:
        """Create the token Secret of an attempt, before its pod exists.

        Raises:
            ForeignTokenError: another object has the name.
            errors.ApiError: the Secret was not created.
        """
        token = access.derive_password((await self.authority()).keys, _caller(run, step, number))
        namespace, name = names.namespace_of(step.unit), _name(run, step.id, number)
        try:
            await self.client.create(SECRETS, _secret(run, namespace, name, token), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await self.client.get(SECRETS, name, namespace)
            if not is_owned_by(found.metadata, run) or (found.type, found.data) != (TYPE, {_TOKEN: token.encode()}):
                raise ForeignTokenError(f"Secret {namespace}/{name} does not belong to Dayfly; delete it") from None

    async def revoke(self, run: RunObject, unit: str, number: int, namespace: str) -> None:
        """Delete the token of an ended attempt, which is invalid from then on."""
        name = _name(run, unit, number)
        found = await self.client.find(SECRETS.metadata_only(), name, namespace)
        if found is not None and is_owned_by(found.metadata, run):
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self.client.delete(SECRETS, name, namespace, uid=found.metadata.uid)

    async def head(self, run: str, resource: str, reader: tuple[str, int]) -> Head:
        """Return the head of a state; a damaged one counts as a refused write of the attempt `reader`.

        Raises:
            errors.ApiError: the API server failed.
        """
        try:
            return (await self._secrets.find(StateOwner(run, resource))).head
        except DamagedError as error:
            return damaged_head(error, reader)

    async def end_run(self, run: RunObject) -> None:
        """End the states of a run: they are deleted with it, unless the run was abandoned."""
        if run.ledger.phase is Phase.ABANDONED:
            await self._secrets.disown(run)


def _caller(run: RunObject, step: SealedStep, number: int) -> access.StateCaller:
    return access.state_caller(run.metadata.name, step.resource, step.id, number)


def _name(run: RunObject, unit: str, number: int) -> str:
    return names.derive_name("t", unit, "token", run.ledger.uid, unit, str(number))


def _secret(run: RunObject, namespace: str, name: str, token: str) -> dict[str, Any]:
    return owned_secret(run, Key(namespace, name), TYPE, {_TOKEN: token.encode()}) | {"immutable": True}
