"""Rights of the account that makes objects: given by the line that Dayfly says, and taken back."""

import contextlib
import shlex
from collections.abc import Iterator

from cluster.installed import Installed
from dayfly.operator.objects import grants


def type_line(operator: Installed, line: str) -> None:
    """Type what an administrator was told to."""
    for command in line.split(" && "):
        kubectl, *words = shlex.split(command)
        assert kubectl == "kubectl"
        operator.own.kubectl(*words)


def take_back(operator: Installed, namespace: str, *resources: str) -> None:
    """Remove what those lines have made."""
    for resource in resources:
        operator.own.kubectl("delete", "rolebinding,role", f"dayfly-objects-{resource}", "-n", namespace)


@contextlib.contextmanager
def granted(operator: Installed, namespace: str, *resources: str) -> Iterator[None]:
    """Meanwhile the account of a namespace may make these."""
    for resource in resources:
        type_line(operator, grants.line(namespace, resource))
    try:
        yield
    finally:
        take_back(operator, namespace, *resources)
