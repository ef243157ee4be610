"""Storyboards: a test changes a world step by step, and each turn is one line of facts, decisions and waits."""

from tests.plan.builders import born, failed, succeeded

from dayfly.plan import messages, transitions
from dayfly.plan.actions import (
    Cancel,
    Claim,
    Close,
    Decision,
    Dissolve,
    Doubt,
    Effect,
    Fence,
    Finish,
    GiveUp,
    Launch,
    Move,
    Prepare,
    Recall,
    Record,
    Release,
    Started,
    Stopped,
    Void,
)
from dayfly.plan.decide import decide
from dayfly.plan.messages import format_duration
from dayfly.plan.sealed import Plan
from dayfly.plan.world import (
    AttemptKey,
    Ended,
    Fact,
    NeverRan,
    Prepared,
    Running,
    Sealed,
    Stalled,
    TargetIntent,
    TargetState,
    Unclear,
    Waiting,
    World,
)
from dayfly.spec.run import Run, State

BEGIN = 1_000_000
GATED = frozenset({"exec", "fork"})


class Story:
    """One run, with a line for each turn."""

    def __init__(self, plan: Plan, *, gated: bool = False, ref: str = "boot-1", slots: int = 99) -> None:
        self.plan = plan
        self.run: Run = born(plan)
        self.facts: dict[AttemptKey, Fact] = {}
        self.intent = TargetIntent()
        self.now = BEGIN
        self.gated = gated
        self.ref = ref
        self.slots = slots
        self.news: list[str] = []
        self.lines: list[str] = []
        self.last = Decision()
        self.target: TargetState | None = None

    # --- changes of the world -----------------------------------------------------------------------------------------

    def later(self, seconds: float) -> "Story":
        self.now += int(seconds * 1000)
        return self

    def fact(self, name: str, fact: Fact, said: str) -> "Story":
        """Set the fact of the unit's latest attempt."""
        attempt = self.run.unit(name).attempt
        self.facts[name, attempt] = fact
        self.news.append(f"{name}#{attempt} {said}")
        return self

    def held(self, name: str, ref: str) -> "Story":
        """Prepare the unit's next attempt behind its gate."""
        attempt = self.run.unit(name).attempt + 1
        self.facts[name, attempt] = Prepared(ref=ref)
        self.news.append(f"{name}#{attempt} is held as {ref}")
        return self

    def taken(self, name: str) -> "Story":
        """Remove the next attempt from behind its gate before it is claimed."""
        attempt = self.run.unit(name).attempt + 1
        self.facts[name, attempt] = NeverRan(reason="Deleted", message="deleted behind its gate")
        self.news.append(f"somebody deletes {name}#{attempt} behind its gate")
        return self

    def runs(self, name: str, *, ready: bool = True) -> "Story":
        return self.fact(name, Running(since=self.now, ready=ready), "runs" if ready else "runs, and does not answer")

    def waits(self, name: str, message: str) -> "Story":
        return self.fact(name, Waiting(since=self.now, reason="Starting", message=message), f"waits: {message}")

    def ends(self, name: str) -> "Story":
        return self.fact(name, Ended(result=succeeded(self.now)), "has succeeded")

    def fails(self, name: str, message: str = "exit code 1") -> "Story":
        before = self.facts.get((name, self.run.unit(name).attempt))
        since = before.since if isinstance(before, Running) else self.now
        return self.fact(name, Ended(result=failed(since, self.now, message=message)), f"has failed: {message}")

    def seals(self, name: str) -> "Story":
        return self.fact(name, Sealed(result=succeeded(self.now)), "has sealed a success and is still ending")

    def never(self, name: str) -> "Story":
        return self.fact(
            name, NeverRan(reason="NeverRan", message="fenced before it started"), "is proven never to have run"
        )

    def stalls(self, name: str) -> "Story":
        return self.fact(name, Stalled(since=self.now), "stands still: nobody is there to start it")

    def unclear(self, name: str, *, seconds: int, message: str = "its node is gone") -> "Story":
        fact = Unclear(since=self.now, reason="NodeLost", message=message, dead_by=self.now + seconds * 1000)
        return self.fact(name, fact, f"cannot be seen: {message}")

    def wishes(self, said: str, **wish: object) -> "Story":
        fields = {name: getattr(self.intent, name) for name in self.intent.__struct_fields__}
        self.intent = TargetIntent(**{**fields, **wish})
        self.news.append(said)
        return self

    def target_is(self, said: str, **state: bool) -> "Story":
        """Set the state of a target that starts and stops by itself."""
        self.target = TargetState(**state)
        self.news.append(said)
        return self

    def says(self, said: str) -> "Story":
        self.news.append(said)
        return self

    # --- decisions ----------------------------------------------------------------------------------------------------

    def turn(self, *, commits: bool = True, performs: bool = True) -> "Story":
        """Decide, commit and report. A turn that is killed commits without effects, or does neither."""
        alive = sum(record.state in (State.CLAIMED, State.UNKNOWN) for record in self.run.units.values())
        world = World(
            run=self.run,
            intent=self.intent,
            facts=dict(self.facts),
            target=self.target,
            gated_kinds=GATED if self.gated else frozenset(),
            ref=self.ref,
            slots=max(self.slots - alive, 0),
        )
        decision = self.last = decide(self.plan, world, self.now)
        told = phrase(decision)
        if not commits:
            told += " [killed before any of it]"
        elif not performs:
            told += " [killed once it was written]"
        why = "; ".join(
            f"{wait.unit} {messages.render(wait.message, wait.since, wait.until, self.now)}"
            for wait in decision.waits
            if wait.unit
        )
        seen = "; ".join(self.news) or "nothing new"
        self.lines.append(
            f"{format_duration(self.now - BEGIN)}: {seen} -> {told or 'nothing'}" + (f" | {why}" if why else "")
        )
        self.news = []
        if commits and decision.moves:
            creates = self.plan.steps
            self.run = transitions.apply(self.run, decision.moves, lambda n: n not in creates or creates[n].creates)
        if commits and performs:
            for effect in decision.effects:
                if isinstance(effect, Release):
                    del self.facts[effect.unit, effect.attempt]
        return self

    def text(self, title: str) -> str:
        return "\n".join((f"# {title}", "", *self.lines, ""))


def phrase(decision: Decision) -> str:
    """Return the decision as text."""
    claimed = {(move.unit, move.attempt) for move in decision.moves if isinstance(move, Claim)}
    launched = {(effect.unit, effect.attempt) for effect in decision.effects if isinstance(effect, Launch)}
    parts = []
    for action in (*decision.moves, *decision.effects):
        both = isinstance(action, (Claim, Launch)) and (action.unit, action.attempt) in claimed & launched
        if both and isinstance(action, Launch):
            continue
        parts.append("claim and launch " + _name(action) if both else _say(action))
    return ", ".join(parts)


def _name(action: Move | Effect) -> str:
    return f"{action.unit}#{action.attempt}"


def _say(action: Move | Effect) -> str:
    match action:
        case Record(result=result):
            return f"record {_name(action)} {result.outcome}" + (f" ({result.reason})" if result.reason else "")
        case Doubt() | Void():
            return f"{type(action).__name__.lower()} {_name(action)} ({action.reason})"
        case Fence() | Cancel():
            return f"{type(action).__name__.lower()} {_name(action)} ({action.message})"
        case Close(request=request):
            return f"close ({request.message or request.reason})"
        case GiveUp(request=request):
            return f"give up ({request.message}, by {request.by})"
        case Started() | Stopped():
            return f"note that the target has {type(action).__name__.lower()}"
        case Finish():
            return "finish"
        case Dissolve():
            return "dissolve"
        case Claim() | Launch() | Prepare() | Recall() | Release():
            return f"{type(action).__name__.lower()} {_name(action)}"
