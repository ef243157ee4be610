"""Objects of manifests, read by libyaml where that is: PyYAML's own reader takes seconds for our definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str | Path) -> list[Any]:
    """Each document of a text, or of a file."""
    return list(yaml.load_all(text.read_text() if isinstance(text, Path) else text, _LOADER))
