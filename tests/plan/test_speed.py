"""A decision about 64 units takes less than a millisecond."""

import statistics
import time

from tests.plan.builders import after, born, claim, document, done, plan_of, unit, world

from dayfly.plan.decide import decide
from dayfly.plan.world import Running

# Eight resources of eight steps. Each step reads the one before it, and the first step of the resource before.
DOCUMENTS = tuple(
    document(
        f"r{number}",
        pre_start=tuple(
            unit(
                f"step{step}",
                *([f"step{step - 1}"] if step else []),
                *([f"r{number - 1}/step0"] if number else []),
            )
            for step in range(6)
        ),
        post_stop=(unit("drop", "step0"), unit("forget", "drop")),
    )
    for number in range(8)
)
PLAN = plan_of(*DOCUMENTS)


def middle():
    """Return a ledger in which half of the create steps are done and eight run."""
    run = done(PLAN, born(PLAN), *(f"r{number}/step{step}" for number in range(8) for step in range(3)))
    run = after(PLAN, run, *(claim(f"r{number}/step3") for number in range(8)))
    return world(run, facts={(f"r{number}/step3", 1): Running(since=0) for number in range(8)})


def test_a_decision_is_quick():
    assert len(PLAN.steps) == 64
    for where in (world(born(PLAN)), middle()):
        times = []
        for _ in range(200):
            begin = time.process_time_ns()
            decide(PLAN, where, 1_000)
            times.append(time.process_time_ns() - begin)
        assert statistics.median(times) < 1_000_000
