"""The sources of a step's outputs, with one rule for each kind of step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dayfly.spec.errors import Path, SpecError
from dayfly.spec.scalars import jsonpath, names
from dayfly.spec.steps import kube_object, webhook

if TYPE_CHECKING:
    from typing import Literal, Protocol

    from dayfly.spec.steps.kube_object import FromSecret

    Work = Literal["script", "command", "webhook", "object"]

    class OutputFields(Protocol):
        """The source of an output, as its step gives it."""

        @property
        def name(self) -> str: ...
        @property
        def value_from_path(self) -> str | None: ...
        @property
        def value_from_json_path(self) -> str | None: ...
        @property
        def value_from_header(self) -> str | None: ...
        @property
        def value_from_status(self) -> bool: ...
        @property
        def value_from_secret(self) -> FromSecret | None: ...


SOURCES = {
    "script": ("valueFromPath",),
    "command": ("valueFromPath",),
    "webhook": ("valueFromJSONPath", "valueFromHeader", "valueFromStatus"),
    "object": ("valueFromJSONPath", "valueFromSecret"),
}
_ARTICLES = {"script": "a", "command": "a", "webhook": "a", "object": "an"}


def check(output: OutputFields, keys: Path, work: Work) -> None:
    """Refuse an output with a source that its step does not have. `work` is the kind of the step.

    Raises:
        SpecError: The fault with its path.
    """
    given = {
        "valueFromPath": output.value_from_path is not None,
        "valueFromJSONPath": output.value_from_json_path is not None,
        "valueFromHeader": output.value_from_header is not None,
        "valueFromStatus": output.value_from_status,
        "valueFromSecret": output.value_from_secret is not None,
    }
    fields = SOURCES[work]
    for field, is_given in given.items():
        if is_given and field not in fields:
            raise SpecError(
                f"this step is {_ARTICLES[work]} {work}; write {' or '.join(fields)} instead", (*keys, field)
            )
    if sum(given.values()) != 1:
        if fields == ("valueFromPath",):
            raise SpecError('missing required field "valueFromPath"', keys)
        raise SpecError(f"needs exactly one of {', '.join(fields)}; {sum(given.values())} are given", keys)
    if work == "webhook" and output.name in (*webhook.BUILT_IN_OUTPUTS, webhook.DEFINITE):
        raise SpecError("every webhook already has this output; choose another name", (*keys, "name"))
    if output.value_from_path is not None:
        names.check_path(output.value_from_path, (*keys, "valueFromPath"))
    if output.value_from_json_path is not None:
        jsonpath.check(output.value_from_json_path, (*keys, "valueFromJSONPath"), regex=work == "webhook")
    if output.value_from_header is not None and not webhook.is_header(output.value_from_header):
        raise SpecError("is not a header name", (*keys, "valueFromHeader"))
    if output.value_from_secret is not None:
        kube_object.check_secret(output.value_from_secret, (*keys, "valueFromSecret"))
