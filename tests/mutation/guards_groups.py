"""Guards of route groups: whom they take, whose fork goes first, when they end."""

from __future__ import annotations

from mutation.guard import Guard, guard

GLOB, CROWD, PLAN = "spec/glob.py", "operator/groups/crowd.py", "plan/route_groups.py"
CONTROL, TARGET = "control/route_groups.py", "operator/targets/route_group.py"
GO = "spec/test_glob.py::test_each_answer_is_gos"
SAID = "plan/test_route_groups.py::test_"
SERVED = "control/test_route_groups.py::test_"
HELD = "operator/test_route_groups.py::test_"

GROUPS: tuple[Guard, ...] = (
    guard("a star of a pattern crosses a slash", GLOB, 'else "[^/]*")', 'else "[\\\\s\\\\S]*")', GO),
    guard("a question mark takes a slash", GLOB, '        return "[^/]"\n', '        return "[\\\\s\\\\S]"\n', GO),
    guard(
        "a pattern gives back what it took",
        GLOB,
        'found.append(f"(?>[^/]*?{written})")',
        'found.append(f"(?:[^/]*?{written})")',
        GO,
    ),
    guard("a star crosses a slash in values that are not of ASCII", GLOB, " or name[at] == _SLASH:", ":", GO),
    guard(
        "a class is taken for its contrary",
        GLOB,
        "{'^' if token.negated else ''}",
        "{'' if token.negated else '^'}",
        GO,
    ),
    guard(
        "a pattern may have any number of wildcards",
        GLOB,
        "> MOST_WILDCARDS:",
        "> 10**6:",
        "spec/test_glob.py::test_a_bad_pattern_is_refused_with_its_place",
    ),
    guard(
        "the youngest of two forks goes first",
        PLAN,
        "    return member.born_at, member.name, member.scope",
        "    return -member.born_at, member.name, member.scope",
        f"{SAID}the_oldest_goes_first_whatever_the_order",
    ),
    guard(
        "two forks of the same age have no order",
        PLAN,
        "    return member.born_at, member.name, member.scope",
        "    return member.born_at, '', ''",
        f"{SAID}the_oldest_goes_first_whatever_the_order",
    ),
    guard(
        "a group takes sandboxes of every place",
        PLAN,
        'if here in ("", self._sandboxes[of].scope)}',
        "}",
        f"{SAID}a_group_takes_only_those_of_its_own_place",
    ),
    guard(
        "who joins makes a group unready",
        PLAN,
        "    return Standing(True, Reason.READY, message, names, clashes)",
        "    return Standing(not tuple(waiting), Reason.READY, message, names, clashes)",
        f"{SAID}nobody_who_joins_makes_a_group_unready",
    ),
    guard(
        "a group of a namespace takes Sandboxes of others",
        CROWD,
        "Group(seen.metadata.namespace, match)",
        'Group("", match)',
        f"{HELD}a_group_takes_none_of_another_namespace",
    ),
    guard(
        "a Sandbox that is being deleted stays in its groups",
        CROWD,
        "if change.new is None or change.new.metadata.deletion_timestamp:",
        "if change.new is None:",
        f"{HELD}a_sandbox_whose_cleanup_goes_on_is_not_listed",
    ),
    guard(
        "a group never ends for want of sandboxes",
        TARGET,
        "0 if self._has_members(seen.meta.uid) else run.spec.unmatched_since",
        "0",
        f"{HELD}nobody_left_for_long_enough_ends_it",
    ),
    guard(
        "a sandbox whose time is over stays in its groups",
        "control/crowd.py",
        "if seen is None or seen.has_expired(_now()):",
        "if seen is None:",
        f"{SERVED}a_sandbox_whose_time_is_over_is_not_listed",
    ),
    guard(
        "keys lead to the forks of what ended while the server was away",
        "control/crowd.py",
        "return is_closed or (link is not None and link.picture.has_ended(uid))",
        "return is_closed",
        "control/test_group_keys.py::test_what_has_ended_while_nobody_listened_has_left_its_groups",
    ),
    guard(
        "a group's end is acknowledged before it is noted",
        "control/shelves.py",
        "    return [*records.roll(rows), *groups]",
        "    return [*records.roll(rows), *groups[:0]]",
        f"{SERVED}its_end_is_noted_though_nobody_looks_and_acknowledged_after_that",
    ),
    guard(
        "a server takes any number of groups",
        CONTROL,
        "            if there >= MOST_GROUPS:",
        "            if there < 0:",
        f"{SERVED}there_are_not_too_many",
    ),
    guard(
        "an extension cuts a life short",
        "control/lifetimes.py",
        'return ttl.lasting(begin, wanted) if wanted > end else ""',
        "return ttl.lasting(begin, wanted)",
        "control/test_route_groups.py::TestExtending::test_it_is_never_cut_short",
    ),
)
