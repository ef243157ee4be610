"""A target that starts and stops by itself, as any object of a cluster does: the run only watches it."""

from random import Random

from dayfly.plan.world import TargetState
from dayfly.spec.run import Phase, Run

COMING, AT_WORK, STOPPED = "is to start", "is at work", "has stopped"


class SelfStarting:
    """The true state of a target. It starts at some time unless its run closes first. Once the run is closed, it stops
    for good.
    """

    def __init__(self) -> None:
        self.stage = COMING
        self.began = False
        self.lives_on = False  # its run ends, and it does not stop for that

    def move(self, rng: Random, phase: Phase) -> str:
        """Let it take one step if it can; return what it did, or ""."""
        if self.stage == COMING and rng.random() < (0.08 if phase is Phase.OPEN else 0.5):
            self.stage, self.began = AT_WORK, True
        elif self.stage != STOPPED and phase is not Phase.OPEN and not self.lives_on:
            self.stage = STOPPED
        else:
            return ""
        return self.stage

    def can_move(self, phase: Phase) -> bool:
        return self.stage == COMING or (self.stage == AT_WORK and phase is not Phase.OPEN and not self.lives_on)

    def told(self, run: Run, *, late: bool) -> TargetState:
        """Return the state that its adapter reports to a server that has read `run`. It may be stale only while the run
        is open.
        """
        if late and run.phase is Phase.OPEN:
            return TargetState()
        return TargetState(started=self.began, stopped=self.stage == STOPPED, message="it takes its time")
