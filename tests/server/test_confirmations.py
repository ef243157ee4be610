"""Stored confirmations of hosts: only of the current session, of the later order and of runs that have not ended."""

from __future__ import annotations

import pytest
from tests.server import stored_records

from dayfly.link.envelope import SessionRequest
from dayfly.link.server_end import Link
from dayfly.link.transport import CompileTarget
from dayfly.link.wire import Inventory
from dayfly.server.db.store import Store
from dayfly.server.db.tables import clusters
from dayfly.server.records import confirmations, tombstones
from dayfly.server.records.confirmations import Confirmation, Confirmations
from dayfly.server.records.run_records import RunEntry, save
from dayfly.server.sync.agents import sessions

ORG = "acme"
PLACE = CompileTarget(publisher=ORG, namespace="acme-sandboxes", declares=False, routes=True, parents=False)
FORM = confirmations.compute_fingerprint(1, PLACE, {})


@pytest.fixture
async def store(place):
    found = Store.open(place)
    await found.for_org(ORG).write(_fill)
    yield found
    found.close()


def _fill(rows):
    rows.insert(clusters, [{"name": name, "created_at": 1, "agent": True} for name in ("east", "west")])
    for record in (stored_records.sandbox("s1", cluster="east"), stored_records.sandbox("s2", cluster="west")):
        save(rows, record)
    save(rows, stored_records.group("g1", cluster="east"))
    for cluster in ("east", "west"):
        sessions.open_session(rows, cluster, SessionRequest(cluster_uid=cluster), 1)


async def note(store, **told):
    """Store confirmations for all organisations, as the sync does."""
    await store.all_orgs().write(lambda rows: confirmations.save(rows, told))


async def known(store):
    return await store.for_org(ORG).read(confirmations.read)


@pytest.mark.slow
async def test_confirmations_are_shared_by_all_servers(store):
    told = {"s1": Confirmation(1, 3, FORM), "g1": Confirmation(1, 4, FORM), "s2": Confirmation(1, 1, FORM)}
    await note(store, **told)
    assert await known(store) == told
    assert await store.all_orgs().read(lambda rows: confirmations.read(rows, ["s2"])) == {"s2": told["s2"]}
    assert await store.for_org("other").read(confirmations.read) == {}


async def test_later_confirmation_wins_in_any_order(store):
    later, earlier = Confirmation(1, 9, FORM), Confirmation(1, 8, confirmations.compute_fingerprint(2, PLACE, {}))
    await note(store, s1=later)
    await note(store, s1=earlier)
    assert await known(store) == {"s1": later}


async def test_confirmation_of_ended_run_or_old_session_is_dropped(store):
    record = await stored_records.read(store, ORG, "s1")
    await note(store, s1=Confirmation(1, 1, FORM))
    await store.for_org(ORG).write(lambda rows: tombstones.archive(rows, record, 2))
    assert await known(store) == {}
    told = Confirmation(1, 2, FORM)
    await note(store, s1=told, g1=Confirmation(2, 1, FORM), s2=told)
    assert await known(store) == {"s2": told}


async def test_new_session_voids_confirmations(store):
    await note(store, s1=Confirmation(1, 1, FORM), s2=Confirmation(1, 1, FORM))
    asks = SessionRequest(cluster_uid="east", previous=1)
    await store.for_org(ORG).write(lambda rows: sessions.open_session(rows, "east", asks, 2))
    assert set(await known(store)) == {"s2"}


async def test_removed_cluster_loses_its_confirmations(store):
    await note(store, s1=Confirmation(1, 1, FORM), s2=Confirmation(1, 1, FORM))
    await store.for_org(ORG).write(lambda rows: rows.execute(rows.delete(clusters).where(clusters.c.name == "east")))
    assert set(await known(store)) == {"s2"}


class Mute:
    """A host that sends nothing."""

    def attach(self, hear):
        self.hear = hear

    def send(self, message):
        """Ignore the message."""


def linked():
    link = Link(Mute(), ORG, lambda: PLACE, shared=True)
    link.receive(Inventory(session=5, routes=True))
    return link


@pytest.mark.parametrize(
    ("told", "holds"),
    [
        (Confirmation(5, 1, FORM), True),
        (Confirmation(4, 1, FORM), False),
        (Confirmation(6, 1, FORM), False),
        (Confirmation(5, 1, confirmations.compute_fingerprint(2, PLACE, {})), False),
        (Confirmation(5, 1, confirmations.compute_fingerprint(1, PLACE, {"shop/web": ("k",)})), False),
        (Confirmation(5, 1, confirmations.compute_fingerprint(1, PLACE._replace(routes=False), {})), False),
        (Confirmation(5, 1, confirmations.compute_fingerprint(1, PLACE._replace(namespace="another"), {})), False),
    ],
)
def test_confirmation_holds_for_its_session_revision_and_place(told, holds):
    link = linked()
    entry = RunEntry(ORG, "s1", "s1", "east", 1)
    assert Confirmations(None).is_confirmed(entry, link, told, {}) is holds
    assert not Confirmations(None).is_confirmed(entry, None, told, {})


def test_later_confirmation_of_another_server_wins():
    """The two servers compiled with different routing keys of groups."""
    known_here, link = Confirmations(None), linked()
    record = stored_records.sandbox("s1", cluster="east")
    entry = RunEntry(ORG, "s1", "s1", "east", 0)
    known_here.record(record, link, Confirmation(5, 7, confirmations.compute_fingerprint(0, PLACE, {})))
    assert known_here.is_confirmed(entry, link, confirmations.NO_CONFIRMATION, {})
    other = confirmations.compute_fingerprint(0, PLACE, {"shop/web": ("k",)})
    assert known_here.is_confirmed(entry, link, Confirmation(5, 6, other), {})
    assert not known_here.is_confirmed(entry, link, Confirmation(5, 8, other), {})
