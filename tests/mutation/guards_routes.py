"""Guards of what leads requests in a cluster: nobody else's requests, names or objects are taken."""

from __future__ import annotations

from mutation.guard import Guard, guard

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
        "an endpoint opens a way into a namespace that does not let it",
        "operator/routes/previews.py",
        "        await leave(self._cluster.client, run, namespace)\n",
        "",
        "operator/test_previews.py::test_one_into_a_namespace_that_does_not_let_it_is_refused",
    ),
)
