"""What the server is told of each of its sandboxes, and under which number."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from dayfly.spec.lifecycle import preview_id
from dayfly.spec.report import RunReport
from dayfly.spec.run_data import RunEndpoint

VERSIONS_IN_A_SESSION = 1_000_000
_PORTS = {"http": 80, "https": 443}


class ReportLog:
    """Numbers rise over restarts: the first session of this process gives the first of them."""

    def __init__(self) -> None:
        self._first = 0
        self._versions: dict[str, int] = {}
        self._reports: dict[str, RunReport] = {}
        self._endpoints: dict[str, tuple[RunEndpoint, ...]] = {}

    def begin(self, session: int) -> None:
        """A session has begun."""
        self._first = self._first or session * VERSIONS_IN_A_SESSION

    def version(self, uid: str) -> int:
        """The number of its report."""
        return self._versions.get(uid, self._first)

    def advance(self, uid: str) -> None:
        """It stands otherwise than it did."""
        self._versions[uid] = self.version(uid) + 1

    def note(self, uid: str, report: RunReport, urls: Mapping[str, str]) -> bool:
        """It stands so, and these of its endpoints have addresses that work. Whether that is news."""
        before = self._reports.get(uid), self._endpoints.get(uid, ())
        endpoints = tuple(endpoint(name, url) for name, url in sorted(urls.items()))
        self._reports[uid], self._endpoints[uid] = report, endpoints
        if before[0] is not None and (msgspec.structs.replace(report, born_at=before[0].born_at), endpoints) == before:
            return False
        self.advance(uid)
        return True

    def report(self, uid: str) -> RunReport | None:
        """What was said of it last, if anything."""
        return self._reports.get(uid)

    def endpoints(self, uid: str) -> tuple[RunEndpoint, ...]:
        """Where its endpoints answer now."""
        return self._endpoints.get(uid, ())

    def forget(self, uid: str) -> None:
        """It is gone."""
        for known in (self._versions, self._reports, self._endpoints):
            known.pop(uid, None)


def endpoint(name: str, url: str) -> RunEndpoint:
    """The address of one endpoint, as the wire has it."""
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return RunEndpoint(unit=preview_id(name), host=parts.hostname or "", port=port, scheme=parts.scheme)
