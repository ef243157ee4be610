"""Where outputs lie: one immutable Secret for each attempt, written before the ledger speaks of them."""

import hashlib
from collections.abc import Iterable
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import Printed
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import Client
from dayfly.kube.objects import SECRETS, Key
from dayfly.operator.cluster.objects import RunObject, owned, secret_of
from dayfly.plan.reasons import Reason
from dayfly.spec.log_times import Entry, entries_from, flatten
from dayfly.spec.run import Result

# Beside the outputs in their Secret: the end of the log. No output can have a name with a dot.
LOG_KEY = "log.tail"
# And when that was printed.
TIMES_KEY = "log.times"


def _encoded(times: Iterable[Entry]) -> bytes:
    return " ".join(map(str, flatten(times))).encode()


def times_of(times: bytes) -> tuple[Entry, ...]:
    """The entries that lie in a Secret; none if that is something else."""
    try:
        return entries_from([int(number) for number in times.split()])
    except ValueError:
        return ()


class ForeignSecretError(Exception):
    """The name of an attempt's Secret is taken by one that is not ours."""


class AttemptSecrets:
    """The Secrets of attempts."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def keep(
        self,
        run: RunObject,
        place: tuple[str, str, int],
        result: Result,
        values: dict[str, bytes],
        printed: Printed | None,
    ) -> None:
        """Write the outputs that `result` speaks of, and the end of the log; `place` is namespace, unit and attempt.

        Whoever comes second finds the first one's Secret and leaves it if it holds these outputs. One that does not was
        written without them, by a peer that never recorded it: had it been recorded, our own record comes too late.

        Raises:
            ForeignSecretError: the name is taken by somebody else's Secret.
            errors.ApiError: nothing may be recorded yet.
        """
        namespace, unit, attempt = place
        name = names.outputs_name(run.ledger.uid, unit, attempt)
        log = {LOG_KEY: printed.tail, TIMES_KEY: _encoded(printed.times)} if printed else {LOG_KEY: b""}
        body = outputs_secret(run, namespace, name, values | log)
        try:
            await self._client.create(SECRETS, body, namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            found = await self._client.find(SECRETS, name, namespace)
            if found is None:
                raise fault from None
            if matching(found.data or {}, result) is not None:
                return
            if not owned(found.metadata, run):
                raise ForeignSecretError(
                    f"Secret {namespace}/{name} exists and does not belong to Dayfly; delete it"
                ) from None
            await self._client.delete(SECRETS, name, namespace, uid=found.metadata.uid)
            await self._client.create(SECRETS, body, namespace)

    async def recall(self, run: RunObject, place: tuple[str, str, int], result: Result) -> dict[str, bytes] | None:
        """The outputs of a result as an earlier try has kept them; None unless each is there, byte for byte."""
        namespace, unit, attempt = place
        found = await self._client.find(SECRETS, names.outputs_name(run.ledger.uid, unit, attempt), namespace)
        return matching(found.data or {}, result) if found is not None else None

    async def read(self, run: RunObject, namespace: str, producer: str, output: str) -> bytes:
        """One output of a unit that has told it; `namespace` is where that unit's outputs lie.

        Raises:
            CannotRenderError: it is not there as it was recorded.
            errors.ApiError: the server cannot be asked.
        """
        told = run.ledger.unit(producer).outputs[output]
        only = Result(outcome="succeeded", outputs={output: told})
        found = await self.recall(run, (namespace, producer, told.attempt), only)
        if found is None:
            raise CannotRenderError(
                Reason.OUTPUTS_LOST, f"the Secret with the outputs of {producer} is gone or was altered"
            )
        return found[output]


def outputs_secret(run: RunObject, namespace: str, name: str, values: dict[str, bytes]) -> dict[str, Any]:
    """An immutable Secret of a run's outputs; it goes with the run."""
    return secret_of(run, Key(namespace, name), names.OUTPUTS_TYPE, values) | {"immutable": True}


def matching(values: dict[str, bytes], result: Result) -> dict[str, bytes] | None:
    """Those of the values that the result speaks of; None if one is missing or has other bytes."""
    for name, record in result.outputs.items():
        if "sha256:" + hashlib.sha256(values.get(name, b"")).hexdigest() != record.digest or name not in values:
            return None
    return {name: values[name] for name in result.outputs}
