"""The commands of the page on routing have the shown output, and the page has every key form and limit."""

from tests.docs.conftest import ROOT, Person

from dayfly.server.api.routing_rules import OLD_PREFIX
from dayfly.server.http.route_table import ROUTES
from dayfly.spec.lifecycle import DRAIN_MS
from dayfly.spec.routing.routing_keys import KEY_NAMES, MAX_KEY_LENGTH, PLAIN
from dayfly.spec.unsupported_fields import PREVIEWED
from dayfly.spec.workload import ROUTED_PORT

PAGE = ROOT / "docs" / "guides/routing.md"


def test_routing_page_shows_the_real_output(person: Person):
    found = person.follow(PAGE)
    assert not found, "\n".join(found)


def test_every_key_form_and_limit_is_documented():
    page = " ".join(PAGE.read_text().split())
    assert all(f"`{name}`" in page for name in (*KEY_NAMES, *PREVIEWED, ROUTED_PORT))
    assert {name.rpartition("sd-")[0] for name in PLAIN} == {"ot-baggage-", "uberctx-"}
    assert f"1 to {MAX_KEY_LENGTH} lower-case letters" in page
    assert f"The fork keeps running for {DRAIN_MS // 1000} seconds" in page
    assert f"`GET {OLD_PREFIX}/workloads/routing-rules`" in page
    assert all(f"`{name}`" in page for name in ROUTES["/workloads/routing-rules"]["GET"].query)
