"""The rig lies beside these tests: a package called `operator` would stand in the way of the standard library's."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
