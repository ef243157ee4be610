"""The resources of a run that need another run, a pool member or a shared parent, and the documents of that run."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping

import msgspec

from dayfly.plan.sealed import Plan, seal
from dayfly.spec.host_errors import DocumentsRefusedError
from dayfly.spec.lifecycle import Kind, Lifecycle, LifecycleEvent, Sharing, Unit, digest, unit_id
from dayfly.spec.run import Run

_encode = msgspec.json.Encoder(order="deterministic").encode


class Template(msgspec.Struct, frozen=True, kw_only=True):
    """The documents of a pool member or parent, and their plan.

    `steps` are its create steps by name, with the IDs in its run.
    """

    documents: tuple[Lifecycle, ...]
    digest: str
    plan: Plan
    steps: Mapping[str, str]

    @property
    def resource(self) -> str:
        """The member's resource whose ID the holder's own steps use."""
        return self.documents[0].resource

    @property
    def sharing(self) -> Sharing | None:
        """The limits of a shared parent; None for a pool member."""
        return self.plan.sharing


class Acquisition(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of a run that a pool member provides, or that has a shared parent.

    `steps` has the unit of the member or parent for each stand-in, by its ID in the holder's run. `releases` are the
    units that release the member or parent; the compiler writes one.
    """

    resource: str
    template: Template
    steps: Mapping[str, str]
    releases: tuple[str, ...]

    def member(self, run: Run) -> str:
        """Return the UID of the member or parent that the holder's ledger refers to; empty if it refers to none."""
        return next((ref for name in self.steps if (ref := run.unit(name).ref)), "")


def find_acquisitions(documents: Iterable[Lifecycle]) -> dict[str, Acquisition]:
    """Return the resources that pool members provide or that have parents, by name.

    Raises:
        DocumentsRefusedError: A template is invalid, or a unit names a step that its template does not have.
    """
    return {document.resource: _acquisition(document) for document in documents if document.template}


def find_template(document: Lifecycle) -> Template | None:
    """Return the template of the pool member that a document needs; None if it needs none.

    Raises:
        DocumentsRefusedError: A template is invalid, or a unit of kind acquire does not match it.
    """
    if document.template:
        return _acquisition(document).template
    if units := _acquire_units(document):
        name = unit_id(document.resource, units[0].name)
        raise DocumentsRefusedError(f"{name}: a unit of kind acquire needs the template of a pool member")
    return None


def template_of(documents: tuple[Lifecycle, ...]) -> Template:
    """Return the template that consists of these documents."""
    steps = {
        unit.name: unit_id(document.resource, unit.name)
        for document in reversed(documents)
        for event in (LifecycleEvent.PRE_START, LifecycleEvent.POST_START)
        for unit in document.units(event)
    }
    return Template(documents=documents, digest=digest(documents), plan=seal(documents), steps=steps)


def _acquisition(document: Lifecycle) -> Acquisition:
    try:
        template = _decode_template(_encode(document.template))
    except msgspec.ValidationError as error:
        raise DocumentsRefusedError(
            f"{document.resource}: the template of its pool member is invalid: {error}"
        ) from None
    steps: dict[str, str] = {}
    releases: list[str] = []
    for unit in _acquire_units(document):
        name = unit_id(document.resource, unit.name)
        assert unit.acquire is not None, "a unit of kind acquire has its field"
        if not unit.acquire.step:
            releases.append(name)
        elif unit.acquire.step in template.steps:
            steps[name] = template.steps[unit.acquire.step]
        else:
            raise DocumentsRefusedError(f"{name}: the template of its pool member has no step {unit.acquire.step}")
    return Acquisition(resource=document.resource, template=template, steps=steps, releases=tuple(releases))


def _acquire_units(document: Lifecycle) -> list[Unit]:
    events = (document.units(event) for event in LifecycleEvent)
    return [unit for units in events for unit in units if unit.kind == Kind.ACQUIRE and unit.acquire is not None]


@functools.lru_cache(maxsize=64)
def _decode_template(raw: bytes) -> Template:
    """Return the template in these bytes. Runs of one pool have equal bytes."""
    return template_of(_decode_documents(raw))


_decode_documents = msgspec.json.Decoder(tuple[Lifecycle, ...]).decode
