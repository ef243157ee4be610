"""A state store in memory. Each access is a step of a schedule and may lose its response."""

import asyncio
import base64
import itertools
import random

import msgspec

from dayfly.execute.state import access
from dayfly.execute.state.head import Head
from dayfly.execute.state.service import StateOwner, StateService, StoredHead, UncertainError
from dayfly.spec.lifecycle import Target
from dayfly.spec.run import Run, State, UnitRecord

KEYS = access.StateKeys.derive(b"k" * access.KEY_BYTES)
RUN = Run(uid="u", target=Target(kind="Sandbox", namespace="team", name="box", uid="u"), plan="")
PLACE = StateOwner("u", "stack")


def running(**units: tuple[int, State]) -> Run:
    """Return a ledger with attempt and state of units."""
    records = {f"stack/{name}": UnitRecord(attempt=number, state=state) for name, (number, state) in units.items()}
    return msgspec.structs.replace(RUN, units=records)


class Memory:
    """`turn` is awaited before each access.

    `loses` is the effect of a swap whose response is lost: done, not done, or done later. None: no response is lost.
    """

    def __init__(self, run: Run | None = None) -> None:
        self.run = run
        self.heads: dict[StateOwner, StoredHead] = {}
        self.blobs: dict[str, list[bytes]] = {}
        self.turn = _at_once
        self.loses = lambda: None
        self.coming = []
        self._tags = itertools.count(1)

    async def find(self, place):
        await self.turn()
        return self.heads.get(place, StoredHead(Head()))

    async def read_ledger(self, run):
        await self.turn()
        return self.run if run == "u" else None

    async def swap(self, place, before, after):
        await self.turn()
        lost = self.loses()
        if lost in (None, "done") and not self._put(place, before, after):
            return False
        if lost == "later":
            self.coming.append((place, before, after))
        if lost is not None:
            raise UncertainError
        return True

    def arrive(self):
        """Apply the writes whose responses were lost."""
        for each in self.coming:
            self._put(*each)
        self.coming = []

    def _put(self, place, before, after):
        if self.heads.get(place, StoredHead(Head())).tag != before.tag or self.run is None:
            return False
        self.heads[place] = StoredHead(after, str(next(self._tags)))
        return True

    async def write_chunks(self, place, run, blob, chunks):
        await self.turn()
        self.blobs[blob] = chunks

    async def read_chunks(self, place, version):
        await self.turn()
        return self.blobs.get(version.blob, [])

    async def delete_chunks(self, place, blob, count):
        await self.turn()
        self.blobs.pop(blob, None)


class Client:
    """An attempt of the step `name`, which sends requests like Terraform. `ask` returns status and body."""

    def __init__(self, store: Memory, name: str = "apply", attempt: int = 1, keys=KEYS, run="u") -> None:
        self.who = access.state_caller(run, "stack", f"stack/{name}", attempt)
        self.service = StateService(keys, store, lambda: 0)
        told = access.variables(access.StateEndpoint("http://x"), self.who)
        self.path = told["TF_HTTP_ADDRESS"].removeprefix("http://x")
        self.name, self.password = told["TF_HTTP_USERNAME"], access.derive_password(keys, self.who)

    @property
    def authorization(self):
        return "Basic " + base64.b64encode(f"{self.name}:{self.password}".encode()).decode()

    async def ask(self, method, body=b"", lock="", *, path=None, name=None, password=None):
        given = f"{name or self.name}:{self.password if password is None else password}".encode()
        who = self.service.identify(path or self.path, "Basic " + base64.b64encode(given).decode())
        answer = await self.service.admit(who, method) or await self.service.handle(who, method, lock, body)
        return answer.status, answer.body

    async def lock(self, name):
        return await self.ask("LOCK", msgspec.json.encode({"ID": name, "Who": "me@there", "Operation": "apply"}))

    async def unlock(self, name):
        return await self.ask("UNLOCK", msgspec.json.encode({"ID": name}))

    async def read(self):
        """Return the state, or None. Retry after 503, as Terraform does."""
        status, body = 503, b""
        for _ in range(30):
            if status == 503:
                status, body = await self.ask("GET")
        return body if status == 200 else None

    async def write(self, state, lock):
        return (await self.ask("POST", state, lock))[0]


class Schedule:
    """Continues one waiting task at a time, chosen by `chance`."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._waiting: list[asyncio.Future[None]] = []

    async def turn(self):
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    async def play(self, *stories):
        """Run all tasks to their end."""
        tasks = [asyncio.ensure_future(story) for story in stories]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if self._waiting:
                self._waiting.pop(self._chance.randrange(len(self._waiting))).set_result(None)
        return [task.result() for task in tasks]


async def _at_once():
    pass
