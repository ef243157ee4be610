"""A trace as text: the actor and the action, one line for each step."""

from tests.model.engine import CONST, OPS, Engine
from tests.model.product import Product

from dayfly.spec.run import Run

STEPS = {value: name for name, value in CONST.items() if name.startswith("STEP_")}
EFFECTS = {value: name for name, value in CONST.items() if name.startswith("EFFECT_")}
VIOLATIONS = {
    CONST[name]: (name, text)
    for name, text in {
        "TWO_ALIVE": "two attempts of it run at once",
        "TWICE": "it runs again, and may not",
        "NO_CLAIM": "no ledger ever held this pod's UID",
        "ORDER": "that is out of order",
        "AFTER_END": "its run has ended already",
        "LEAK": "an object of it is left, or was never cleaned up",
        "VANISHED": "its result is in no ledger",
        "LEDGER_LOST": "the ledger vanishes with claims in it",
        "ILLEGAL": "the table holds no such move",
        "TWO_STARTS": "one container runs twice",
        "NOT_CLOSED": "the run is closed, and a create unit is claimed",
        "WRONG_IMAGE": "a script runs in an image that is not its own",
        "STUCK": "from here the end cannot be reached",
    }.items()
}
WHAT = {
    "EFFECT_PREPARE": "creates {pod} behind its gate",
    "EFFECT_LAUNCH": "takes the gate off {pod}",
    "EFFECT_DELETE": "deletes {pod}",
    "EFFECT_UNFINALIZE": "takes the finalizer off {pod}",
    "EFFECT_TARGET_DELETE": "deletes the target",
    "EFFECT_TARGET_UNFINALIZE": "takes the finalizer off the target",
    "EFFECT_RUN_UNFINALIZE": "takes the finalizer off the Run",
    "EFFECT_RUN_DELETE": "deletes the Run",
    "EFFECT_RECALL": "recalls {pod}",
    "EFFECT_OBJECT_LOOK": "checks whether {pod} is permitted, and creates it unless it then pauses",
    "EFFECT_OBJECT_POST": "makes {pod}",
    "EFFECT_OBJECT_AGAIN": "checks again whether {pod} was permitted, and deletes it if not",
    "EFFECT_OBJECT_RELEASE": "lets {pod} go, which is at rest",
    "EFFECT_OBJECT_REMOVE": "deletes {pod}",
    "EFFECT_OBJECT_CLEAR": "takes our finalizer off what is left of {pod}",
    "EFFECT_UNBORN": "deletes the Run, which it believes empty",
    "EFFECT_UNBORN_UNFINALIZE": "takes the finalizer off the Run, if it is empty still",
}
# The place of these effects is a name. The object with that name is known when they are carried out.
OF_NAMES = frozenset(
    f"EFFECT_{each}" for each in ("PREPARE", "OBJECT_LOOK", "OBJECT_POST", "OBJECT_REMOVE", "OBJECT_CLEAR")
)
WORLD = {
    "STEP_USER_STOP": "a user deletes the target",
    "STEP_TTL": "the target's time to live is over",
    "STEP_USER_DELETE": "a user deletes {pod}",
    "STEP_STRIP": "a user strips {pod} of its finalizer and deletes it by force",
    "STEP_STRIP_TARGET": "a user strips the target of our finalizer",
    "STEP_TARGET_STARTS": "the target starts by itself",
    "STEP_TARGET_STOPS": "the target stops, for good",
    "STEP_BIND": "{pod} is bound to a node",
    "STEP_START": "the script of {pod} starts",
    "STEP_AGAIN": "the kubelet starts the container of {pod} a second time",
    "STEP_OBJECT_BEGINS": "the controller of {pod} takes it up",
    "STEP_OBJECT_READY": "{pod} is ready",
    "STEP_OBJECT_FAILS": "{pod} has failed",
    "STEP_OBJECT_TAKEN_APART": "the controller of {pod} has taken it apart",
    "STEP_SEAL": "{pod} seals its receipt",
    "STEP_END": "every process of {pod} has ended",
    "STEP_KILL": "{pod} is killed",
    "STEP_STATUS": "the kubelet reports on {pod}",
    "STEP_STATUS_LOST": "the kubelet reports {pod} as ended and knows no more of it: ContainerStatusUnknown",
    "STEP_REFUSE": "the kubelet reports that {pod} never started",
    "STEP_LACK": "the kubelet reports that the image of {pod} is missing",
    "STEP_VOID": "the recall of {pod} seals that it never began",
    "STEP_AGAIN_VOID": "the recall of {pod} seals that it never began, though it did",
    "STEP_AGAIN_REFUSED": "the recall of {pod} cannot look for the marker, and says so",
    "STEP_START_SPARE": "the recall of {pod} starts the script in its own image",
    "STEP_NODE_LOST": "the node of {pod} falls silent",
    "STEP_DEAD_BY": "the time is over by which {pod} is dead, whatever it was",
    "STEP_COLLECT": "the garbage collector deletes {pod}, whose Run is gone",
}


class Trace:
    """The path of one search to a state, or to the step that violates an invariant."""

    def __init__(self, engine: Engine, product: Product, uids: int) -> None:
        self._engine, self._product, self._uids = engine, product, uids
        self._who = list(range(OPS))

    def tell(self, at: int, violation: int, label: int) -> str:
        lines = []
        for _, step in self._engine.way_to(at):
            lines.append(self._line(step))
            self._reorder(step)
        name, text = VIOLATIONS[violation]
        if name != "STUCK":
            lines.append(self._line(label))
        lines.append(f"{name}: {text}")
        return "\n".join(f"{number:3}. {line}" for number, line in enumerate(lines, 1))

    def _reorder(self, label: int) -> None:
        order = label >> 40 & 0xFF
        self._who = [self._who[order >> 2 * place & 3] for place in range(OPS - 1)] + self._who[-1:]

    def _pod(self, at: int) -> str:
        name, uid = divmod(at, self._uids)
        unit, attempt = divmod(name, CONST["MAX_ATTEMPTS"])
        again = f" (uid {uid + 1})" if uid else ""
        return f"{self._product.names[unit]}#{attempt + 1}{again}"

    def _line(self, label: int) -> str:
        kind, at, detail = STEPS[label >> 48], label >> 24 & 0xFFF, label & 0xFFFFFF
        if kind in WORLD:
            failed = ", it has failed" if kind == "STEP_SEAL" and detail else ""
            return WORLD[kind].format(pod=self._pod(at)) + failed
        who = f"operator {self._who[label >> 36 & 0xF] + 1}"
        match kind:
            case "STEP_BIRTH":
                return f"{who} posts Run {detail}"
            case "STEP_FENCE":
                if not detail:
                    return f"{who} sees to it that the target carries our finalizer"
                return f"{who} finds the target gone or going: {self._effects(detail)}"
            case "STEP_DECIDE":
                seen = " sees the target deleted and" if at else ""
                return f"{who}{seen} decides: {self._decision(detail)}"
            case "STEP_COMMIT":
                return f"{who} writes the ledger: {self._ledger(self._engine.decision(detail).ledger)}"
            case "STEP_EFFECT":
                return f"{who} {WHAT[EFFECTS[detail]].format(pod=self._pod(at))}"
            case "STEP_SWEEP":
                return f"{who} finds {self._pod(at)}, whose Run is gone"
            case "STEP_CRASH":
                return f"{who} crashes and comes back"
            case _:
                return f"{who} gets no answer and drops the rest of its turn"

    def _decision(self, number: int) -> str:
        ledger = self._engine.decision(number).ledger
        write = f"write {self._ledger(ledger)}" if ledger else ""
        return "; ".join(filter(None, (write, self._effects(number)))) or "nothing"

    def _effects(self, number: int) -> str:
        decision = self._engine.decision(number)
        said = []
        for place in range(decision.count):
            kind, at = EFFECTS[decision.kind[place]], decision.at[place]
            pod = self._pod(at * self._uids if kind in OF_NAMES else at)
            said.append(WHAT[kind].format(pod=pod))
        return ", ".join(said)

    def _ledger(self, number: int) -> str:
        run: Run | None = self._product.runs[number]
        assert run is not None, "a write has a ledger"
        units = ", ".join(
            f"{name}#{record.attempt} {record.outcome if record.state == 'done' else record.state}"
            for name, record in run.units.items()
        )
        return f"{run.phase}({units})"
