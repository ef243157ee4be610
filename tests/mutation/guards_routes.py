"""Guards of what leads requests in a cluster: nobody else's requests, names or objects are taken."""

from __future__ import annotations

from mutation.guard import Guard, guard

ROUTES: tuple[Guard, ...] = (
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
