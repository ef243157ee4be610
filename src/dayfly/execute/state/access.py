"""The address and the password with which an attempt reaches its state. Pure.

The password is derived from the attempt's name and a key that only Dayfly has. So it is not stored, and every replica
can check it. It is valid only while the attempt is running according to the ledger.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from dayfly.execute.state.head import LockHolder
from dayfly.spec.lifecycle import Exec, Unit, unit_id
from dayfly.spec.scalars.numbers import parse_whole

KEY_BYTES: Final = 32
PASSWORD: Final = "TF_HTTP_PASSWORD"  # noqa: S105 - the variable's name
_MAX_ATTEMPT: Final = 999_999_999
# Terraform retries for about five minutes. A state server that restarts is available within seconds.
_RETRIES: Final = {"TF_HTTP_RETRY_MAX": "60", "TF_HTTP_RETRY_WAIT_MIN": "1", "TF_HTTP_RETRY_WAIT_MAX": "5"}
# Other variables with which a machine or an image could redirect Terraform or OpenTofu. Both treat an empty value as
# unset.
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
    """Keys that are derived from the one secret of a home or a cluster."""

    sealing: bytes
    signing: bytes

    @property
    def name(self) -> str:
        """Public identifier of the sealing key, which does not reveal the key."""
        return hashlib.sha256(b"dayfly state key name\0" + self.sealing).hexdigest()[:16]

    @classmethod
    def derive(cls, secret: bytes) -> "StateKeys":
        """Derive the keys from a secret of `KEY_BYTES` random bytes.

        Raises:
            ValueError: The secret has another length.
        """
        if len(secret) != KEY_BYTES:
            raise ValueError(f"the key for states has {len(secret)} bytes; it must have {KEY_BYTES}")
        return cls(*(hmac.digest(secret, b"dayfly state " + use, "sha256") for use in (b"sealing", b"signing")))


class StateEndpoint(msgspec.Struct, frozen=True):
    """The address of a state server. `authority` is the certificate (PEM) that verifies it."""

    url: str
    authority: str = ""


class StateCaller(msgspec.Struct, frozen=True):
    """The attempt that sends a request, and the resource whose state it uses."""

    run: str
    resource: str
    holder: LockHolder


def has_state(unit: Unit) -> bool:
    """Return whether the unit is a script with a Terraform state."""
    return isinstance(unit.exec, Exec) and unit.exec.state


def state_caller(run: str, resource: str, name: str, attempt: int) -> StateCaller:
    """Return the caller for an attempt of a unit, by the unit's name in the run."""
    return StateCaller(run, resource, LockHolder(unit=name, attempt=attempt))


def derive_password(keys: StateKeys, who: StateCaller) -> str:
    """Return the password of one attempt."""
    parts = (who.run, who.resource, who.holder.unit, str(who.holder.attempt))
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.digest(keys.signing, text.encode(), "sha256").hex()


def variables(endpoint: StateEndpoint, who: StateCaller) -> Mapping[str, str]:
    """Return the variables for the `http` backend of Terraform and OpenTofu, without the password."""
    address = f"{endpoint.url}/state/{who.run}/{who.resource}"
    step = who.holder.unit.rpartition("/")[2]
    return {
        "TF_HTTP_ADDRESS": address,
        "TF_HTTP_LOCK_ADDRESS": address + _LOCK,
        "TF_HTTP_UNLOCK_ADDRESS": address + _LOCK,
        "TF_HTTP_USERNAME": f"{step}.{who.holder.attempt}",
        "TF_HTTP_CLIENT_CA_CERTIFICATE_PEM": endpoint.authority,
        **_RETRIES,
        **_FIXED,
    }


def clear_arguments(inherited: Iterable[str]) -> dict[str, str]:
    """Return empty values for inherited `TF_CLI_ARGS*` variables, which could choose another backend or target."""
    return {name: "" for name in inherited if name.startswith(_ARGUMENTS)}


def bypass_proxies(variables: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """Return `NO_PROXY` values that except the state server from the proxies in `given`, where None is unknown."""
    if not any(name in given for name in _PROXIES):
        return {}
    found = _HOST.match(variables["TF_HTTP_ADDRESS"])
    host = (found[1] or found[2]) if found else ""
    known = {name: given.get(name, "") for name in _NO_PROXY}
    return {name: ",".join(filter(None, (value, host))) for name, value in known.items() if isinstance(value, str)}


def method_of(path: str, method: str) -> str:
    """Return the effective method of a request: at the lock address, POST and PUT lock, and DELETE unlocks."""
    return _LOCK_METHODS.get(method, method) if path.endswith(_LOCK) else method


def identify(keys: StateKeys, path: str, username: str, password: str) -> StateCaller | None:
    """Return the caller with this path, username and password; None if they are invalid."""
    parts = path.removesuffix(_LOCK).split("/")
    step, _, attempt = username.rpartition(".")
    number = parse_whole(attempt, _MAX_ATTEMPT)
    if len(parts) != 4 or parts[:2] != ["", "state"] or number is None:
        return None
    who = state_caller(parts[2], parts[3], unit_id(parts[3], step), number)
    known = derive_password(keys, who).encode()
    return who if hmac.compare_digest(known, password.encode()) else None
