"""Guards of the second line in the control plane, and where Kubernetes is spoken to."""

from __future__ import annotations

from mutation.guard import Guard, guard
from mutation.tenants import TENANTS

CONTROL: tuple[Guard, ...] = (
    # --- between it and its hosts ---
    guard(
        "orders of a process that has died are carried out",
        "execute/host_end.py",
        "if not self._session or message.session != self._session:",
        "if not self._session:",
        "control/test_link.py::test_orders_of_a_process_that_has_died_are_not_carried_out_under_the_next",
    ),
    guard(
        "orders of a process that has died are carried out when their turn comes",
        "execute/host_end.py",
        "if order.session != self._session:",
        "if False:",
        "control/test_link.py::test_orders_of_a_process_that_has_died_are_not_carried_out_under_the_next",
    ),
    guard(
        "a birth is taken that may be of a run that is forgotten",
        "execute/host_end.py",
        "and order.number <= self._floor",
        "and order.number < 0",
        "control/test_link.py::test_a_birth_that_was_sent_before_an_end_was_forgotten_is_too_late",
    ),
    guard(
        "what was sent before replaces what was sent after it",
        "execute/host_end.py",
        "if key and order.number < self._newest.get(key, order.number):",
        "if key and order.number < 0:",
        "control/test_link.py::test_what_replaces_is_not_replaced_by_what_was_sent_before",
    ),
    # --- the control plane ---
    guard(
        "who is overtaken again and again gives up",
        "control/store.py",
        "if tried > OVERTAKEN:",
        "if False:",
        "control/test_replicas.py::test_who_was_overtaken_again_and_again_has_its_turn",
    ),
    guard(
        "who listens is not told of a write before it is looked for others' writes",
        "control/store.py",
        "self.news.ring()",
        "pass",
        "control/test_store.py::test_who_waits_for_news_is_woken_once_something_is_written",
    ),
    guard(
        "who listens is not told of a host's word before it is looked for others' writes",
        "control/link.py",
        "link.picture.on_change = self._news.ring",
        "pass",
        "control/test_link.py::test_whatever_a_host_says_of_a_run_rings_once_it_can_be_seen",
    ),
    guard(
        "what comes while it is looked for changes is not told before the next look",
        "control/bell.py",
        "if self.rings != since or closing.done():",
        "if closing.done():",
        "control/test_link.py::test_who_remembers_a_ring_misses_none",
    ),
    guard(
        "what asks for marks loses the database with its first connection",
        "control/databases.py",
        "with contextlib.suppress(LostError):",
        "with contextlib.suppress(MemoryError):",
        "control/test_store.py::test_who_asks_for_marks_survives_the_loss_of_its_connection",
    ),
    guard(
        "a query leaves the organisation out",
        "control/rows.py",
        """        if self.org == EVERYWHERE:
            return query
""",
        """        if True:
            return query
""",
        "control/test_rights.py::test_every_route_for_every_role_and_every_organisation",
    ),
    guard(
        "a query of several tables leaves the organisation out of all but the first",
        "control/rows.py",
        "in query.columns_clause_froms:",
        "in query.columns_clause_froms[:1]:",
        "control/test_callers.py::test_each_table_of_a_query_shows_our_rows_alone",
    ),
    guard(
        "what one has written before it failed is committed with what others write",
        "control/together.py",
        "with connection.begin_nested():",
        "if True:",
        "control/test_together.py::test_who_fails_among_others_fails_alone",
    ),
    guard(
        "one for whom the disk has no room takes others' writes along",
        "control/together.py",
        """        except exc.SQLAlchemyError:
            return [self._each(write) for write in group]
""",
        """        except exc.SQLAlchemyError as fault:
            return [_Outcome(fault=fault) for write in group]
""",
        "control/test_together.py::test_where_the_disk_is_full_each_is_told_so_who_needs_room",
    ),
    guard(
        "another organisation's address is answered",
        "control/exchange.py",
        'request.path_params.get("org", caller.org)) != caller.org:',
        'request.path_params.get("org", caller.org)) is None:',
        "control/test_rights.py::test_every_route_for_every_role_and_every_organisation",
    ),
    guard(
        "a key does what its role may not",
        "control/exchange.py",
        "auth.caller(request).role < role:",
        "auth.caller(request).role < 0:",
        "control/test_rights.py::test_every_route_for_every_role_and_every_organisation",
    ),
    *(
        guard(name, f"control/{file}", old, new, f"control/test_key_scopes.py::{test}")
        for name, file, old, new, test in (
            (
                "a key with a scope does what is closed to it",
                "exchange.py",
                "is_open = scope.is_whole",
                "is_open = True",
                "test_every_route_for_every_role_scope_and_organisation",
            ),
            (
                "a key publishes plugins outside its scope",
                "scopes.py",
                "return self.is_whole or any(each.takes(plugin) for each in self.plugins)",
                "return True",
                "test_a_key_that_publishes_has_its_plugins_and_nothing_else",
            ),
            (
                "a key that publishes alone has sandboxes, too",
                "scopes.py",
                "return bool(self.clusters or self.names) or self.is_whole",
                "return True",
                "test_a_key_that_publishes_has_its_plugins_and_nothing_else",
            ),
            (
                "what lives in another cluster is found with a key of some",
                "auth.py",
                "found is not None and who.scope.takes(found)",
                "found is not None and who.scope.takes_name(found.name)",
                "test_every_route_for_every_role_scope_and_organisation",
            ),
            (
                "a wish for a cluster outside of the scope is taken",
                "lives.py",
                "if not who.scope.takes_cluster(wished):",
                "if False:",
                "test_a_key_of_some_clusters_wishes_for_none_beside_them",
            ),
            (
                "what lives elsewhere is changed under its name",
                "lives.py",
                "if has is not None and not who.scope.takes_cluster(has):",
                "if False:",
                "test_a_key_of_some_clusters_wishes_for_none_beside_them",
            ),
            (
                "a group names sandboxes outside of the scope",
                "group_standings.py",
                "return found if scope.is_whole else",
                "return found if True else",
                "test_a_group_tells_a_key_of_those_of_its_sandboxes_alone_that_are_in_its_scope",
            ),
            (
                "a stream tells a key of everything",
                "changes.py",
                "return scope.takes_name(name.removeprefix(GROUP)) and scope.takes_cluster(where)",
                "return True",
                "test_a_stream_tells_a_key_of_nothing_outside_its_scope",
            ),
            (
                "a plugin tells a key of all its users",
                "plugins.py",
                'return [each for each in users if scope.takes_name(each["sandbox"]) and',
                "return [each for each in users if True or",
                "test_a_key_that_publishes_has_its_plugins_and_nothing_else",
            ),
            (
                "a scope that cannot be read is none",
                "keys.py",
                "return None if row.role != SCOPED or scope.is_whole else (ROLES[found.role], scope)",
                "return ROLES[found.role], scope",
                "test_what_this_server_cannot_read_of_a_scope_opens_nothing",
            ),
            (
                "an older server lets a key with a scope do as its role says",
                "keys.py",
                '"role": role.word if scope.is_whole else SCOPED,',
                '"role": role.word,',
                "test_a_server_of_before_lets_a_key_with_a_scope_do_nothing",
            ),
            (
                "going back makes a key with a scope one without",
                "migrations/versions/r0008_scopes.py",
                "DELETE FROM api_keys WHERE scope <> ''",
                "DELETE FROM api_keys WHERE scope = 'none'",
                "test_going_back_to_a_schema_without_scopes_ends_the_keys_that_have_one",
            ),
            (
                "going back does not see the keys of organisations",
                "migrations/versions/r0008_scopes.py",
                "    belt.see_all()\n",
                "",
                "test_going_back_to_a_schema_without_scopes_ends_the_keys_that_have_one",
            ),
        )
    ),
    guard(
        "a baseline's requests are taken in where another listens",
        "control/workloads.py",
        "if workload.routed_port in (other.routed_port, other.port):",
        "if False:",
        "cli/test_routing.py::test_a_port_of_another_baseline_is_not_taken",
    ),
    guard(
        "the keys of a group that a sandbox has left lead to it still",
        "control/group_keys.py",
        "if before.get(uid) != now.get(uid):",
        "if uid in now and before.get(uid) != now.get(uid):",
        "control/test_group_keys.py::test_who_comes_who_leaves_and_whose_key_is_another_is_told",
    ),
    guard(
        "a key that has expired opens",
        "control/keys.py",
        "row is None or (row.expires_at is not None and row.expires_at <= _now())",
        "row is None",
        "control/test_organisations.py::test_a_key_expires_and_its_use_is_noted_at_most_once_a_minute",
    ),
    guard(
        "what waits with a revoked key goes on",
        "control/exchange.py",
        "timeout=LOOK_AGAIN_S))",
        "timeout=1000))",
        "control/test_organisations.py::test_a_revoked_key_opens_nothing_and_what_waits_with_it_is_cut_off",
    ),
    guard(
        "one server undoes what another has written",
        "control/records.py",
        "sandboxes.c.uid == record.uid, sandboxes.c.revision == record.revision)",
        "sandboxes.c.uid == record.uid)",
        "control/test_store.py::test_of_two_who_read_the_same_sandbox_one_writes_it",
    ),
    guard(
        "the head of an audit stands still",
        "control/audit.py",
        "rows.execute(rows.update(audit_heads).values(now))",
        "pass",
        "control/test_audit.py::test_each_change_has_an_entry_and_what_changes_nothing_has_none",
    ),
    guard(
        "very many are gone through again soon though no host takes what it is owed",
        "control/host_sync.py",
        "self._paid = self._paid or not self.trouble(record.uid)",
        "self._paid = True",
        "control/test_host_sync.py::test_the_next_round_comes_soon_while_a_host_takes_what_it_is_owed",
    ),
    guard(
        "an end is acknowledged before the sandbox has left the store",
        "control/host_sync.py",
        "each.acknowledge(ended - living)",
        "each.acknowledge(ended)",
        "control/test_host_sync.py::test_an_end_is_acknowledged_once_the_sandbox_has_left_the_store",
    ),
    guard(
        "what a host tells of nobody's runs is kept",
        "control/host_sync.py",
        "each.picture.drop(known - living)",
        "pass",
        "control/test_host_sync.py::test_what_a_host_tells_of_runs_that_are_nobodys_is_not_kept",
    ),
    guard(
        "a host that leaves numbers out fills the memory",
        "control/picture.py",
        "if len(self._beyond) >= MOST_BEYOND:",
        "if False:",
        "control/test_link.py::test_who_leaves_a_number_out_fills_nobodys_memory",
    ),
    guard(
        "a baseline that cannot be read is told to be gone",
        "control/baseline_sync.py",
        "if (namespace, name) in known:",
        "if known.get((namespace, name)):",
        "control/test_workloads.py::test_one_that_cannot_be_read_holds_up_no_other",
    ),
    guard(
        "a report that comes late is taken for the newest",
        "control/picture.py",
        "if known is None or run.seq > known.seq:",
        "if True:",
        "control/test_link.py::test_a_report_that_comes_late_changes_nothing",
    ),
    guard(
        "what was not heard is never asked for",
        "control/link.py",
        "if self._greeted or self.picture.lacks_something:",
        "if self._greeted:",
        "control/test_link.py::test_a_gap_is_noticed_by_what_comes_after_it",
    ),
    guard(
        "what an earlier session was told counts in the next",
        "control/marks.py",
        "return last.session == link.session and last.form",
        "return last.form",
        "control/test_host_sync.py::test_a_host_that_has_begun_anew_is_told_everything_again",
    ),
    guard(
        "whoever gives a cleanup up last is recorded",
        "control/sandboxes.py",
        "abandon=record.abandon or give_up)",
        "abandon=give_up or record.abandon)",
        "control/test_sandboxes.py::test_who_gives_the_cleanup_up_first_is_recorded",
    ),
    guard(
        "a change may fork what nobody has declared",
        "control/sandboxes.py",
        """                wishes.check_baselines(rows, spec)
                return wishes.compiled""",
        "                return wishes.compiled",
        "control/test_sandboxes.py::test_a_change_may_not_fork_what_nobody_has_declared",
    ),
    # --- speaking Kubernetes ---
    guard(
        "two take the same Lease",
        "kube/lease.py",
        'metadata |= {"resourceVersion": lease.metadata.resource_version}',
        "pass",
        "kube/test_lease.py::TestElection::test_of_two_who_find_it_free_in_the_same_moment_one_leads",
    ),
    guard(
        "whoever ends releases the Lease of another",
        "kube/lease.py",
        "            if lease.spec.holder_identity == self.identity:\n",
        "            if lease:\n",
        "kube/test_lease.py::TestElection::test_who_was_overtaken_does_not_release_the_others",
    ),
    *(guard(*each) for each in TENANTS),
    # --- where webhooks may go, and that none is sent twice ---
    guard(
        "a webhook goes wherever its name leads",
        "execute/webhook/exchange.py",
        "if refused and not way.allowed:",
        "if refused and False:",
        "webhook/test_addresses.py::test_no_way_of_writing_an_address_leads_to_one_that_is_not_everybodys",
    ),
    guard(
        "one good address of a name is enough",
        "execute/webhook/exchange.py",
        "for _, address in found if (problem",
        "for _, address in found[:1] if (problem",
        "webhook/test_addresses.py::test_each_connection_goes_to_an_address_that_was_judged_and_all_its_addresses_are_judged",
    ),
    guard(
        "an IPv4 address within an IPv6 one is not looked at",
        "execute/webhook/guard.py",
        "for each in (address, *_inside(address)):",
        "for each in (address,):",
        "webhook/test_addresses.py::test_no_way_of_writing_an_address_leads_to_one_that_is_not_everybodys",
    ),
    guard(
        "a job is asked for at whatever server an answer names",
        "execute/webhook/request.py",
        "if origin_of(url) != sent.origin:",
        "if False:",
        "webhook/test_sender.py::test_a_job_that_comes_to_nothing_says_why",
    ),
    guard(
        "a job that cannot be followed counts as failed at once",
        "execute/webhook/sender.py",
        """            self._wait_out(str(unfit))
            raise Over(End.UNFIT)""",
        "            raise Over(End.UNFIT)",
        "webhook/test_faults.py::test_each_request_meets_each_fault",
    ),
    guard(
        "what a killed sender sent is over at once",
        "execute/webhook/read.py",
        "result.reason not in _UNTOLD",
        "result.reason",
        "webhook/test_doubt.py::test_from_its_claim_if_its_start_was_not_told",
    ),
    guard(
        "what may have been carried out counts as failed at once",
        "execute/webhook/sender.py",
        "        self._wait(self._left())\n",
        "",
        "webhook/test_sender.py::test_without_find_the_time_is_waited_out_in_which_it_might_be_carried_out",
    ),
    guard(
        "a lost answer changes the key",
        "execute/webhook/sender.py",
        "if over.definite and over.code:",
        "if over.code:",
        "embedded/test_webhooks.py::test_what_is_lost_is_sent_again_under_the_same_key_and_a_no_ends_that",
    ),
    guard(
        "a header may have a line's end",
        "execute/webhook/request.py",
        "if not text.isascii() or not text.isprintable():",
        "if False:",
        "webhook/test_sender.py::test_a_value_that_a_header_cannot_hold_sends_nothing",
    ),
)
