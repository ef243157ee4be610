"""Every search with its size and time, and every mutant with its shortest trace:

PYTHONPATH=src python -m tests.model [long]
"""

import sys
import tempfile
from pathlib import Path

from tests.model.cases import LONG, QUICK
from tests.model.engine import Engine
from tests.model.mutants import MUTANTS, applied
from tests.model.searches import search


def main() -> None:
    """Print them all; `long` adds the searches that take longer."""
    with tempfile.TemporaryDirectory() as folder:
        engine = Engine(Path(folder))
        for name, case in (QUICK | (LONG if "long" in sys.argv else {})).items():
            found = search(engine, case)
            print(
                f"| {name} | {found.states:,} | {found.edges:,} | {found.depth} | {found.ledgers} | {found.seconds:.1f} s |"
            )
            print(f"{found.violation}\n{found.trace}" if found.violation else "", end="", flush=True)
        for mutant in MUTANTS:
            with applied(mutant):
                found = search(engine, mutant.case)
            print(f"\n{mutant.name} ({found.states:,} states):\n{found.trace or 'nothing was found'}")


if __name__ == "__main__":
    main()
