"""How a step in a cluster gets to its state: the address, and a token in a Secret that lies beside its pod."""

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

from dayfly.execute.pod import names
from dayfly.execute.pod.render import PodSecretKey
from dayfly.execute.state import access
from dayfly.execute.state.head import DamagedError, Head, damaged
from dayfly.execute.state.service import StateOwner
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import SECRETS, Key, anything
from dayfly.operator.cluster.objects import RunObject, owned, secret_of
from dayfly.operator.states import authority
from dayfly.operator.states.authority import Authority
from dayfly.operator.states.state_secrets import TYPE, StateSecrets
from dayfly.plan.sealed import SealedStep
from dayfly.spec.run import Phase

_SERVICES = anything("v1", "Service", "services")
_TOKEN = "token"  # noqa: S105 - the key's name


class NoStatesError(Exception):
    """States are not served in this cluster; the text says what is to be done."""


class ForeignTokenError(Exception):
    """The name of an attempt's token is taken."""


class Given(NamedTuple):
    """What a step with a state has in its environment: constants, and where the password lies."""

    variables: Mapping[str, str]
    token: PodSecretKey


class StateAccess:
    """Says where states are served, and hands out what opens them. `port` is that of the Service."""

    def __init__(self, client: Client, namespace: str, port: int) -> None:
        self.client = client
        self.namespace = namespace
        self.port = port
        self._authority: Authority | None = None
        self._secrets = StateSecrets(client, namespace)

    async def authority(self) -> Authority:
        """What all replicas share.

        Raises:
            NoStatesError: it cannot be used.
            errors.ApiError: the server cannot be asked, or does not let us.
        """
        if self._authority is None:
            try:
                self._authority = await authority.load(self.client, self.namespace)
            except authority.BrokenAuthorityError as error:
                raise NoStatesError(str(error)) from None
        return self._authority

    def forget(self) -> None:
        """What was read of the authority cannot be used: it is read anew, for somebody may have put it right."""
        self._authority = None

    async def names(self) -> list[str]:
        """By what the Service is reached: its address first, if it has one, which needs no name service.

        Raises:
            NoStatesError: there is none.
        """
        service = await self.client.find(_SERVICES, authority.NAME, self.namespace)
        if service is None:
            missing = f"Service {self.namespace}/{authority.NAME}, which serves states, is missing"
            raise NoStatesError(f"{missing}: kubectl apply --server-side -f deploy/install.yaml")
        address = service["spec"].get("clusterIP", "None")
        name = f"{authority.NAME}.{self.namespace}.svc"
        return [name] if address in ("", "None") else [address, name]

    async def given(self, run: RunObject, step: SealedStep, number: int) -> Given:
        """What an attempt of a step is to have in its environment.

        Raises:
            NoStatesError: states are not served here.
            errors.ApiError: the server cannot be asked.
        """
        known, (host, *_) = await self.authority(), await self.names()
        host = f"[{host}]" if ":" in host else host
        door = access.StateEndpoint(f"https://{host}:{self.port}", known.certificate.decode())
        variables = access.variables(door, _caller(run, step, number))
        return Given(variables, PodSecretKey(_name(run, step.id, number), _TOKEN))

    async def grant(self, run: RunObject, step: SealedStep, number: int) -> None:
        """Write the token of an attempt beside its pod, before there is one.

        Raises:
            ForeignTokenError: the name is taken by what is not ours.
            errors.ApiError: it is not there.
        """
        token = access.derive_password((await self.authority()).keys, _caller(run, step, number))
        namespace, name = names.namespace_of(step.unit), _name(run, step.id, number)
        try:
            await self.client.create(SECRETS, _secret(run, namespace, name, token), namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown):
            found = await self.client.get(SECRETS, name, namespace)
            if not owned(found.metadata, run) or (found.type, found.data) != (TYPE, {_TOKEN: token.encode()}):
                raise ForeignTokenError(f"Secret {namespace}/{name} is not Dayfly's; delete it") from None

    async def revoke(self, run: RunObject, unit: str, number: int, namespace: str) -> None:
        """An attempt has ended, and its token is worth nothing any more: take it away."""
        name = _name(run, unit, number)
        found = await self.client.find(SECRETS.metadata_only(), name, namespace)
        if found is not None and owned(found.metadata, run):
            with contextlib.suppress(errors.NotFound, errors.Conflict):
                await self.client.delete(SECRETS, name, namespace, uid=found.metadata.uid)

    async def head(self, run: str, resource: str, reader: tuple[str, int]) -> Head:
        """Return the head of a state; a damaged one counts as a refused write of the attempt `reader`.

        Raises:
            errors.ApiError: the server cannot be asked.
        """
        try:
            return (await self._secrets.find(StateOwner(run, resource))).head
        except DamagedError as error:
            return damaged(error, reader)

    async def clear(self, run: RunObject) -> None:
        """The run is over. What is kept goes with it, unless its cleanup was given up."""
        if run.ledger.phase is Phase.ABANDONED:
            await self._secrets.let_stay(run)


def _caller(run: RunObject, step: SealedStep, number: int) -> access.StateCaller:
    return access.state_caller(run.metadata.name, step.resource, step.id, number)


def _name(run: RunObject, unit: str, number: int) -> str:
    return names.derive_name("t", unit, "token", run.ledger.uid, unit, str(number))


def _secret(run: RunObject, namespace: str, name: str, token: str) -> dict[str, Any]:
    return secret_of(run, Key(namespace, name), TYPE, {_TOKEN: token.encode()}) | {"immutable": True}
