"""Guards of what clusters that dial in lead requests by: nothing is taken for nothing, and nobody's key for another's."""

from __future__ import annotations

from mutation.guard import Guard, guard

SYNC, MAILBOX, SERVED = "control/host_sync.py", "control/agents/mailbox.py", "operator/agent/served.py"
CONFIRMED, SETTLED, TOLD = "control/confirmed.py", "operator/agent/settled.py", "operator/test_agent_told.py::test_"
ADMISSION, OFFERS = "operator/agent/admission.py", "operator/test_agent_offers.py::test_"
ROUTES, GROUPS = "operator/test_agent_routes.py::test_", "operator/test_agent_groups.py::test_"
LED = OFFERS + "requests_that_are_not_its_own_are_not_led_to_it"

AGENTS: tuple[Guard, ...] = (
    guard(
        "what was compiled for a cluster that led nothing is left so",
        CONFIRMED,
        "_short(repr((version, *place)))",
        "_short(version)",
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
        "await self.grouped(org)",
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
        "an end that several servers note is let go as often",
        "operator/agent/release.py",
        "mine = [uid for uid in uids if uid not in self._going]",
        "mine = list(uids)",
        TOLD + "ends_that_several_servers_note_at_the_same_time_are_let_go_once",
    ),
    guard(
        "a cache is believed of one that was put back to before its end",
        "operator/agent/release.py",
        ", if_so=shows)",
        ")",
        TOLD + "one_that_was_put_back_to_before_its_end_is_not_let_go_because_a_cache_has_it",
    ),
    guard(
        "an end is believed because a server has noted it",
        SERVED,
        "return seen if objects.has_ended(seen, run=run is not None) else None",
        "return seen",
        TOLD + "what_has_not_ended_is_not_let_go_whatever_a_server_has_noted",
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
        "what was confirmed of an older wish is taken for the newest",
        CONFIRMED,
        'return f"{revision}.',
        'return f"',
        TOLD + "what_a_server_has_stored_and_told_nobody_the_next_one_tells",
    ),
    guard(
        "a key that leads nowhere any more is not taken away",
        CONFIRMED,
        '{led}"',
        '"',
        TOLD + "which_keys_lead_to_a_fork_is_told_though_the_wish_is_the_same",
    ),
    guard(
        "what another release has compiled is left so",
        CONFIRMED,
        "_of_place(__version__, place)",
        "_of_place(str(), place)",
        TOLD + "another_release_of_the_server_tells_once_again",
    ),
    guard(
        "of two confirmations the one that is written last counts",
        CONFIRMED,
        "told[uid] > before.get(uid, NOTHING)",
        "told[uid] != before.get(uid, NOTHING)",
        "control/test_confirmed.py::test_of_two_orders_the_later_one_counts_whoever_hears_of_it_first",
    ),
    guard(
        "what was confirmed before a session is there in it",
        MAILBOX,
        "    confirmed.void(rows, cluster)\n",
        "",
        "control/test_confirmed.py::test_a_session_that_begins_knows_of_nothing",
    ),
    guard(
        "a server that begins tells its clusters everything again",
        "control/marks.py",
        "last = max(told, self._confirmed.get(record.uid, NOTHING))",
        "last = self._confirmed.get(record.uid, NOTHING)",
        TOLD + "a_server_that_begins_tells_no_cluster_what_it_has_confirmed",
    ),
    guard(
        "a cluster that was put back is taken for what it was",
        "operator/agent/agent.py",
        "self.served.lost = self.dial.begin_anew",
        "pass",
        TOLD + "a_cluster_that_has_less_than_it_confirmed_says_so_and_begins_nothing",
    ),
    guard(
        "a cluster that knows an older wish again is taken for what it was",
        SETTLED,
        "return new is not None and (",
        "return new is None and (",
        TOLD + "a_cluster_that_knows_an_older_wish_than_it_confirmed_is_told_again",
    ),
    guard(
        "an offer is carried out that changes nothing",
        SETTLED,
        "return known == (",
        "return known is (",
        TOLD + "an_offer_that_is_carried_out_already_asks_the_api_server_nothing",
    ),
    guard(
        "an offer of the same wish with other keys is passed over",
        SETTLED,
        "run.spec.forks\n",
        "offer.forks\n",
        TOLD + "which_keys_lead_to_a_fork_is_told_though_the_wish_is_the_same",
    ),
    guard(
        "what we wrote is believed though the watch has not brought it",
        SETTLED,
        " or cluster.ledger.get(name) is not run:",
        ":",
        "operator/test_agent_settled.py::test_what_the_watch_has_not_brought_is_asked_for",
    ),
    guard(
        "an end that was let go long ago is looked for with each word of it",
        SERVED,
        "[uid for uid in uids if uid in self._keys]",
        "uids",
        TOLD + "an_end_that_was_noted_before_asks_the_api_server_nothing_when_it_is_noted_again",
    ),
    guard(
        "who begins together waits for one request each",
        "operator/agent/births.py",
        "if self._next.is_asked or",
        "if self._next.uids or",
        TOLD + "of_many_that_begin_at_once_it_is_asked_together_and_of_each_after_it_came",
    ),
    guard(
        "it is asked of more at once than a server looks at",
        "operator/agent/births.py",
        " or len(self._next.uids) >= MOST_AT_ONCE:",
        ":",
        TOLD + "of_many_that_begin_at_once_it_is_asked_together_and_of_each_after_it_came",
    ),
    guard(
        "an agent comes back a minute after its control plane",
        "operator/agent/dial.py",
        "REFUSED_PAUSE_S, AWAY_PAUSE_S = 60.0, 10.0",
        "REFUSED_PAUSE_S, AWAY_PAUSE_S = 60.0, 60.0",
        "operator/test_agent.py::test_after_a_long_absence_of_the_control_plane_it_is_heard_within_seconds",
    ),
    guard(
        "a control plane that hears nothing is told without a pause",
        "operator/agent/dial.py",
        "failures = 0 if self._is_heard(heard) else failures + 1",
        "self._is_heard(heard)",
        "operator/test_agent_saying.py::TestSaying::test_a_server_that_hears_nothing_is_asked_ever_later",
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
