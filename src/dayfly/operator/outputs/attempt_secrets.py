"""One immutable Secret for each attempt, with its outputs. It is written before the ledger records the attempt."""

import hashlib
from collections.abc import Iterable
from typing import Any

from dayfly.execute.pod import names
from dayfly.execute.pod.logs import PrintedOutput
from dayfly.execute.work_order import CannotRenderError
from dayfly.kube import errors
from dayfly.kube.client import KubeClient
from dayfly.kube.objects import SECRETS, Key
from dayfly.operator.cluster.objects import RunObject, is_owned_by, owned_secret
from dayfly.plan import messages
from dayfly.plan.reasons import Reason
from dayfly.spec.log_times import TimeEntry, entries_from, flatten
from dayfly.spec.run import Result

# Key of the log's tail in the Secret. Names of outputs contain no dot.
LOG_KEY = "log.tail"
# Key of the times at which its parts were printed.
TIMES_KEY = "log.times"


def _encoded(times: Iterable[TimeEntry]) -> bytes:
    return " ".join(map(str, flatten(times))).encode()


def times_of(times: bytes) -> tuple[TimeEntry, ...]:
    """Parse the times of a log; return nothing if the value is invalid."""
    try:
        return entries_from([int(number) for number in times.split()])
    except ValueError:
        return ()


class ForeignSecretError(Exception):
    """Another program's Secret has the name of an attempt's Secret."""


class AttemptSecrets:
    """Reads and writes the Secrets of attempts."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def write(
        self,
        run: RunObject,
        location: tuple[str, str, int],
        result: Result,
        values: dict[str, bytes],
        printed: PrintedOutput | None,
    ) -> None:
        """Write the outputs of a result and the tail of the log.

        An existing Secret is kept if it contains these outputs. If it does not, a peer wrote it and never recorded it,
        so it is replaced. Had the peer recorded it, our own record would be refused.

        Raises:
            ForeignSecretError: another program's Secret has the name.
            errors.ApiError: the Secret was not written, so the attempt must not be recorded.
        """
        namespace, unit, attempt = location
        name = names.outputs_name(run.ledger.uid, unit, attempt)
        log = {LOG_KEY: printed.tail, TIMES_KEY: _encoded(printed.times)} if printed else {LOG_KEY: b""}
        body = outputs_secret(run, namespace, name, values | log)
        try:
            await self._client.create(SECRETS, body, namespace)
        except (errors.AlreadyExists, errors.OutcomeUnknown) as fault:
            found = await self._client.find(SECRETS, name, namespace)
            if found is None:
                raise fault from None
            if verified_values(found.data or {}, result) is not None:
                return
            if not is_owned_by(found.metadata, run):
                raise ForeignSecretError(messages.foreign_object("Secret", namespace, name)) from None
            await self._client.delete(SECRETS, name, namespace, uid=found.metadata.uid)
            await self._client.create(SECRETS, body, namespace)

    async def find_values(
        self, run: RunObject, location: tuple[str, str, int], result: Result
    ) -> dict[str, bytes] | None:
        """Return the outputs of a result that an earlier try has written; None if a digest does not match."""
        namespace, unit, attempt = location
        found = await self._client.find(SECRETS, names.outputs_name(run.ledger.uid, unit, attempt), namespace)
        return verified_values(found.data or {}, result) if found is not None else None

    async def read(self, run: RunObject, namespace: str, producer: str, output: str) -> bytes:
        """Return one output of a unit; `namespace` is that of the unit's Secret.

        Raises:
            CannotRenderError: the value is missing or was changed.
            errors.ApiError: the API server failed.
        """
        record = run.ledger.unit(producer).outputs[output]
        only = Result(outcome="succeeded", outputs={output: record})
        found = await self.find_values(run, (namespace, producer, record.attempt), only)
        if found is None:
            raise CannotRenderError(
                Reason.OUTPUTS_LOST, f"the Secret with the outputs of {producer} is missing or was changed"
            )
        return found[output]


def outputs_secret(run: RunObject, namespace: str, name: str, values: dict[str, bytes]) -> dict[str, Any]:
    """Return the manifest of an immutable Secret with outputs that the run owns."""
    return owned_secret(run, Key(namespace, name), names.OUTPUTS_TYPE, values) | {"immutable": True}


def verified_values(values: dict[str, bytes], result: Result) -> dict[str, bytes] | None:
    """Return the values of the result's outputs; None if one is missing or does not match its digest."""
    for name, record in result.outputs.items():
        if "sha256:" + hashlib.sha256(values.get(name, b"")).hexdigest() != record.digest or name not in values:
            return None
    return {name: values[name] for name in result.outputs}
