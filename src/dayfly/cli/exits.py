"""The exit codes, and the error that carries one of them to the end of the program: the library's own."""

from __future__ import annotations

from dayfly.client.errors import DayflyError as CliError
from dayfly.client.errors import Exit, not_there

__all__ = ["CliError", "Exit", "not_there"]
