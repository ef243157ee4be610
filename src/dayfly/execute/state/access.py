"""How an attempt is told where its state is, and how it proves that it is the one. Pure.

A token is derived from a key that only Dayfly has and from the attempt's name. So none is stored, any replica knows it,
and it is worth something only while the ledger says that this attempt runs.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dayfly.execute.state.head import Holder
from dayfly.spec.lifecycle import Exec, Unit, unit_id
from dayfly.spec.scalars.numbers import whole

KEY_BYTES: Final = 32
PASSWORD: Final = "TF_HTTP_PASSWORD"  # noqa: S105 - the variable's name
# A server that is started anew answers within seconds; until then Terraform asks again, for about five minutes.
_MOST_ATTEMPTS: Final = 999_999_999
_RETRIES: Final = {"TF_HTTP_RETRY_MAX": "60", "TF_HTTP_RETRY_WAIT_MIN": "1", "TF_HTTP_RETRY_WAIT_MAX": "5"}
# All other variables by which a machine or an image could change how Terraform and OpenTofu use our server. Both take
# an empty one as unset.
_FIXED: Final = {
    "TF_HTTP_LOCK_METHOD": "LOCK",
    "TF_HTTP_UNLOCK_METHOD": "UNLOCK",
    "TF_HTTP_UPDATE_METHOD": "POST",
    "TF_HTTP_CLIENT_CERTIFICATE_PEM": "",
    "TF_HTTP_CLIENT_PRIVATE_KEY_PEM": "",
    "TF_STATE_PERSIST_INTERVAL": "",
    "TF_WORKSPACE": "",
    "TF_DATA_DIR": "",
}
_LOCK: Final = "/lock"
_LOCK_METHODS: Final = {"POST": "LOCK", "PUT": "LOCK", "DELETE": "UNLOCK"}
_ARGUMENTS: Final = "TF_CLI_ARGS"
_PROXIES: Final = ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")
_NO_PROXY: Final = ("NO_PROXY", "no_proxy")
_HOST: Final = re.compile(r"https?://(?:\[([^\]]+)\]|([^:/]+))")


class StateKeys(msgspec.Struct, frozen=True):
    """What is derived from the one secret of a home or a cluster."""

    sealing: bytes
    signing: bytes

    @property
    def name(self) -> str:
        """Tells the sealing key from others, and gives nothing of it away."""
        return hashlib.sha256(b"dayfly state key name\0" + self.sealing).hexdigest()[:16]

    @classmethod
    def of(cls, secret: bytes) -> "StateKeys":
        """From a secret of `KEY_BYTES` random bytes.

        Raises:
            ValueError: it has another length.
        """
        if len(secret) != KEY_BYTES:
            raise ValueError(f"the key for states has {len(secret)} bytes, and {KEY_BYTES} are wanted")
        return cls(*(hmac.digest(secret, b"dayfly state " + use, "sha256") for use in (b"sealing", b"signing")))


class Door(msgspec.Struct, frozen=True):
    """Where states are served; `authority` is the certificate (PEM) by which it is known."""

    url: str
    authority: str = ""


class StateCaller(msgspec.Struct, frozen=True):
    """Who asks, and of which resource's state."""

    run: str
    resource: str
    holder: Holder


def wants(unit: Unit) -> bool:
    """Whether the unit is a script with a state."""
    return isinstance(unit.exec, Exec) and unit.exec.state


def caller(run: str, resource: str, name: str, attempt: int) -> StateCaller:
    """An attempt of a unit, by the unit's name in the run."""
    return StateCaller(run, resource, Holder(unit=name, attempt=attempt))


def token(keys: StateKeys, who: StateCaller) -> str:
    """The password of one attempt."""
    parts = (who.run, who.resource, who.holder.unit, str(who.holder.attempt))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.digest(keys.signing, text.encode(), "sha256").hex()


def variables(door: Door, who: StateCaller) -> Mapping[str, str]:
    """What the backend `http` of Terraform and OpenTofu reads, but for the password."""
    address = f"{door.url}/state/{who.run}/{who.resource}"
    step = who.holder.unit.rpartition("/")[2]
    return {
        "TF_HTTP_ADDRESS": address,
        "TF_HTTP_LOCK_ADDRESS": address + _LOCK,
        "TF_HTTP_UNLOCK_ADDRESS": address + _LOCK,
        "TF_HTTP_USERNAME": f"{step}.{who.holder.attempt}",
        "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM": door.authority,
        **_RETRIES,
        **_FIXED,
    }


def without_arguments(inherited: Iterable[str]) -> dict[str, str]:
    """Clear the arguments that the machine adds to each Terraform: they could choose another backend or target."""
    return {name: "" for name in inherited if name.startswith(_ARGUMENTS)}


def past_proxies(variables: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """Except the state server from the proxies of a pod's environment; `given` has None for unknown values."""
    if not any(name in given for name in _PROXIES):
        return {}
    found = _HOST.match(variables["TF_HTTP_ADDRESS"])
    host = (found[1] or found[2]) if found else ""
    known = {name: given.get(name, "") for name in _NO_PROXY}
    return {name: ",".join(filter(None, (value, host))) for name, value in known.items() if isinstance(value, str)}


def method_of(path: str, method: str) -> str:
    """Return the method that a request means: at the address of the lock, POST locks and DELETE unlocks."""
    return _LOCK_METHODS.get(method, method) if path.endswith(_LOCK) else method


def identify(keys: StateKeys, path: str, username: str, password: str) -> StateCaller | None:
    """Who asks, by the address, the name and the password; None if it is nobody whom we know."""
    parts = path.removesuffix(_LOCK).split("/")
    step, _, attempt = username.rpartition(".")
    number = whole(attempt, _MOST_ATTEMPTS)
    if len(parts) != 4 or parts[:2] != ["", "state"] or number is None:
        return None
    who = caller(parts[2], parts[3], unit_id(parts[3], step), number)
    known = token(keys, who).encode()
    return who if hmac.compare_digest(known, password.encode()) else None
