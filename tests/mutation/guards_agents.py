"""Guards of what clusters that dial in lead requests by: nothing is taken for nothing, and nobody's key for another's."""

from __future__ import annotations

from mutation.guard import Guard, guard

SYNC, MAILBOX, SERVED = "control/host_sync.py", "control/agents/mailbox.py", "operator/agent/served.py"
ADMISSION, OFFERS = "operator/agent/admission.py", "operator/test_agent_offers.py::test_"
ROUTES, GROUPS = "operator/test_agent_routes.py::test_", "operator/test_agent_groups.py::test_"
LED = OFFERS + "requests_that_are_not_its_own_are_not_led_to_it"

AGENTS: tuple[Guard, ...] = (
    guard(
        "what was compiled for a cluster that led nothing is left so",
        SYNC,
        "self._confirmed.get(uid) == (link.session, link.place())",
        "self._confirmed.get(uid, (0,))[0] == link.session",
        ROUTES + "what_leads_requests_may_come_later_and_go_again",
    ),
    guard(
        "a host is told what to do before it has said what it leads",
        SYNC,
        "session, place = await link.meet()",
        "session, place = link.session, link.place()",
        ROUTES + "no_request_is_led_elsewhere_while_server_and_operator_begin_anew",
    ),
    guard(
        "a server that begins takes the keys of groups away",
        SYNC,
        "await self.grouped(record.org)",
        "pass",
        GROUPS + "a_server_that_begins_knows_whom_keys_lead_to_before_it_tells_any_cluster",
    ),
    guard(
        "an operator that cannot see routes says that there are none",
        "operator/agent/agent.py",
        "await self._cluster.looked()",
        "pass",
        ROUTES + "an_operator_that_cannot_see_what_leads_requests_does_not_say_that_nothing_does",
    ),
    guard(
        "of two offers that come together the older is left",
        "operator/agent/end.py",
        "async with self._turns.setdefault(order.uid, asyncio.Lock()):",
        "async with asyncio.Lock():",
        ROUTES + "orders_of_one_run_are_carried_out_in_their_turns",
    ),
    guard(
        "a route group never begins, since nobody says that it is to live",
        MAILBOX,
        "_LIVING: Final = (sandboxes, route_groups)",
        "_LIVING: Final = (sandboxes,)",
        GROUPS + "all_four_hooks_run_in_the_cluster_that_it_names",
    ),
    guard(
        "what is over by the server's clock begins where a host's is behind",
        "control/shelves.py",
        "return [each.uid for each in found if not 0 < each.expires_at <= now]",
        "return [each.uid for each in found]",
        "control/test_agents.py::test_what_is_over_by_this_servers_clock_does_not_begin",
    ),
    guard(
        "an agent comes back a minute after its control plane",
        "operator/agent/dial.py",
        "REFUSED_PAUSE_S, AWAY_PAUSE_S = 60.0, 10.0",
        "REFUSED_PAUSE_S, AWAY_PAUSE_S = 60.0, 60.0",
        "operator/test_agent.py::test_after_a_long_absence_of_the_control_plane_it_is_heard_within_seconds",
    ),
    guard(
        "a key may be a pattern",
        ADMISSION,
        "                check_key(key)\n",
        "                str(key)\n",
        LED,
    ),
    guard(
        "requests of what was applied in the cluster are led away",
        ADMISSION,
        "if foreign.has(key):",
        "if False:",
        LED,
    ),
    guard(
        "a later form of a sandbox leads whatever it likes",
        SERVED,
        "admission.check_kept(offer.forks, group=offered.kind == GROUP, foreign=self._foreign)",
        "pass",
        LED,
    ),
    guard(
        "an address leads wherever a cluster says",
        "control/endpoints.py",
        'if found.scheme not in ("", *_USUAL) or not _HOST',
        "if not _HOST",
        OFFERS + "an_address_that_no_browser_should_follow_is_not_shown",
    ),
)
