"""The secrets of runs: stored in the ledger from before a run's birth until its end, and in no document."""

import hmac
from collections.abc import Collection, Mapping

from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.writer import Writer
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Lifecycle


class RunSecrets:
    """The secrets of this machine's runs. A caller stores them before it offers the run."""

    def __init__(self, ledger: SqliteLedger, reader: SqliteLedger, writer: Writer) -> None:
        self._ledger = ledger
        self._reader = reader
        self._writer = writer

    async def keep(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Store the secrets of a run by resource and name; durable on return.

        Raises:
            LedgerError: the disk refused; nothing was changed.
        """
        await self._writer.run(lambda: self._ledger.keep_secrets(uid, values))

    async def drop(self, uid: str) -> None:
        """Delete the secrets of a run that will not be offered."""
        await self._writer.run(lambda: self._ledger.drop_secrets(uid))

    async def drop_all_but(self, desired: Collection[str]) -> None:
        """Delete the secrets of runs that neither live nor are in `desired`: a killed server never offered them."""
        if self._reader.uids_with_secrets() - set(desired):
            await self._writer.run(lambda: self._ledger.drop_secrets_except(desired))

    def match(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> bool:
        """Return whether `values` are exactly the secrets of the run."""
        known = self._reader.secrets(uid)
        return known.keys() == values.keys() and all(hmac.compare_digest(known[key], values[key]) for key in known)

    def admit(self, documents: tuple[Lifecycle, ...]) -> None:
        """Refuse the birth of a run whose secrets are not stored.

        Raises:
            DocumentsRefusedError: some secrets are missing; the message names all of them.
        """
        wanted = {(document.resource, name) for document in documents for name in document.secrets()}
        if not wanted:
            return
        uid = documents[0].target.uid
        if missing := sorted(wanted - self._reader.secrets(uid).keys()):
            if self._reader.ended_run(uid) is not None:
                return  # the run has ended; `offer` reports that
            names = ", ".join("/".join(each) for each in missing)
            raise DocumentsRefusedError(
                f"its secrets ({names}) are not on this host; pass them with: --secrets-file FILE"
            )
