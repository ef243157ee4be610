"""YAML manifests, read with libyaml if it is installed: PyYAML's own parser takes seconds for our CRDs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def documents(text: str | Path) -> list[Any]:
    """Return the documents of a text or of a file."""
    return list(yaml.load_all(text.read_text() if isinstance(text, Path) else text, _LOADER))
