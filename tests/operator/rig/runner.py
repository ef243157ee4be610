"""The runner as simulated kubelets need it: the order and inputs of a pod, receipts in log and status."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from dayfly.execute.pod import names
from dayfly.spec.frames import decode, encode

Object = dict[str, Any]


def order(pod: Object) -> list[tuple[str, bytes]]:
    """Return the work order in the pod."""
    return decode("dayfly-order", pod["metadata"]["annotations"][names.ORDER_ANNOTATION].encode())


def fields(order: list[tuple[str, bytes]]) -> dict[str, str]:
    """Return what the receipt repeats of an order, and what may forbid the start."""
    return {key: value.decode() for key, value in order if key in ("nonce", "attempt", "start-before-ms")}


def mounted(pod: Object) -> list[Object]:
    """Return the Secrets in its projected volume; each has `name` and `items`."""
    volume = next(each for each in pod["spec"]["volumes"] if each["name"] == "dayfly")
    return [each["secret"] for each in volume["projected"]["sources"] if "secret" in each]


def inputs(pod: Object, order: list[tuple[str, bytes]], data: Callable[[str], Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the inputs of the script: constants from the order, outputs from Secrets, whose `data` is given by name."""
    files = {
        f"/dayfly/{item['path']}": data(each["name"])[item["key"]] for each in mounted(pod) for item in each["items"]
    }
    found = {}
    for key, value in order:
        if key == "env":
            name, _, text = value.partition(b"=")
            found[name.decode()] = text
        if key in ("secret-env", "sensitive-env"):
            name, _, file = value.partition(b"\0")
            found[name.decode()] = files[file.decode()]
    return found


class Receipt(msgspec.Struct, frozen=True):
    """The end of one script, as its runner seals it. Times are unix milliseconds."""

    pod: str
    fields: dict[str, str]
    outputs: dict[str, bytes]
    outcome: str
    code: int
    started: int
    ended: int
    detail: str = ""

    @property
    def exit_code(self) -> int:
        if self.outcome in ("void", "refused"):
            return 125
        return self.code if self.outcome in ("exited", "not-executable") else 128 + self.code

    def log(self) -> bytes:
        """Return the frame at the end of the log."""
        full = self._full()
        mark = hashlib.sha256(full).hexdigest().encode()
        return b"\x1edayfly-receipt 1 %d\n\x1e=%s\n\x1edayfly-end %s\n" % (len(full), base64.b64encode(full), mark)

    def message(self, *, in_log: bool = False) -> str:
        """Return the termination message; with `in_log`, the outputs are only in the log."""
        records = self._records()
        if in_log and self.outputs:
            records += [("output-in-log", name.encode()) for name in self.outputs]
            records.append(("log-document", hashlib.sha256(self._full()).hexdigest().encode()))
        else:
            records += self._contents()
        coded = base64.b64encode(encode("dayfly-receipt", records)).decode()
        return f"dayfly-receipt 1 {self.outcome} {self.code}\n{coded}"

    def _full(self) -> bytes:
        return encode("dayfly-receipt", [*self._records(), *self._contents()])

    def _contents(self) -> list[tuple[str, bytes]]:
        return [("content", name.encode() + b"\0" + value) for name, value in self.outputs.items()]

    def _records(self) -> list[tuple[str, bytes]]:
        records = [
            ("nonce", self.fields["nonce"].encode()),
            ("attempt", self.fields["attempt"].encode()),
            ("pod", self.pod.encode()),
            ("outcome", self.outcome.encode()),
            ("code", b"%d" % self.code),
            ("started-ms", b"%d" % self.started),
            ("ended-ms", b"%d" % self.ended),
            *([("detail", self.detail.encode())] if self.detail else []),
        ]
        for name, value in self.outputs.items():
            digest = hashlib.sha256(value).hexdigest()
            records.append(("output", f"{name}\0present\0{len(value)}\0{digest}".encode()))
        return records
