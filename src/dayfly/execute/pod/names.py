"""Names of what belongs to an attempt, derived from run, unit and attempt, and the keys we put on objects."""

import base64
import functools
import hashlib
import re

from dayfly.spec.lifecycle import API_VERSION, Unit

GROUP = API_VERSION.partition("/")[0]
GATE = f"{GROUP}/claim"
FINALIZER = f"{GROUP}/record"
RUN_LABEL = f"{GROUP}/run"
# Which attempts' outputs a pod was made for, in the order of its inputs.
READS_LABEL = f"{GROUP}/reads"
# The container that a recall adds to a pod: this name, and the moment of the recall in unix milliseconds.
RECALL = "dayfly-recall-"
UNIT_ANNOTATION = f"{GROUP}/unit"
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
NONCE_ANNOTATION = f"{GROUP}/nonce"
ORDER_ANNOTATION = f"{GROUP}/order"
# Of the pods of steps that stop or delete: quota counts them apart, so that cleanup finds room where nothing else does.
CLEANUP_CLASS = "dayfly-cleanup"
# The type of Secrets with what steps made.
OUTPUTS_TYPE = f"{GROUP}/outputs"
# Of those with Terraform states, and with what opens one.
STATE_TYPE = f"{GROUP}/state"
DIGEST_ANNOTATION = f"{GROUP}/digest"
# On a namespace where steps run: further keys of labels and annotations that plugins may give to their pods.
KEYS_ANNOTATION = f"{GROUP}/pod-keys"

RUNNERS = "dayfly-runners"
_READABLE = 30
# Of a digest: 16 letters.
_BYTES = 10


@functools.lru_cache(maxsize=4096)  # each turn names the same pods again
def derived(prefix: str, readable: str, *parts: str) -> str:
    """`prefix-readable-hash`: at most 63 characters, a legal DNS label; 80 bits keep names of different parts apart."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest()[:_BYTES]).decode().lower()
    plain = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")[:_READABLE].strip("-")
    return "-".join(filter(None, (prefix, plain, digest)))


def run_name(target: str, uid: str) -> str:
    """The Run of a target object: `sb1-<hash of its UID>`."""
    return derived("", target, "run", uid)


def pod_name(run: str, unit: str, attempt: int) -> str:
    """The pod of one attempt."""
    return derived("r", unit, "pod", run, unit, str(attempt))


def outputs_name(run: str, unit: str, attempt: int) -> str:
    """The Secret with one attempt's outputs and the tail of its log."""
    return derived("o", unit, "values", run, unit, str(attempt))


def namespace_of(unit: Unit) -> str:
    """`signadot` is the name that existing plugins know our runners' namespace by."""
    work = unit.exec or unit.webhook or unit.object
    wished = work.namespace if work else ""
    return RUNNERS if wished in ("", "signadot") else wished
