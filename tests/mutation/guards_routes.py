"""Guards of what leads requests in a cluster: nobody else's requests, names or objects are taken."""

from __future__ import annotations

from mutation.guard import Guard, guard

HOSTILE, RESTLESS = "operator/test_hostile_routes.py::", "operator/test_restless.py::test_"

ROUTES: tuple[Guard, ...] = (
    guard(
        "a group's address leads to a fork of another namespace's sandbox",
        "operator/routes/led_keys.py",
        "run is not None and run.ledger.target.namespace == namespace",
        "run is not None",
        "operator/test_previews.py::test_a_groups_address_leads_to_no_fork_of_another_namespace",
    ),
    guard(
        "a group hears nothing of whom its address is to lead to",
        "operator/routes/led_keys.py",
        "                self._cluster.queue.add(run)\n",
        "                pass\n",
        "operator/test_previews.py::test_a_groups_address_follows_its_members",
    ),
    guard(
        "an address that cannot be is waited for",
        "operator/executors/preview_executor.py",
        "if effect.unit in sight.plan.kept and self._previews.unable(sight.plan.kept[effect.unit]):",
        "if False:",
        "operator/test_agent_groups.py::test_what_of_its_addresses_cannot_be_is_said_by_a_group_that_is_ready",
    ),
    guard(
        "rules that the server keeps without their key take everybody's calls",
        "execute/istio/run.py",
        "    if _asked(kept.rules) != _asked(rules):",
        "    if False:",
        "operator/test_istio.py::TestOfSomebody::test_rules_that_the_server_would_keep_without_their_key_are_not_written",
    ),
    guard(
        "one of ours stands beside somebody's VirtualService, and is older",
        "operator/routes/strands.py",
        "        if not covering:",
        "        if True:",
        "operator/test_istio.py::TestOfOurs::test_it_leaves_when_somebody_writes_one_for_that_host",
    ),
    guard(
        "a VirtualService that its owner wants left alone is changed",
        "operator/routes/strands.py",
        "each.metadata.namespace == of.namespace and not each.is_left_alone]",
        "each.metadata.namespace == of.namespace]",
        "operator/test_istio.py::TestOfSomebody::test_what_cannot_be_is_said_and_nothing_is_taken_over",
    ),
    guard(
        "a VirtualService that somebody keeps to their own namespace decides for others",
        "execute/istio/read.py",
        "    if not seen.is_for(service.namespace):",
        "    if False:",
        f"{HOSTILE}TestMeshes::test_one_that_is_for_its_own_namespace_alone_decides_for_nobody_else",
    ),
    guard(
        "any number in a stranger's rule is turned into one",
        "execute/istio/rules.py",
        "not _BIRTH.fullmatch(parts[1])",
        "not parts[1].isdecimal()",
        f"{HOSTILE}TestMeshes::test_a_strangers_rule_with_a_name_like_ours_disturbs_nobody",
    ),
    guard(
        "a run waits for rules that a stranger writes in its name",
        "operator/routes/weaver.py",
        "if within is None or each.metadata.namespace in within]",
        "]",
        f"{HOSTILE}TestMeshes::test_a_rule_under_a_run_of_somebody_else_does_not_hinder_that_one",
    ),
    guard(
        "an endpoint tells which Services another namespace has",
        "operator/routes/previews.py",
        "if why := await self._not_granted(run, wished) or self._unable(wished):",
        "if why := self._unable(wished):",
        f"{HOSTILE}TestPreviews::test_what_another_namespace_has_is_not_told",
    ),
    guard(
        "each route of another namespace is named",
        "operator/routes/route_builder.py",
        "for called in every[:NAMED]:",
        "for called in every:",
        f"{HOSTILE}TestGateways::test_thousands_of_strangers_routes_to_a_baseline_are_not_all_named",
    ),
    guard(
        "each of thousands of routes to a baseline has one of ours beside it",
        "operator/routes/route_builder.py",
        "found = every[:MOST_ROUTES]",
        "found = every[:]",
        f"{HOSTILE}TestGateways::test_each_fork_has_so_many_routes_and_no_more",
    ),
    guard(
        "each of thousands of Services of a baseline has one of ours for each fork",
        "operator/routes/route_builder.py",
        "by_age[:MOST_SERVICES]",
        "by_age",
        f"{HOSTILE}TestGateways::test_each_fork_has_so_many_services_and_no_more",
    ),
    guard(
        "rules are woven into any number of VirtualServices",
        "operator/routes/strands.py",
        "    found = found[:MOST_WOVEN]",
        "    found = found[:]",
        f"{HOSTILE}TestMeshes::test_rules_are_woven_into_so_many_and_no_more",
    ),
    guard(
        "what is refused in other words is tried again at once",
        "operator/refusals.py",
        "return 0.0 if waited and (",
        "return 0.0 if (",
        f"{RESTLESS}a_route_that_is_refused_in_other_words_each_time",
    ),
    guard(
        "a route that may not be deleted is withdrawn anew",
        "operator/routes/route_reconciler.py",
        "                await self._routes.remove(kind, seen)\n                memory.withdrawn_at.pop(uid)",
        "                memory.withdrawn_at.pop(uid)\n                await self._routes.remove(kind, seen)",
        f"{RESTLESS}a_route_that_may_not_be_deleted",
    ),
    guard(
        "who has failed is asked again at once, since it had asked for that",
        "work/queue.py",
        "            self._own.pop(key, None)",
        "            pass",
        f"{RESTLESS}an_object_that_is_due_once_something_is_recorded_that_cannot_be",
    ),
    guard(
        "a ledger that nobody has written was overtaken",
        "operator/cluster/runs.py",
        "if found is not None and found.metadata.resource_version == before.metadata.resource_version:",
        "if False:",
        f"{RESTLESS}a_ledger_that_the_server_cannot_write",
    ),
    guard(
        "what is kept waits for a step's end to be recorded",
        "operator/reconciler.py",
        "                await self._keep_on(run)",
        "                pass",
        f"{RESTLESS}what_is_kept_is_kept_while_a_steps_end_cannot_be_recorded",
    ),
    guard(
        "a group that was closed before it started is about to start",
        "operator/targets/group_state.py",
        "run.started_at or run.closed is not None:",
        "run.started_at or run.ended_at:",
        f"{RESTLESS}a_group_that_is_deleted_before_it_started",
    ),
    guard(
        "each word on a hook that is removed is news to its runs",
        "operator/hooks/wing.py",
        "and (old is None or not old.metadata.deletion_timestamp)",
        "",
        f"{RESTLESS}a_hook_that_is_removed_while_its_runs_cannot_go_on",
    ),
    guard(
        "an endpoint opens a way into a namespace that does not let it",
        "operator/routes/previews.py",
        "            return\n        await leave(self._cluster.client, run, namespace)\n",
        "            return\n",
        "operator/test_previews.py::test_one_into_a_namespace_that_does_not_let_it_is_refused",
    ),
)
