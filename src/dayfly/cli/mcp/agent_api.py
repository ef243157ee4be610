"""The REST API for the key of one agent, and the sessions in which agents work."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, NamedTuple

from dayfly.client.errors import DayflyError, DeniedError, Exit, NotFoundError, RefusedError
from dayfly.client.json_client import JsonClient
from dayfly.client.loop_io import LoopIo
from dayfly.client.retry import RetryPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from dayfly.client.address import Address

# A call of a tool must end before its client gives up, so requests are not retried for long.
TIMEOUT_S, RETRY_S = 10.0, 3.0
# A lost renewal is repeated twice before the lease ends.
RENEWALS_PER_LEASE = 3
PRECONDITION_FAILED = 412
KEY_ADVICE = "create one with: dayfly key create NAME --role agent --owner OWNER --plugin PLUGIN --budget HOURS"

log = logging.getLogger(__name__)


class SessionApi:
    """The REST API for one key of an agent or of its session.

    Attributes:
        prefix: The start of the names of its sandboxes.
        session: The name of the session; empty without one.
        limits: The limits of the key, as in the REST API.
    """

    def __init__(self, client: JsonClient, user: Mapping[str, Any]) -> None:
        self._client = client
        self.prefix: str = user["agent"]["prefix"]
        self.session: str = user["agent"].get("session", "")
        self.limits: dict[str, Any] = user["agent"]["limits"]

    @classmethod
    async def open(cls, address: Address) -> SessionApi:
        """Return the API for the key in an address. The server knows the organisation of the key.

        Raises:
            DayflyError: the key is not for agents, or the server cannot be used.
        """
        client = _connect(address)
        with contextlib.ExitStack() as opened:
            opened.callback(client.close)
            found = await client.request("GET", "/api/v2/orgs")
            if "agent" not in found["user"]:
                raise DayflyError(Exit.DENIED, "dayfly mcp needs a key with the role agent", KEY_ADVICE)
            opened.pop_all()
        client.set_address(address._replace(org=found["orgs"][0]["name"]))
        return cls(client, found["user"])

    @property
    def address(self) -> Address:
        """The address of the server, with the key and its organisation."""
        return self._client.address

    async def request(self, method: str, *path: str, body: Any = None, longer: float = 0, **query: object) -> Any:
        """Send a request below the organisation and return the JSON of the answer."""
        return await self._client.request(method, self._client.org_path(*path), query, body, longer=longer)

    async def create_sandbox(self, name: str, spec: Mapping[str, Any]) -> tuple[Any, bool]:
        """Create a sandbox. Return it, and whether it exists already; then nothing is changed."""
        path = self._client.org_path("sandboxes", name)
        only_new = {"If-None-Match": "*"}
        while True:
            try:
                return await self._client.request("PUT", path, body={"spec": spec}, headers=only_new), False
            except RefusedError as refusal:
                if refusal.status != PRECONDITION_FAILED:
                    raise
            with contextlib.suppress(NotFoundError):  # its deletion has just ended
                return await self._client.request("GET", path), True

    async def usage(self) -> dict[str, Any]:
        """Return the limits of the key and the part that is used."""
        found: dict[str, Any] = (await self._client.request("GET", "/api/v2/orgs"))["user"]["agent"]
        return found

    def full_name(self, name: str) -> str:
        """Return the name of a sandbox with the prefix, which the agent may leave out."""
        return name if name.startswith(self.prefix) else self.prefix + name

    def close(self) -> None:
        """Close its connections."""
        self._client.close()


class _Session(NamedTuple):
    api: SessionApi
    renewing: asyncio.Task[None]


class ServedSession:
    """The session of an agent that this process serves: started by the first call, renewed, and ended at the end.

    Args:
        address: The server, with the key of the agent or of a session.
        lease_s: Seconds after which the sandboxes are deleted if this process is killed.
    """

    def __init__(self, address: Address, lease_s: int) -> None:
        self._address = address
        self._lease_s = lease_s
        self._current: _Session | None = None
        self._starting = asyncio.Lock()
        self._is_closed = False
        self.is_used = False
        """Whether a call has started a session."""

    async def check(self) -> None:
        """Check that a session can be started, without starting one.

        Raises:
            DayflyError: the key is not for agents, or the server cannot be used.
        """
        (await SessionApi.open(self._address)).close()

    @contextlib.asynccontextmanager
    async def use(self, _headers: Mapping[str, str] | None) -> AsyncIterator[SessionApi]:
        """Lend the API of the session.

        Raises:
            DayflyError: there is no session, or it has ended.
        """
        async with self._starting:
            if self._is_closed:
                raise DayflyError(Exit.FAILED, "dayfly mcp is ending, so nothing was changed")
            if self._current is None:
                self._current = await self._start()
        session = self._current
        try:
            yield session.api
        except DeniedError as fault:
            if fault.status != 401:  # the key is not valid
                raise
            await self._forget(session)
            message = "the session of this agent has ended, and its sandboxes are deleted"
            raise DayflyError(Exit.DENIED, message, "create them again; this starts another session") from fault

    async def close(self) -> None:
        """End the session, which deletes all its sandboxes. No other session is started after it."""
        self._is_closed = True
        async with self._starting:  # a session that is being started must be ended, too
            if (session := self._current) is not None:
                api = session.api
                with contextlib.suppress(DayflyError):
                    if api.address.key != self._address.key:
                        await api.request("DELETE", "sessions", api.session)
                await self._forget(session)

    async def _start(self) -> _Session:
        api = await SessionApi.open(self._address)
        if not api.session:
            try:
                started = await api.request("POST", "sessions", body={"lease": {"seconds": self._lease_s}})
            finally:
                api.close()
            api = await SessionApi.open(self._address._replace(key=started["key"]))
        self.is_used = True
        return _Session(api, asyncio.create_task(self._renew(api), name="renewal of the session"))

    async def _renew(self, api: SessionApi) -> None:
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            try:
                await api.request("PUT", "sessions", api.session, "lease", body={"seconds": self._lease_s})
            except DayflyError as fault:
                log.warning("the session cannot be renewed: %s", fault)

    async def _forget(self, session: _Session) -> None:
        session.renewing.cancel()
        session.api.close()
        if self._current is session:
            self._current = None


class CallerKeys:
    """The API for the key in the headers of each request. This process has no key and no session.

    Args:
        address: The server. Its key is not used.
    """

    def __init__(self, address: Address) -> None:
        self._address = address

    async def check(self) -> None:
        """Check that the server answers, which needs no key.

        Raises:
            DayflyError: it cannot be used.
        """
        with contextlib.closing(_connect(self._address)) as client:
            await client.request("GET", "/api/v2/meta/health")

    @contextlib.asynccontextmanager
    async def use(self, headers: Mapping[str, str] | None) -> AsyncIterator[SessionApi]:
        """Lend the API for the key of the caller.

        Raises:
            DayflyError: the request has no key, or the key is not for agents.
        """
        scheme, _, key = (headers or {}).get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not key.strip():
            raise DayflyError(Exit.DENIED, "the request has no key", "send it as Authorization: Bearer KEY")
        api = await SessionApi.open(self._address._replace(key=key.strip()))
        try:
            yield api
        finally:
            api.close()

    async def close(self) -> None:
        """Do nothing."""


def _connect(address: Address) -> JsonClient:
    return JsonClient(lambda: address, LoopIo(None), timeout=TIMEOUT_S, retries=RetryPolicy(RETRY_S))
