"""A build hook for `pip install .`: it adds the runner for each architecture, the page and the gallery."""

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ARCHITECTURES = ("x86_64", "aarch64")
# Variables of the build environment, which would mislead another Python that the build starts.
NOT_OURS = ("PYTHONPATH", "PYTHONHOME", "PYTHONNOUSERSITE", "VIRTUAL_ENV")


class Runners(BuildHookInterface):
    """Build the programs with `runner/build.sh`, which downloads its pinned compiler once, and the page."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the files, unless this installs the checkout itself, which builds its own."""
        if version == "editable":
            return
        self.made = tempfile.TemporaryDirectory()  # removed with this object, after packing
        environment = {name: value for name, value in os.environ.items() if name not in NOT_OURS}
        for architecture in ARCHITECTURES:
            program = Path(self.made.name, architecture)
            build = Path(self.root, "runner", "build.sh")
            subprocess.run([build, program, architecture], check=True, env=environment)
            build_data["force_include"][str(program)] = f"dayfly/runners/{architecture}"
        # Built by scripts/page.sh, with Node from this machine or PyPI.
        subprocess.run([Path(self.root, "scripts", "page.sh")], check=True, env=environment)
        static = Path(self.root, "src", "dayfly", "page", "static")
        for path in sorted(path for path in static.rglob("*") if path.is_file()):
            build_data["force_include"][str(path)] = f"dayfly/page/static/{path.relative_to(static)}"
        examples = Path(self.root, "examples")
        for plugin in sorted(examples.glob("*/plugin.yaml")):  # the templates of `dayfly plugin init --from`
            for path in sorted(plugin.parent.rglob("*")):
                if path.is_file() and "__pycache__" not in path.parts:
                    build_data["force_include"][str(path)] = f"dayfly/gallery/{path.relative_to(examples)}"
