"""As `guards`, for what a lifecycle hook may wish for: whose objects, which kinds, and with whose grants."""

from __future__ import annotations

from mutation.guard import Guard, guard

HOOK, KINDS, COMPILED = "spec/lifecycle_hook.py", "spec/object_kinds.py", "compile/lifecycle_hook.py"
WISH = "spec/test_lifecycle_hook.py::test_"

WISHES: tuple[Guard, ...] = (
    guard(
        "a hook goes with what is Dayfly's own",
        HOOK,
        "if not namespace or namespace in OWN_NAMESPACES:",
        "if not namespace:",
        WISH + "whom_a_selector_means",
    ),
    guard(
        "a hook that names no namespace goes with what is Kubernetes' own",
        HOOK,
        "meant = not namespace.startswith(CLUSTERS_PREFIX)",
        "meant = bool(namespace)",
        WISH + "whom_a_selector_means",
    ),
    guard(
        "a hook goes with Secrets and Pods",
        KINDS,
        """        if key in _NO_TARGETS:
            return _NO_TARGETS[key]
""",
        "",
        WISH + "refused",
    ),
    guard(
        "a kind that is refused in all its group is let through by its name",
        KINDS,
        "for key in ((group, kind), (group, ANY)):",
        "for key in ((group, kind),):",
        WISH + "every_refused_kind_is_refused_in_every_version",
    ),
    guard(
        "a hold takes the place of finalizers and owners",
        HOOK,
        'if way[0] == "metadata":',
        'if way[0] == "":',
        WISH + "refused",
    ),
    guard(
        "an object is removed by a step that may never run",
        HOOK,
        "if step.object is not None and event == Event.PRE_STOP:",
        "if step.object is not None and event == Event.PRE_START:",
        WISH + "refused",
    ),
    guard(
        "a hook reads what was granted to a plugin of its name",
        COMPILED,
        "Origin(publisher=PUBLISHER, plugin=hook.name)",
        'Origin(publisher="cluster", plugin=hook.name)',
        "compile/test_lifecycle_hook.py::test_the_document_is_the_targets_own_and_grants_name_the_hook",
    ),
)
