"""Texts with the place of their fault: the sign § precedes the faulty key or item."""

import pytest

from dayfly.spec import documents
from dayfly.spec.errors import SpecError
from dayfly.spec.parsing import template, text


def marked(source: str) -> tuple[str, int, int]:
    """Return the text without its sign, and the sign's line and column from 1."""
    at = source.index("§")
    return source.replace("§", ""), source.count("\n", 0, at) + 1, at - source.rfind("\n", 0, at)


def load(source: str, **variables: str) -> documents.TypedDocument:
    """Return the typed document of a text. Embedded files are refused."""

    def read(path: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", path)

    document = text.parse_one(source, file="x.yaml")
    return documents.load(template.expand(document, variables, read))


def refusal(source: str, **variables: str) -> SpecError:
    """Return the error for a text. It must have the place of the sign."""
    plain, line, column = marked(source)
    with pytest.raises(SpecError) as caught:
        load(plain, **variables)
    error = caught.value
    assert (error.file, error.line, error.column) == ("x.yaml", line, column), str(error)
    assert "\n" not in str(error)
    return error
