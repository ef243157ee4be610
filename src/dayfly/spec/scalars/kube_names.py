"""Names that Kubernetes accepts, and messages for other names.

Names become segments of request paths. So these functions check the input of people and programs, and the
CustomResourceDefinitions use the same patterns.
"""

from __future__ import annotations

import re

from dayfly.spec.errors import Path, SpecError, quote

LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
"""Pattern of a DNS label: the name of a namespace or container, at most `MAX_LABEL_LENGTH` long."""
OBJECT = rf"{LABEL}(\.{LABEL})*"
"""Pattern of a DNS subdomain: the name of an object, at most `MAX_OBJECT_LENGTH` long."""
KEY = r"[-._a-zA-Z0-9]+"
"""Pattern of a key of a ConfigMap or Secret, at most `MAX_OBJECT_LENGTH` long."""
QUALIFIED = rf"({OBJECT}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
"""Pattern of the key of a label or annotation."""
LABEL_VALUE = "([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
"""Pattern of the value of a label, at most `MAX_LABEL_LENGTH` long."""
CONDITION = "[A-Za-z0-9]([-A-Za-z0-9_./]*[A-Za-z0-9])?"
"""Pattern of the type of a condition, at most `MAX_CONDITION_LENGTH` long."""
API_VERSION = rf"({OBJECT}/)?v[0-9]+((alpha|beta)[0-9]+)?"
HOST = r"[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*\.?"
"""Pattern of a host: a name, or an IPv4 address."""
MAX_LABEL_LENGTH, MAX_OBJECT_LENGTH, MAX_QUALIFIED_LENGTH, MAX_CONDITION_LENGTH = 63, 253, 317, 316

_LABEL_FORM = (
    f'write at most {MAX_LABEL_LENGTH} lower-case letters, digits and "-", with a letter or digit first and last'
)


def is_label(text: str) -> bool:
    """Return whether it is a DNS label, the form of names of namespaces and containers."""
    return len(text) <= MAX_LABEL_LENGTH and re.fullmatch(LABEL, text) is not None


def is_object(text: str) -> bool:
    """Return whether it is a DNS subdomain, the form of names of objects."""
    return len(text) <= MAX_OBJECT_LENGTH and re.fullmatch(OBJECT, text) is not None


def is_key(text: str) -> bool:
    """Return whether it is a valid key of a ConfigMap or Secret."""
    return len(text) <= MAX_OBJECT_LENGTH and re.fullmatch(KEY, text) is not None


def is_qualified(text: str) -> bool:
    """Return whether it is a valid key of a label or annotation."""
    prefix, _, name = text.rpartition("/")
    short = len(prefix) <= MAX_OBJECT_LENGTH and len(name) <= MAX_LABEL_LENGTH
    return short and re.fullmatch(QUALIFIED, text) is not None


def check_namespace(name: str, keys: Path) -> None:
    """Refuse an invalid name of a namespace."""
    if not is_label(name):
        raise SpecError(f"{quote(name)} is not a namespace name: {_LABEL_FORM}", keys)


def check_container(name: str, keys: Path) -> None:
    """Refuse an invalid name of a container."""
    if not is_label(name):
        raise SpecError(f"{quote(name)} is not a container name: {_LABEL_FORM}", keys)


def check_object(kind: str, name: str, keys: Path) -> None:
    """Refuse an invalid name of an object. `kind` is its kind with an article, for the message."""
    if not is_object(name):
        problem = f'write at most {MAX_OBJECT_LENGTH} lower-case letters, digits, "-" and "."'
        raise SpecError(
            f"{quote(name)} is not the name of {kind}: {problem}, with a letter or digit first and last", keys
        )
