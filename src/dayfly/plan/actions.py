"""The actions of a decision: ledger moves and effects.

A host commits all moves in one compare-and-swap and performs the effects only after that.
"""

import msgspec

from dayfly.plan.messages import Text
from dayfly.spec.run import EndRequest, Holder, Result


class _Action(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


# --- moves: changes of the ledger -----------------------------------------------------------------------------


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
    """Record which object the attempt created, when first observed. The ledger then refers to that object only."""

    unit: str
    attempt: int
    ref: str


class Doubt(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that the attempt's outcome cannot be determined now."""

    unit: str
    attempt: int
    reason: str
    message: str


class Record(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record how the attempt ended."""

    unit: str
    attempt: int
    result: Result


class Void(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that the attempt never ran and never will."""

    unit: str
    attempt: int
    reason: str
    message: str
    at: int


class Close(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Close the run: from here on no create unit can start."""

    request: EndRequest


class Started(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that the target itself has started. Its preStop units must run from here on."""

    at: int


class Stopped(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that no part of the target itself is active and none will be."""

    at: int


class Join(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that another run uses this run's outputs. The run cannot be closed until that run leaves."""

    holder: Holder


class Leave(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Record that a holder no longer uses this run's outputs. It closes the run of a pool member with this request."""

    holder: tuple[str, str]
    request: EndRequest


class GiveUp(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Abandon the cleanup. The request has the author and the reason."""

    request: EndRequest


class Finish(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """End the run: cleaned, or abandoned if that was requested."""

    at: int


Move = Claim | Bind | Doubt | Record | Void | Close | Started | Stopped | Join | Leave | GiveUp | Finish

# --- effects: actions of the host -----------------------------------------------------------------------------


class Prepare(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Prepare the attempt behind its gate. `ahead`: its inputs are not known yet."""

    unit: str
    attempt: int
    ahead: bool = False


class Launch(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Release the claimed attempt."""

    unit: str
    attempt: int


class Fence(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Ensure that the attempt can never start. The next turn observes the result."""

    unit: str
    attempt: int
    reason: str
    message: str


class Recall(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Let an attempt that cannot start prove that it never began. A fence alone would leave that unknown."""

    unit: str
    attempt: int


class Cancel(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Ask a running attempt to end, and kill it after its grace period."""

    unit: str
    attempt: int
    reason: str
    message: str


class Release(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Allow the host to remove the attempt's evidence: the ledger has its result."""

    unit: str
    attempt: int


class Dissolve(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Release the target, then remove the ledger: no work is left."""


Effect = Prepare | Launch | Fence | Recall | Cancel | Release | Dissolve


class Wait(_Action, frozen=True, kw_only=True, gc=False, tag=True):
    """Why a unit (or, with an empty `unit`, the run) has no action at this moment.

    `on` names the units that it waits for. `until` is when the host must decide again without an event (0: only on an
    event). The clocks of the message are `since` and `until`.
    """

    unit: str
    reason: str
    message: Text
    on: tuple[str, ...] = ()
    since: int = 0
    until: int = 0


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one turn."""

    moves: tuple[Move, ...] = ()
    effects: tuple[Effect, ...] = ()
    waits: tuple[Wait, ...] = ()

    @property
    def is_idle(self) -> bool:
        """Return whether there is no action and no unit waits, so that only the target's owner or its expiry changes
        that.
        """
        return not self.moves and not self.effects and not any(wait.unit for wait in self.waits)

    def is_idle_after(self, done: tuple[Effect, ...]) -> bool:
        """Return whether the decision is idle apart from effects that are already done."""
        left = tuple(effect for effect in self.effects if effect not in done)
        return msgspec.structs.replace(self, effects=left).is_idle

    @property
    def wake_at(self) -> int:
        """The earliest time at which the decision changes without an event; 0 if there is none."""
        return min((wait.until for wait in self.waits if wait.until), default=0)
