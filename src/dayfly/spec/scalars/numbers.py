"""Whole numbers in documents, headers and annotations: ASCII digits, with a limit.

Python's `int` also accepts digits of other scripts, and raises ValueError for thousands of digits. This module imports
nothing, because the command line's start-up time matters.
"""

MAX_INTEGER = (1 << 63) - 1
"""The largest number in ledgers and databases."""
MAX_PORT = 65_535


def parse_whole(text: str, most: int) -> int | None:
    """Return a number from 0 to `most`; None for any other text."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None


def parse_port(text: str) -> int | None:
    """Return a port from 1; None for any other text."""
    return parse_whole(text, MAX_PORT) or None
