"""The text format of Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def metric_lines(name: str, kind: str, help_: str, samples: Iterable[tuple[Mapping[str, str], float]]) -> Iterator[str]:
    """Yield the lines of a metric with its samples: labels and value."""
    yield f"# HELP {name} {help_}\n# TYPE {name} {kind}\n"
    for labels, value in samples:
        written = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
        yield f"{name}{{{written}}} {float(value)}\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
