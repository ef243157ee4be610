"""Output keys without a step, like `dbhost` instead of `make.dbhost`, as the first framework has them.

Such a key refers to the only create step with an output of this name. If none or several have one, the key stays, and
the check of references refuses it with its path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from dayfly.spec.steps.value_from import ResourceOutput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dayfly.spec.plugin import PluginSpec
    from dayfly.spec.sandbox import Sandbox


def complete_keys(sandbox: Sandbox, plugins: Mapping[str, PluginSpec]) -> Sandbox:
    """Return the sandbox with the step added to each key that lacks it and has one meaning.

    `plugins` are those of its resources, by the resources' names.
    """
    made: Sandbox = _complete_value(sandbox, plugins)
    return made


def possible_outputs(key: str, spec: PluginSpec) -> list[str]:
    """Return the outputs, as `<step>.<output>`, to which a key without a step may refer."""
    return [f"{step.name}.{key}" for step in spec.create for output in step.outputs if output.name == key]


def _complete_value(value: Any, plugins: Mapping[str, PluginSpec]) -> Any:
    """Return a value with completed keys. Unchanged parts are the same objects."""
    if isinstance(value, ResourceOutput):
        return _complete_output(value, plugins)
    if isinstance(value, msgspec.Struct):
        parts = {field: getattr(value, field) for field in value.__struct_fields__}
        changed = {field: new for field, old in parts.items() if (new := _complete_value(old, plugins)) is not old}
        return msgspec.structs.replace(value, **changed) if changed else value
    if isinstance(value, dict):
        entries = {key: _complete_value(old, plugins) for key, old in value.items()}
        return entries if any(entries[key] is not old for key, old in value.items()) else value
    if isinstance(value, tuple):
        items = tuple(_complete_value(old, plugins) for old in value)
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _complete_output(wanted: ResourceOutput, plugins: Mapping[str, PluginSpec]) -> ResourceOutput:
    if "." in wanted.output_key or wanted.name not in plugins:
        return wanted
    found = possible_outputs(wanted.output_key, plugins[wanted.name])
    return msgspec.structs.replace(wanted, output_key=found[0]) if len(found) == 1 else wanted
