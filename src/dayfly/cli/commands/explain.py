"""`dayfly explain`: explain a kind of file or a field, as `kubectl explain` does. It needs no server."""

from __future__ import annotations

import click

from dayfly.cli.command_classes import verb
from dayfly.cli.output import show
from dayfly.client.errors import DayflyError, Exit, unknown_name_error
from dayfly.spec.schema import json_schema, reference


@verb("explain")
@click.argument("field", metavar="KIND[.FIELD...]")
def command(field: str) -> None:
    """Explain a kind of file, or a field such as plugin.create.retry, and list the fields that it contains."""
    try:
        struct, found = reference.find(field)
    except KeyError as fault:
        part, known = fault.args
        if not known:
            raise DayflyError(Exit.NOT_FOUND, f'"{part}" is not a field: its parent has no fields') from None
        what = "kind" if known == json_schema.file_kinds() else "field"
        raise unknown_name_error(f'no {what} "{part}"', part, known, ", ".join(known)) from None
    if found is not None:
        default = found.default or ("required" if found.required else "")
        show.print_facts([("Field", found.name), ("Holds", found.holds), ("Default", default)])
        show.print_line(found.about)
    if found is None or found.struct is not None:
        if found is not None:
            show.print_line()
        show.print_line(reference.describe_type(struct).replace("\n", " "))
        show.print_line()
        rows = [
            (each.name, each.holds, "required" if each.required else each.default, each.about)
            for each in reference.fields(struct)
        ]
        show.print_table(("FIELD", "HOLDS", "DEFAULT", "MEANING"), rows, elastic="MEANING")
        show.print_line()
        show.print_line("Example:")
        for line in reference.type_example(struct).splitlines():
            show.print_line(f"  {line}")
