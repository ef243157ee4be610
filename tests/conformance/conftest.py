"""What both hosts' rigs need."""

import sys
from pathlib import Path

from embedded.conftest import machine, runner  # noqa: F401 - fixtures

sys.path.insert(0, str(Path(__file__).parents[1] / "operator"))
