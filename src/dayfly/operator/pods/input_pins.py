"""What a step's pod reads, and whether a pod that was made ahead of its turn still does.

A pod names the Secrets of certain attempts, and is made while these still run. Attempts only ever rise: a pod that was
made for lower ones than the ledger holds can be claimed by nobody any more, and is replaced. So is one that holds what
a fork has told and tells no more.
"""

import hashlib
import re
from collections.abc import Iterator

from dayfly.execute.inputs import Forks, is_fit, reads_forks, resolve
from dayfly.execute.pod import names
from dayfly.execute.pod.read import milliseconds
from dayfly.execute.pod.render import PodSecretKey
from dayfly.kube.objects import Pod
from dayfly.operator.cluster.objects import RunObject
from dayfly.plan.sealed import SealedStep
from dayfly.spec.lifecycle import unit_id
from dayfly.spec.run import ALIVE, UnitRecord

_LABEL_LIMIT = 63
_ATTEMPTS = re.compile(r"([0-9]{1,9}(?:-[0-9]{1,9})*)(?:-f[0-9a-f]+)?")


def where(run: RunObject, producer: str, output: str) -> PodSecretKey | None:
    """Where an output lies, or will lie once the attempt that is making it succeeds; None if there is none."""
    attempt = _told_by(run.ledger.unit(producer), output)
    return PodSecretKey(names.outputs_name(run.ledger.uid, producer, attempt), output) if attempt else None


def label(run: RunObject, step: SealedStep, forks: Forks) -> str:
    """The attempts that tell what the step reads, in the order of its inputs: `1-2`; 0 for what is absent.

    What forks tell stands behind them, as a digest. Empty if it reads nothing, or too much for a label: such a pod is
    not made ahead.
    """
    unfit = {} if step.creates else resolve(run.ledger, step.unit, step.resource, cleans=True).unfit
    told = ["0" if name in unfit else str(_told_by(record, output)) for name, record, output in _inputs(run, step)]
    if reads_forks(step.unit):
        told.append(_of_forks(run, step, forks))
    said = "-".join(told)
    return said if len(said) <= _LABEL_LIMIT else ""


def _of_forks(run: RunObject, step: SealedStep, forks: Forks) -> str:
    """A digest of all that forks tell the step; what they cannot tell now counts as nothing."""
    sources = resolve(run.ledger, step.unit, step.resource, cleans=True, forks=forks).sources
    told = [(item.name, sources[item.name]) for item in step.unit.inputs if item.fork is not None]
    return f"f{hashlib.sha256(repr(told).encode()).hexdigest()[:12]}"


def fits(run: RunObject, step: SealedStep, pod: Pod, now: int, forks: Forks) -> bool:
    """Whether a pod behind its gate may still be let go: it reads what is recorded, and it has time to start."""
    return (
        is_fit(run.ledger, step)
        and _made_for(pod) == label(run, step, forks)
        and in_time(step, milliseconds(pod.metadata.creation_timestamp), now)
    )


def in_time(step: SealedStep, created: int, now: int) -> bool:
    """Whether a pod of that age has still half of its time to start."""
    limits = step.unit.timeouts
    return now - created < (limits.schedule_ms + limits.pull_ms) // 2


def newer(run: RunObject, step: SealedStep, pod: Pod) -> bool:
    """Whether a peer has made it, who knows of later attempts than we do. None of us has made what says no attempts."""
    said = _ATTEMPTS.fullmatch(_made_for(pod))
    attempts = map(int, said[1].split("-")) if said else ()
    return any(attempt > record.attempt for attempt, (_, record, _) in zip(attempts, _inputs(run, step), strict=False))


def _inputs(run: RunObject, step: SealedStep) -> Iterator[tuple[str, UnitRecord, str]]:
    for item in step.unit.inputs:
        if item.from_ is not None:
            producer = unit_id(item.from_.resource or step.resource, item.from_.unit)
            yield item.name, run.ledger.unit(producer), item.from_.output


def _told_by(record: UnitRecord, output: str) -> int:
    """The attempt that told the output, or is to tell it; 0 if there is none."""
    if record.state in ALIVE:
        return record.attempt
    return record.outputs[output].attempt if output in record.outputs else 0


def _made_for(pod: Pod) -> str:
    return (pod.metadata.labels or {}).get(names.READS_LABEL, "")
