"""The newest report of each of the server's sandboxes, with its version number."""

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
    """Reports by UID. Their versions also rise over restarts: the first session of the process gives the first one."""

    def __init__(self) -> None:
        self._first = 0
        self._versions: dict[str, int] = {}
        self._reports: dict[str, RunReport] = {}
        self._endpoints: dict[str, tuple[RunEndpoint, ...]] = {}

    def start_session(self, session: int) -> None:
        """Derive the first version from the session, if it is the first of this process."""
        self._first = self._first or session * VERSIONS_IN_A_SESSION

    def version(self, uid: str) -> int:
        """Return the version of a sandbox's report."""
        return self._versions.get(uid, self._first)

    def advance(self, uid: str) -> None:
        """Increment the version, because the sandbox's state has changed."""
        self._versions[uid] = self.version(uid) + 1

    def record(self, uid: str, report: RunReport, urls: Mapping[str, str]) -> bool:
        """Store a report and the URLs of the working endpoints; return whether anything has changed."""
        before = self._reports.get(uid), self._endpoints.get(uid, ())
        endpoints = tuple(_endpoint(name, url) for name, url in sorted(urls.items()))
        self._reports[uid], self._endpoints[uid] = report, endpoints
        if before[0] is not None and (msgspec.structs.replace(report, born_at=before[0].born_at), endpoints) == before:
            return False
        self.advance(uid)
        return True

    def report(self, uid: str) -> RunReport | None:
        """Return the newest report, if there is one."""
        return self._reports.get(uid)

    def endpoints(self, uid: str) -> tuple[RunEndpoint, ...]:
        """Return the addresses of the working endpoints."""
        return self._endpoints.get(uid, ())

    def forget(self, uid: str) -> None:
        """Drop everything about a sandbox that is gone."""
        for known in (self._versions, self._reports, self._endpoints):
            known.pop(uid, None)


def _endpoint(name: str, url: str) -> RunEndpoint:
    parts = urlsplit(url)
    port = parts.port or _PORTS[parts.scheme]
    return RunEndpoint(unit=preview_id(name), host=parts.hostname or "", port=port, scheme=parts.scheme)
