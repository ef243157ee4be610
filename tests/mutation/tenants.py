"""What stands between tenants, each as the code was before it was mended, and the test that falls then (docs/security.md).

Name, file, the text and what takes its place, test. What the API server itself holds (`deploy/base/policies.yaml`) is in
`tests/deploy/test_access.py`.
"""

from __future__ import annotations

GRANTS, BUILDER = "operator/pods/plugin_reads.py", "operator/pods/pod_builder.py"
PATCH, RIGHTS, PLACES = "execute/fork/patch.py", "execute/fork/rights.py", "operator/pods/places.py"
READS, FORKS = "operator/test_plugin_reads.py::test_", "operator/test_fork_rights.py::Test"

TENANTS: tuple[tuple[str, str, str, str, str], ...] = (
    # 1. Secrets where steps run
    (
        "any plugin reads any Secret where steps run",
        GRANTS,
        "if origin.name not in await self._readers(namespace, kind, name):",
        "if await self._readers(namespace, kind, name) is None:",
        READS + "only_what_names_the_plugin",
    ),
    (
        "a plugin within a sandbox reads what names it",
        "execute/pod/policy/reading.py",
        "        elif inline:\n",
        "        elif inline and not name:\n",
        READS + "inline_plugin_is_refused_whatever_the_object_says",
    ),
    (
        "a hook is taken for a published plugin",
        "execute/pod/trial.py",
        'keys=frozenset({"*"}), inline=inline)',
        'keys=frozenset({"*"}))',
        READS + "hook_is_refused_as_an_inline_plugin_is",
    ),
    (
        "outputs of other steps are read by whom they name",
        GRANTS,
        'if found.type in (names.OUTPUTS_TYPE, names.STATE_TYPE) or any(owner.kind == "Run" for owner in owners):',
        "if len(owners) > 99:",
        READS + "outputs_of_other_steps_are_told_by_type_and_owner",
    ),
    # 2. another team's namespace, and its traffic
    (
        "a namespace that takes steps takes everybody's",
        "operator/pods/namespaces.py",
        'if namespace != home and granted.homes.isdisjoint({home, "*"}):',
        "if namespace != home and not granted.level:",
        "operator/test_pods.py::test_namespace_takes_steps_of_those_alone_whom_it_names",
    ),
    (
        "a step is an endpoint of a Service",
        BUILDER,
        "if selector and selector.items() <= labels.items():",
        "if selector and not labels:",
        "operator/test_pods.py::test_step_is_no_services_endpoint",
    ),
    (
        "a step is not told whose namespace it acts for",
        "compile/compiler.py",
        '"DAYFLY_SANDBOX_NAMESPACE": namespace}',
        '"DAYFLY_SANDBOX_NAMESPACE": ""}',
        "compile/test_units.py::test_a_step_knows_its_sandboxes_namespace",
    ),
    # 3. patches that make much of little
    (
        "a patch adds without end",
        PATCH,
        "if self._added > MOST_ADDED:",
        "if self._added < 0:",
        "execute/test_fork_patch.py::test_bombs_end_at_their_bound",
    ),
    (
        "a patch handles values without end",
        PATCH,
        "if size > MOST_ADDED or self._looked_at > MOST_LOOKED_AT:",
        "if size > MOST_ADDED:",
        "execute/test_fork_patch.py::test_bombs_end_at_their_bound",
    ),
    (
        "what was refused is rendered again and again",
        "operator/forks/fork_builder.py",
        "if (known := refused.get(place)) and known.made_of == made_of:",
        "if (known := refused.get(place)) and not known.made_of:",
        FORKS + "Costs::test_a_bomb_is_refused",
    ),
    # 4. rights that a fork borrows
    (
        "a fork may differ from its baseline in everything",
        RIGHTS,
        "    if not leave.free:\n",
        "    if leave.free and not leave.home:\n",
        "execute/test_fork_rights.py::TestRefused::test_anywhere",
    ),
    (
        "a fork bears keys of ours",
        RIGHTS,
        "if key.startswith(_OURS) and key not in own:",
        "if key == _OURS:",
        "execute/test_fork_rights.py::TestRefused::test_our_own_keys_even_where_all_is_free",
    ),
    (
        "a fork brings containers of its own",
        RIGHTS,
        "if len(_items(pod, field)) != len(found) or found.keys() != known.keys():",
        "if not found.keys() >= known.keys():",
        "execute/test_fork_rights.py::TestRefused::test_anywhere",
    ),
    (
        "a fork elsewhere reads what it names",
        RIGHTS,
        "            if self._home:\n                yield from _judged(shape.HOME_VARIABLE, variable, path)\n",
        "            if variable:\n                yield from _judged(shape.HOME_VARIABLE, variable, path)\n",
        FORKS + "Namespaces::test_elsewhere_it_reads_no_secret_of_its_own_choice",
    ),
    # 5. namespaces that have granted nothing
    (
        "a namespace that was not asked is forked",
        "operator/forks/namespaces.py",
        "if namespace != home and home not in listed(notes, SOURCES_ANNOTATION):",
        "if not namespace:",
        FORKS + "Namespaces::test_another_namespace_must_allow_it",
    ),
    (
        "a fork that another is told of asks no leave",
        "operator/forks/fork_builder.py",
        "        await leave(self._cluster.client, run, of.namespace)\n        identity =",
        "        identity =",
        FORKS + "Namespaces::test_so_must_that_of_a_fork_that_another_is_told_of",
    ),
    # 6. labels and annotations that bear rights
    (
        "a pod bears whatever keys its plugin names",
        "execute/pod/policy/rules.py",
        'elif terms.keys.isdisjoint({key, f"{domain}/*", "*"}):',
        "elif not terms.namespace:",
        "policy/test_policy.py::test_refuses",
    ),
    (
        "a fork bears whatever annotations its patch names",
        RIGHTS,
        "if not key.startswith((_OURS, *shape.ANNOTATIONS)) and not same(found.get(key), known.get(key)):",
        "if not key:",
        "execute/test_fork_rights.py::TestRefused::test_anywhere",
    ),
    # 7. places
    (
        "a namespace runs any number of steps",
        PLACES,
        "return self._bounds.of(bucket) + taken.lacking - taken.places",
        "return 1 << 20",
        "operator/test_places.py::TestBound::test_so_many_steps_run_at_once_and_no_more",
    ),
    (
        "who comes last passes those who wait",
        PLACES,
        "return self._free(bucket) - before",
        "return self._free(bucket)",
        "operator/test_places.py::TestBound::test_who_comes_just_when_a_place_is_free_waits_behind_the_others",
    ),
    (
        "a step without its image keeps its place",
        PLACES,
        "return fact.placed and (fact.recallable or fact.recalled > 0 or fact.reason in reason_words.NO_IMAGE)",
        "return False",
        "operator/test_places.py::TestImages::test_steps_that_lack_their_image_hold_no_place",
    ),
    (
        "one namespace has all workers though another has work",
        "work/queue.py",
        "return self._kept[owner] < max(least, -(-self._workers // max(len(self._heard), 1)))",
        "return self._kept[owner] < self._workers",
        "work/test_queue.py::TestQueue::test_owners_share_the_workers_while_several_have_work",
    ),
    # 8. half-open requests
    (
        "half a request is waited for without end",
        "control/connections.py",
        "self._timer = self.loop.call_later(seconds, self._too_slow)",
        "self._timer = self.loop.call_later(86_400, self._too_slow)",
        "control/test_connections.py::test_half_a_request_ends_by_itself_in_our_form",
    ),
    (
        "connections are opened without end",
        "control/connections.py",
        "if len(self.connections) > most_connections():",
        "if not self.connections:",
        "control/test_connections.py::test_with_too_many_those_that_keep_us_waiting_longest_go_first",
    ),
    # 9. other users of the machine, and what they write
    (
        "a home that belongs to somebody else is trusted",
        "client/home.py",
        "if found.st_uid not in (os.geteuid(), 0):",
        "if found.st_uid < 0:",
        "cli/test_home.py::test_what_belongs_to_somebody_else_is_refused",
    ),
    (
        "a home in which everybody writes is trusted",
        "client/home.py",
        "if found.st_mode & opened and not stat.S_ISLNK(found.st_mode):",
        "if not found.st_mode:",
        "cli/test_home.py::test_what_lies_open_to_everybody_is_refused",
    ),
    (
        "what others wrote drives a terminal",
        "cli/show.py",
        'return "".join(char if char.isprintable() else " " if char.isspace() else _escape(char) for char in text)',
        "return text",
        "cli/test_show.py::test_nothing_that_others_wrote_drives_a_terminal",
    ),
    (
        "a variable says which program a command runs",
        "spec/command.py",
        'if "$(" in command[0]:',
        'if "$()" in command[0]:',
        "spec/test_plugin.py::test_refused",
    ),
    # 10. malformed patches
    (
        "a patch that fits nowhere is a defect of ours",
        PATCH,
        "        if not isinstance(found, dict | list):\n",
        "        if found is self:\n",
        "execute/test_fork_patch.py::test_malformed_ones_are_refused_with_their_place",
    ),
)
