"""The search as a library: built by the machine's C compiler, its words and structures read from `search.h`."""

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
HEADER = (HERE / "search.h").read_text()


def _constants(text: str) -> dict[str, int]:
    """Every enumerator of the header, so that no number is written twice."""
    found: dict[str, int] = {}
    plain = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    for body in re.findall(r"enum\s*\w*\s*\{(.*?)\}", plain, flags=re.DOTALL):
        following = 0
        for item in filter(None, (part.strip() for part in body.split(","))):
            name, _, value = (part.strip() for part in item.partition("="))
            shift = [int(part) for part in value.split("<<")] if value else [following]
            following = shift[0] << (shift[1] if len(shift) > 1 else 0)
            found[name] = following
            following += 1
    return found


CONST = _constants(HEADER)
# The guards of the operator that may be taken away.
MUTATIONS = _constants(re.findall(r"enum Mutation \{.*?\};", HEADER, flags=re.DOTALL)[0])
UNITS, NAMES, PODS, OPS, EFFECTS = (CONST[f"MAX_{what}"] for what in ("UNITS", "NAMES", "PODS", "OPS", "EFFECTS"))


class LedgerView(ctypes.Structure):
    """`Ledger` of search.h."""

    _fields_ = (
        *((name, ctypes.c_uint8) for name in ("phase", "uid", "empty")),
        *((name, ctypes.c_uint8 * UNITS) for name in ("attempt", "state", "succeeded", "ref")),
    )


class Decision(ctypes.Structure):
    """`Decision` of search.h."""

    _fields_ = (
        ("ledger", ctypes.c_uint16),
        ("count", ctypes.c_uint8),
        ("illegal", ctypes.c_uint8),
        ("kind", ctypes.c_uint8 * EFFECTS),
        ("at", ctypes.c_uint8 * EFFECTS),
    )


class Question(ctypes.Structure):
    """`Question` of search.h."""

    _fields_ = (
        ("ledger", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("stop", "expired", "overdue", "lives", "began", "rests")),
        ("fact", ctypes.c_uint8 * NAMES),
        ("seen", ctypes.c_uint8 * NAMES),
    )


class Config(ctypes.Structure):
    """`Config` of search.h."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("units", "ops", "uids")),
        *((name, ctypes.c_int * UNITS) for name in ("role", "starts", "needs", "object", "makes")),
        ("mutations", ctypes.c_uint32),
        ("faults", ctypes.c_uint32),
        ("budget", ctypes.c_int),
        ("most", ctypes.c_uint32),
        ("ignored", ctypes.c_uint32),
        ("liveness", ctypes.c_int),
    )


class Op(ctypes.Structure):
    """`Op` of search.h."""

    _fields_ = (
        ("ledger", ctypes.c_uint16),
        ("decision", ctypes.c_uint16),
        ("at", ctypes.c_uint8),
        ("fenced", ctypes.c_uint8),
    )


class State(ctypes.Structure):
    """`State` of search.h."""

    _fields_ = (
        ("ledger", ctypes.c_uint16),
        *((name, ctypes.c_uint8) for name in ("run", "target", "spent", "pad")),
        ("pod", ctypes.c_uint16 * PODS),
        ("op", Op * OPS),
    )


class Result(ctypes.Structure):
    """`Result` of search.h."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("states", "depth", "beyond")),
        ("edges", ctypes.c_uint64),
        ("violation", ctypes.c_int),
        ("at", ctypes.c_uint32),
        ("label", ctypes.c_uint64),
        ("complete", ctypes.c_int),
    )


DECIDE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Question), ctypes.POINTER(Decision))
SUMMARY = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.POINTER(LedgerView))


class Engine:
    """One loaded search; it only holds the states of the latest search."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        assert compiler, "the model needs a C compiler, as the runner does (scripts/test-deps.sh)"
        library = folder / "model.so"
        sources = [str(HERE / name) for name in ("answers.c", "world.c", "turns.c", "objects.c", "search.c")]
        flags = ["-O2", "-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
        subprocess.run([compiler, *flags, "-o", str(library), *sources], check=True)
        self._library = ctypes.CDLL(str(library))
        self._library.model_decision.restype = ctypes.POINTER(Decision)

    def search(
        self,
        config: Config,
        decide: Callable[[Question, Decision], int],
        summarize: Callable[[int, LedgerView], None],
    ) -> Result:
        """Search all states, or until the first violation. Errors of the callbacks are raised here."""
        raised: list[BaseException] = []

        def ask(question: "ctypes._Pointer[Question]", out: "ctypes._Pointer[Decision]") -> int:
            try:
                return decide(question.contents, out.contents)
            except Exception as error:  # noqa: BLE001 - it cannot pass through C; raised below
                raised.append(error)
                out.contents.illegal = 1
                return 0

        def tell(number: int, out: "ctypes._Pointer[LedgerView]") -> None:
            summarize(number, out.contents)

        result = Result()
        callbacks = DECIDE(ask), SUMMARY(tell)
        self._library.search(ctypes.byref(config), *callbacks, ctypes.byref(result))
        if raised:
            raise raised[0]
        return result

    def way_to(self, at: int) -> list[tuple[State, int]]:
        """The steps that lead to a state: each label with the state after it."""
        most = 10_000
        states, labels = (State * most)(), (ctypes.c_uint64 * most)()
        steps = self._library.way_to(ctypes.c_uint32(at), ctypes.c_uint32(most), states, labels)
        return [(State.from_buffer_copy(states[i]), labels[i]) for i in reversed(range(steps))]

    def decision(self, number: int) -> Decision:
        """One decision of the latest search."""
        found: Decision = self._library.model_decision(number).contents
        return found
