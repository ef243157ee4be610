"""The real Helm, without the settings of this machine's user."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from testcluster import build
from tests.examples.external_services import missing


class Helm:
    """Runs Helm with folders for its cache and settings in `home`."""

    def __init__(self, home: Path) -> None:
        try:
            self._program = build.helm()
        except build.UnavailableError as problem:
            missing(str(problem))
        kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME"}}
        self._environment = kept | {f"HELM_{kind}_HOME": str(home / kind) for kind in ("CACHE", "CONFIG", "DATA")}

    def __call__(self, *arguments: object, kubeconfig: object = os.devnull) -> subprocess.CompletedProcess[str]:
        """Run one command and return its completed process."""
        environment = self._environment | {"KUBECONFIG": str(kubeconfig)}
        command = [self._program, *map(str, arguments)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
