"""Search one case and report the outcome."""

import time
from typing import NamedTuple

from tests.model.cases import PLANS, Case
from tests.model.engine import Engine
from tests.model.product import Product
from tests.model.prose import VIOLATIONS, Trace


class Outcome(NamedTuple):
    """The outcome of a search; `violation` is empty if there is none."""

    violation: str
    trace: str
    states: int
    edges: int
    depth: int
    beyond: int
    complete: bool
    ledgers: int
    seconds: float


def search(engine: Engine, case: Case) -> Outcome:
    """To the fixpoint, or to the first violation."""
    config = case.config()
    product = Product(PLANS[case.plan], config)
    began = time.process_time()
    result = engine.search(config, product.decide, product.summarize)
    seconds = time.process_time() - began
    name = trace = ""
    if result.violation:
        name = VIOLATIONS[result.violation][0]
        trace = Trace(engine, product, case.uids).tell(result.at, result.violation, result.label)
    return Outcome(
        violation=name,
        trace=trace,
        states=result.states,
        edges=result.edges,
        depth=result.depth,
        beyond=result.beyond,
        complete=bool(result.complete),
        ledgers=len(product.runs) - 1,
        seconds=seconds,
    )
