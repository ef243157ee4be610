"""Whole numbers as people, headers and notes write them: in ASCII digits, and no more of them than the largest has.

Python takes the digits of every script for a number, and of some thousands of them makes none at all (ValueError).
Nothing is imported here: the command line counts its milliseconds.
"""

MOST = (1 << 63) - 1
"""The largest that ledgers and databases keep."""
MOST_PORT = 65_535


def whole(text: str, most: int) -> int | None:
    """A number from 0 to `most`; None for anything else."""
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None


def port(text: str) -> int | None:
    """A port from 1 on; None for anything else."""
    return whole(text, MOST_PORT) or None
