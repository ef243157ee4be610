"""Errors of a host's answer to a request."""


class DocumentsRefusedError(Exception):
    """The host cannot run these documents. The message names the unit, the reason and the remedy."""


class HostUnavailableError(Exception):
    """The host's ledger cannot be used now. Nothing was changed."""


class HostNeverConnectedError(HostUnavailableError):
    """The host has never connected, so it has nothing of the server yet."""


class RunDamagedError(HostUnavailableError):
    """The host's data about this run cannot be read. The message names the run and the remedy."""


class HostSilentError(HostUnavailableError):
    """The host does not answer. It may have received the request, which can safely be repeated."""
