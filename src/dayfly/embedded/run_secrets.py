"""The secrets that come with runs: in the ledger from before a run's birth to its end, and in no document."""

import hmac
from collections.abc import Collection, Mapping

from dayfly.embedded.ledger import SqliteLedger
from dayfly.embedded.writer import Writer
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Lifecycle


class RunSecrets:
    """Those of one machine's runs. Whoever wishes for a run hands them over before the host is told of it."""

    def __init__(self, ledger: SqliteLedger, reader: SqliteLedger, writer: Writer) -> None:
        self._ledger = ledger
        self._reader = reader
        self._writer = writer

    async def keep(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> None:
        """Keep the values for a run, by resource and name; durable when this returns.

        Raises:
            LedgerError: the disk refused; nothing was changed.
        """
        await self._writer.run(lambda: self._ledger.keep_secrets(uid, values))

    async def drop(self, uid: str) -> None:
        """Forget those of a run that will not be."""
        await self._writer.run(lambda: self._ledger.drop_secrets(uid))

    async def drop_all_but(self, wished: Collection[str]) -> None:
        """Forget those of runs that neither live nor are `wished` for: a server was killed before it wrote the wish."""
        if self._reader.with_secrets() - set(wished):
            await self._writer.run(lambda: self._ledger.drop_secrets_but(wished))

    def match(self, uid: str, values: Mapping[tuple[str, str], bytes]) -> bool:
        """Whether these are the run's secrets, all of them and no others."""
        known = self._reader.secrets(uid)
        return known.keys() == values.keys() and all(hmac.compare_digest(known[key], values[key]) for key in known)

    def refuse_missing(self, documents: tuple[Lifecycle, ...]) -> None:
        """Refuse a run to be born whose secrets have not come.

        Raises:
            RefusedError: with the names of all that are missing.
        """
        wanted = {(document.resource, name) for document in documents for name in document.secrets()}
        if not wanted:
            return
        uid = documents[0].target.uid
        if missing := sorted(wanted - self._reader.secrets(uid).keys()):
            if self._reader.last(uid) is not None:
                return  # it is over, which is what there is to say
            names = ", ".join("/".join(each) for each in missing)
            raise DocumentsRefusedError(f"its secrets are not here ({names}); give them with: --secrets-file FILE")
