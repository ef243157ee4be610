"""The meaning of unquoted words in YAML 1.1, as Kubernetes reads it."""

from __future__ import annotations

import re
from typing import Any

MIN_INTEGER, INTEGER_LIMIT = -(2**63), 2**64
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **{form: True for word in ("y", "yes", "on", "true") for form in (word, word.capitalize(), word.upper())},
    **{form: False for word in ("n", "no", "off", "false") for form in (word, word.capitalize(), word.upper())},
}
_INTEGER = re.compile(r"([-+]?)(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO]?[0-7_]+|0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_BASES = {"0x": 16, "0b": 2, "0o": 8}


def resolve(word: str) -> Any:
    """Return the value of an unquoted word: None, a boolean, an integer, a float, or the word.

    Raises:
        ValueError: Infinity or not a number, which JSON cannot represent.
    """
    if word in _WORDS:
        return _WORDS[word]
    if match := _INTEGER.fullmatch(word):
        digits = match[2].replace("_", "").lower()
        base = _BASES.get(digits[:2], 8 if digits[0] == "0" else 10)
        number = int(match[1] + digits, base) if len(digits) <= 66 and digits not in _BASES else INTEGER_LIMIT
        if MIN_INTEGER <= number < INTEGER_LIMIT:
            return number
    if _FLOAT.fullmatch(word):
        value = float(word.replace("_", ""))
        if value in (float("inf"), float("-inf")):
            raise ValueError(word)
        return value
    if _NOT_FINITE.fullmatch(word):
        raise ValueError(word)
    return word


def is_plain(word: str) -> bool:
    """Return whether a word without quotes would stay a string."""
    try:
        return isinstance(resolve(word), str)
    except ValueError:
        return False
