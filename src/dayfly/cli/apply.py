"""`dayfly apply`: whatever some files wish for, in the order in which it can be had."""

from __future__ import annotations

import click

from dayfly.cli import applying, options, show, watch
from dayfly.cli import files as reading
from dayfly.cli.client import Client
from dayfly.cli.exits import Exit


@click.command("apply")
@options.files()
@options.sets
@options.wait
@options.timeout("3m")
@options.output
def command(files: tuple[str, ...], sets: tuple[str, ...], wait: bool, timeout: float, output: str | None) -> int:
    """Apply plugins, then baselines, then sandboxes from files.

    All files are read and checked before anything is changed. With -o the objects are printed as a list.
    """
    wishes = reading.load(files, sets)
    client = Client.open()
    objects = [applying.hand_over(client, wished) for wished in wishes]
    code = Exit.OK
    for number, wished in enumerate(wishes):
        if wished.kind == "sandbox" and wait:
            ended, objects[number] = watch.settle(client, objects[number], timeout)
            code = code or ended
    if output:
        show.emit(objects, output)
    return code
