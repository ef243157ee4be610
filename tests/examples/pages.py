"""The commands of a page: its blocks marked `sh`."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands(page: Path) -> str:
    """Return all commands of a page as one script that stops at the first failure and prints each command."""
    blocks = _BLOCK.findall(page.read_text())
    assert blocks, f"{page} has no commands"
    return "set -eux\n" + "\n".join(blocks)


def follow(page: Path, folder: Path, environment: Mapping[str, str], seconds: float = 110) -> str:
    """Type a page's commands in `folder`; returns what they print on standard output."""
    ended = subprocess.run(
        ["/bin/sh", "-c", commands(page)],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert ended.returncode == 0, f"{page} ended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    return ended.stdout
