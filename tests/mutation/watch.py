"""Which tests should notice a change of which file: stages, the quick ones first, each asked where those before it were silent."""

from __future__ import annotations

from pathlib import Path

from mutation.plant import ROOT

OTHERS = ("test_speed.py", "test_reasons.py")  # of seconds, and of the package's own texts
SLOW = "test_total.py"
SCHEDULES = "tests/mutation/schedules.py"
WHOLE_LIVES = ("tests/operator/test_ahead.py", "tests/operator/test_troubles.py", "tests/operator/test_pods.py")

# By the beginning of the file's path; the longest that fits holds.
STAGES: dict[str, tuple[tuple[str, ...], ...]] = {
    "plan/": ((SCHEDULES,), WHOLE_LIVES),
    "execute/": (("tests/execute", "tests/policy/test_policy.py"), WHOLE_LIVES, ("tests/operator/test_forks.py",)),
    "execute/process/": (("tests/execute", "tests/embedded/test_starting.py"), ("tests/embedded",)),
    "execute/fork/": (("tests/execute",), ("tests/operator/test_forks.py", "tests/operator/test_strangers.py")),
    "execute/turn.py": (("tests/simulator/test_turn.py",), (SCHEDULES,)),
    "embedded/": (("tests/simulator/test_ledger.py",), ("tests/embedded",)),
    "operator/": (
        ("tests/operator/test_second_line.py", "tests/operator/test_strangers.py", "tests/operator/test_runs.py"),
        WHOLE_LIVES,
        ("tests/operator",),
    ),
    "operator/forks/": (("tests/operator/test_forks.py", "tests/operator/test_strangers.py"), ("tests/operator",)),
}


def stages(file: str) -> list[tuple[str, ...]]:
    """The tests of one file of the package, in stages."""
    found = list(STAGES[max((each for each in STAGES if file.startswith(each)), key=len)])
    if file.startswith("plan/"):
        every = sorted(each.name for each in (ROOT / "tests" / "plan").glob("test_*.py"))
        own = f"test_{Path(file).name}"
        quick = sorted((name for name in every if name not in OTHERS), key=lambda name: (name == SLOW, name != own))
        found.insert(0, tuple(f"tests/plan/{name}" for name in quick))
    return found
