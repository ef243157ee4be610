"""What `pip install .` puts into the wheel beside our modules: the runner for either architecture, page and gallery."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHITECTURES = ("x86_64", "aarch64")
# Of whoever builds: a Python of its own, started by the build, would take them for its own.
NOT_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV")


class Runners(BuildHookInterface):
    """Builds the programs by `runner/build.sh`, which fetches its compiler once, as locked; and the page likewise."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add them, unless what is installed is the checkout itself, which builds its own."""
        if version == "editable":
            return
        self.made = tempfile.TemporaryDirectory()  # gone with us, when they have been packed
        environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        for architecture in ARCHITECTURES:
            program = Path(self.made.name, architecture)
            build = Path(self.root, "runner", "build.sh")
            subprocess.run([build, program, architecture], check=True, env=environment)
            build_data["force_include"][str(program)] = f"dayfly/runners/{architecture}"
        # Built by scripts/page.sh, with this machine's Node or PyPI's.
        subprocess.run([Path(self.root, "scripts", "page.sh")], check=True, env=environment)
        static = Path(self.root, "src", "dayfly", "page", "static")
        for path in sorted(path for path in static.rglob("*") if path.is_file()):
            build_data["force_include"][str(path)] = f"dayfly/page/static/{path.relative_to(static)}"
        examples = Path(self.root, "examples")
        for plugin in sorted(examples.glob("*/plugin.yaml")):  # what `dayfly plugin init --from` can begin with
            for path in sorted(plugin.parent.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    build_data["force_include"][str(path)] = f"dayfly/gallery/{path.relative_to(examples)}"
