"""Why a host does not do what it was asked for."""


class DocumentsRefusedError(Exception):
    """The host cannot run these documents; the sentence says which unit, why, and what to do."""


class HostUnavailableError(Exception):
    """The host's ledger cannot be used now; nothing was changed."""


class RunDamagedError(HostUnavailableError):
    """What the host keeps of this one run cannot be read; the sentence says which run it is, and what to do."""


class HostSilentError(HostUnavailableError):
    """The host does not answer. What it was told may have reached it; telling it again is telling it once."""
