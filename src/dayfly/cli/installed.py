"""How we came here: from a checkout, or as an installed package. Either has its own way to what is missing."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[3]


def checkout() -> Path | None:
    """The checkout we run from, if we do."""
    return _ROOT if (_ROOT / "runner" / "build.sh").is_file() else None


def packaged_runner() -> Path | None:
    """The runner program that the package brought along for this machine."""
    program = Path(__file__).resolve().parents[1] / "runners" / os.uname().machine
    return program if os.access(program, os.X_OK) else None


def gallery() -> Path:
    """The folder of the examples: the checkout's, or what the package brought along of it."""
    root = checkout()
    return root / "examples" if root else Path(__file__).resolve().parents[1] / "gallery"


def operators_part() -> str:
    """How one comes to what speaks with clusters."""
    return part("operator")


def part(extra: str) -> str:
    """How one comes to what an extra has; a checkout's one environment for clusters has all of them."""
    root = checkout()
    if root is not None:
        return f"install it with: {root}/scripts/setup.sh operator"
    return f"install Dayfly with its extra, from its checkout: pip install 'CHECKOUT[{extra}]'"
