"""What may be asked of a host: ledger moves, committed together in one compare-and-swap, and only then effects."""

import msgspec

from dayfly.plan.messages import Text, spoken
from dayfly.spec.run import EndRequest, Result


class _Action(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


# --- moves: what the ledger is asked to record ------------------------------------------------------------------


class Claim(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Permit one attempt to start."""

    unit: str
    attempt: int
    kind: str = ""
    ref: str
    definition: str = ""
    generation: str = ""
    after: tuple[str, ...] = ()
    at: int


class Bind(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """What an attempt has made was seen for the first time: that very object is meant from here on, and no other."""

    unit: str
    attempt: int
    ref: str


class Doubt(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt's outcome cannot be known now."""

    unit: str
    attempt: int
    reason: str
    message: str


class Record(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt ended so."""

    unit: str
    attempt: int
    result: Result


class Void(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt never ran and never will."""

    unit: str
    attempt: int
    reason: str
    message: str
    at: int


class Close(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """From here on no create unit can start."""

    request: EndRequest


class Started(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The target itself has started: what precedes its stop is owed from here on."""

    at: int


class Stopped(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Nothing of the target itself is at work any more, nor will be."""

    at: int


class GiveUp(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Somebody has decided that cleanup shall not be waited for, and says why."""

    request: EndRequest


class Finish(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The run's end: cleaned, or abandoned if that was asked for."""

    at: int


Move = Claim | Bind | Doubt | Record | Void | Close | Started | Stopped | GiveUp | Finish

# --- effects: what the host is asked to do ----------------------------------------------------------------------


class Prepare(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Make the attempt ready behind its gate; `ahead` of its turn if what it reads is still being made."""

    unit: str
    attempt: int
    ahead: bool = False


class Launch(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Let the claimed attempt go."""

    unit: str
    attempt: int


class Fence(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """See to it that the attempt can never start; what comes of that is the next turn's fact."""

    unit: str
    attempt: int
    reason: str
    message: str


class Recall(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Have an attempt that cannot start say itself that it did not: a fence of it would leave that open for ever."""

    unit: str
    attempt: int


class Cancel(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Ask a running attempt to end, and force it after its grace."""

    unit: str
    attempt: int
    reason: str
    message: str


class Release(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """The attempt's result is in the ledger: its evidence may vanish."""

    unit: str
    attempt: int


class Dissolve(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Nothing is left to do: let the target go, then the ledger."""


Effect = Prepare | Launch | Fence | Recall | Cancel | Release | Dissolve


class Wait(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Why nothing is asked for a unit (or, with an empty `unit`, for the run) at this moment.

    `on` names what it waits for; `until` is when to look again without news (0: only on news). The clocks of a message
    are these times.
    """

    unit: str
    reason: str
    message: Text
    on: tuple[str, ...] = ()
    since: int = 0
    until: int = 0

    def said(self, now: int) -> str:
        """The message for whoever hears it `now`."""
        return spoken(self.message, self.since, self.until, now)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One turn's answer."""

    moves: tuple[Move, ...] = ()
    effects: tuple[Effect, ...] = ()
    waits: tuple[Wait, ...] = ()

    @property
    def rests(self) -> bool:
        """Whether nothing is done and no unit is waited for: only the target's owner, or its time, changes that."""
        return not self.moves and not self.effects and not any(wait.unit for wait in self.waits)

    def rests_after(self, done: tuple[Effect, ...]) -> bool:
        """Whether it rests but for effects that have just been brought about."""
        left = tuple(effect for effect in self.effects if effect not in done)
        return msgspec.structs.replace(self, effects=left).rests

    @property
    def wake_at(self) -> int:
        """The earliest moment at which time alone changes the answer; 0 if only news can."""
        return min((wait.until for wait in self.waits if wait.until), default=0)
