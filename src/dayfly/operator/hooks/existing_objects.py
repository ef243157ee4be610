"""A hook's document for an object that was there before the hook: without preStart, whose moment has passed. Pure."""

import msgspec

from dayfly.spec.lifecycle import Lifecycle, Unit


def without_pre_start(document: Lifecycle) -> Lifecycle:
    """The same without its preStart units: what reads them is given nothing, and what undoes them is left out."""
    gone = {unit.name for unit in document.pre_start}
    gone |= {unit.name for unit in document.post_stop if unit.undoes in gone}

    def left(units: tuple[Unit, ...]) -> tuple[Unit, ...]:
        return tuple(_bereft(unit, gone) for unit in units if unit.name not in gone)

    return msgspec.structs.replace(
        document,
        pre_start=(),
        post_start=left(document.post_start),
        pre_stop=left(document.pre_stop),
        post_stop=left(document.post_stop),
    )


def _bereft(unit: Unit, gone: set[str]) -> Unit:
    inputs = tuple(
        msgspec.structs.replace(item, from_=None) if item.from_ is not None and item.from_.unit in gone else item
        for item in unit.inputs
    )
    return msgspec.structs.replace(unit, inputs=inputs)
