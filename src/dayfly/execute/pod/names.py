"""Names that are derived from run, unit and attempt, and Dayfly's keys of labels and annotations."""

import base64
import functools
import hashlib
import re

from dayfly.spec.lifecycle import API_VERSION, Unit

GROUP = API_VERSION.partition("/")[0]
GATE = f"{GROUP}/claim"
FINALIZER = f"{GROUP}/record"
RUN_LABEL = f"{GROUP}/run"
# The attempts whose outputs a pod reads, in the order of its inputs.
READS_LABEL = f"{GROUP}/reads"
# Prefix for the name of the container that a recall adds; the time of the recall in unix milliseconds follows.
RECALL = "dayfly-recall-"
UNIT_ANNOTATION = f"{GROUP}/unit"
ATTEMPT_ANNOTATION = f"{GROUP}/attempt"
NONCE_ANNOTATION = f"{GROUP}/nonce"
ORDER_ANNOTATION = f"{GROUP}/order"
# Priority class of pods that delete. A separate quota ensures that cleanup is possible when other quotas are used up.
CLEANUP_CLASS = "dayfly-cleanup"
# Type of the Secrets with outputs of steps.
OUTPUTS_TYPE = f"{GROUP}/outputs"
# Type of the Secrets with Terraform states, and with passwords for them.
STATE_TYPE = f"{GROUP}/state"
DIGEST_ANNOTATION = f"{GROUP}/digest"
# On a namespace: additional keys of labels and annotations that plugins may set on their pods.
KEYS_ANNOTATION = f"{GROUP}/pod-keys"

RUNNERS = "dayfly-runners"
_MAX_READABLE_CHARS = 30
_DIGEST_BYTES = 10  # 16 characters


@functools.lru_cache(maxsize=4096)  # each turn derives the same names again
def derive_name(prefix: str, readable: str, *parts: str) -> str:
    """Return `prefix-readable-hash`, a DNS label of at most 63 characters with a hash of 80 bits over `parts`."""
    text = "".join(f"{len(part)}:{part}" for part in parts)
    digest = base64.b32encode(hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]).decode().lower()
    plain = re.sub(r"[^a-z0-9]+", "-", readable.lower()).strip("-")[:_MAX_READABLE_CHARS].strip("-")
    return "-".join(filter(None, (prefix, plain, digest)))


def run_name(target: str, uid: str) -> str:
    """Return the name of a target's Run: `sb1-<hash of its UID>`."""
    return derive_name("", target, "run", uid)


def pod_name(run: str, unit: str, attempt: int) -> str:
    """Return the name of an attempt's pod."""
    return derive_name("r", unit, "pod", run, unit, str(attempt))


def outputs_name(run: str, unit: str, attempt: int) -> str:
    """Return the name of the Secret with an attempt's outputs and the end of its log."""
    return derive_name("o", unit, "values", run, unit, str(attempt))


def namespace_of(unit: Unit) -> str:
    """Return the namespace in which a unit runs. Existing plugins name the default namespace `signadot`."""
    work = unit.exec or unit.webhook or unit.object
    namespace = work.namespace if work else ""
    return RUNNERS if namespace in ("", "signadot") else namespace
