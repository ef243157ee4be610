"""Guards of the second line, each as the code would be without it, and the one test that must notice.

Those of the core (plan, turn, ledger) stand in `simulator/bugs.py`, and the protocol's in `model/mutants.py`. What
stands around them is here: whom a write names, whose an object is, what a stale cache or a peer may not be believed.
"""

from __future__ import annotations

from mutation.guard import Guard, guard
from mutation.guards_agents import AGENTS
from mutation.guards_alone import ALONE
from mutation.guards_cli import CLI
from mutation.guards_control import CONTROL
from mutation.guards_groups import GROUPS
from mutation.guards_hooks import HOOKS
from mutation.guards_kube import KUBE
from mutation.guards_objects import OBJECTS
from mutation.guards_page import PAGE
from mutation.guards_routes import ROUTES
from mutation.guards_routeserver import ROUTESERVER
from mutation.guards_secrets import SECRETS
from mutation.guards_states import STATES
from mutation.guards_telling import TELLING
from mutation.guards_wishes import WISHES

LINE = "operator/test_second_line.py::test_"
CLOCKS = "operator/test_clocks.py::TestOperatorsMachine::test_"
STRANGERS = "operator/test_strangers.py::test_"
POLICY, STORED = "execute/pod/policy/rules.py", "execute/pod/policy/stored.py"
TARGETS, OBSERVE = "operator/targets/targets.py", "operator/executors/step_observer.py"
OUTPUTS = "operator/outputs/outputs.py"
PODS, FORKS, CACHES = "execute/pod/run.py", "execute/fork/run.py", "operator/cluster/caches.py"
OWNERSHIP = "kube/ownership.py"
CHAIN = "operator/test_pods.py::test_secret_with_outputs_is_immutable_and_named_after_its_attempt"

GUARDS: tuple[Guard, ...] = (
    # --- whom a write names: what the rules of the fake cluster (`operator/rig/rules.py`) hear ---
    guard(
        "a gate is taken off whoever bears the name",
        PODS,
        """            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"/spec/schedulingGates""",
        """            {"op": "test", "path": f"/spec/schedulingGates""",
        CHAIN,
    ),
    guard(
        "a pod's finalizer is taken off whoever bears the name",
        PODS,
        """            {"op": "test", "path": "/metadata/uid", "value": pod.metadata.uid},
            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": names.FINALIZER},
""",
        """            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": names.FINALIZER},
""",
        CHAIN,
    ),
    guard(
        "whatever finalizer is in the place of ours goes",
        PODS,
        """            {"op": "test", "path": f"/metadata/finalizers/{at}", "value": names.FINALIZER},
""",
        "",
        CHAIN,
    ),
    guard(
        "a finalizer is taken off whoever bears the name",
        OWNERSHIP,
        """            {"op": "test", "path": "/metadata/uid", "value": meta.uid},
""",
        "",
        CHAIN,
    ),
    guard(
        "a pod is deleted by its name",
        PODS,
        "PODS, pod.metadata.name, pod.metadata.namespace, uid=pod.metadata.uid, grace=grace",
        "PODS, pod.metadata.name, pod.metadata.namespace, grace=grace",
        CHAIN,
    ),
    guard(
        "a target is deleted by its name",
        TARGETS,
        "delete(kind_of(run), target.name, target.namespace, uid=target.uid)",
        "delete(kind_of(run), target.name, target.namespace)",
        "operator/test_second_line.py::test_target_whose_time_is_over_goes",
    ),
    guard(
        "our finalizer is put on whichever version of a target there is",
        TARGETS,
        """            "resourceVersion": meta.resource_version,
""",
        "",
        CHAIN,
    ),
    guard(
        "our finalizer is put on whoever bears the target's name",
        TARGETS,
        """            "uid": target.uid,
""",
        "",
        CHAIN,
    ),
    guard(
        "a document is deleted by its name",
        TARGETS,
        "delete(DOCUMENTS, meta.name, uid=meta.uid)",
        "delete(DOCUMENTS, meta.name)",
        CHAIN,
    ),
    guard(
        "a run is deleted by its name",
        "operator/effects.py",
        "delete(RUNS, run.metadata.name, uid=run.metadata.uid)",
        "delete(RUNS, run.metadata.name)",
        CHAIN,
    ),
    guard(
        "a fork is deleted by its name",
        FORKS,
        "delete(DEPLOYMENTS, meta.name, meta.namespace, uid=meta.uid, propagation=foreground)",
        "delete(DEPLOYMENTS, meta.name, meta.namespace, propagation=foreground)",
        "operator/test_forks.py::TestEnd::test_abandoned_with_a_fork",
    ),
    guard(
        "a fork's Service is deleted by its name",
        FORKS,
        "delete(SERVICES, meta.name, meta.namespace, uid=meta.uid)",
        "delete(SERVICES, meta.name, meta.namespace)",
        "operator/test_forks.py::TestEnd::test_abandoned_with_a_fork",
    ),
    guard(
        "a status is said of whoever bears the name",
        "operator/status/sandbox_status.py",
        'patch = {"metadata": {"uid": meta.uid}, "status": status}',
        'patch = {"status": status}',
        CHAIN,
    ),
    # --- whose an object is ---
    guard(
        "a Secret of somebody else's is deleted",
        OUTPUTS,
        "if not owned(found.metadata, run):",
        "if not found.metadata.name:",
        STRANGERS + "secret_of_the_name_in_which_outputs_are_to_lie",
    ),
    guard(
        "a Secret of somebody else's hands outputs out",
        "operator/outputs/bindings.py",
        "if found is not None and not owned(found.metadata, run):",
        "if found is not None and not found.metadata.name:",
        STRANGERS + "secret_of_the_name_that_hands_outputs_out",
    ),
    guard(
        "a Resource of somebody else's speaks for ours",
        "operator/status/resource_status.py",
        "if not owned(made.metadata, run):",
        "if not made.metadata.name:",
        STRANGERS + "resource_of_the_very_name",
    ),
    guard(
        "a label makes a pod ours",
        CACHES,
        'if any(each.kind == "Run" and each.name == run for each in item.metadata.owner_references or ())',
        "if item.metadata.name",
        STRANGERS + "pods_of_a_run_that_is_gone_by_their_label_alone",
    ),
    guard(
        "a pod of our name is ours before it is claimed",
        OBSERVE,
        "(pod.metadata.uid == record.ref if claimed else owned(pod.metadata, run))",
        "(not claimed or pod.metadata.uid == record.ref)",
        STRANGERS + "pod_behind_our_gate_of_the_very_name",
    ),
    guard(
        "a fork's Service is made by who knows the newest wish",
        "operator/forks/fork_reconciler.py",
        "if await self._is_newest(run):",
        "if True:",
        "operator/test_fork_guards.py::TestFollowing::test_a_service_is_not_made_again_where_the_wish_is_not_the_newest",
    ),
    guard(
        "a Service in a fork's place is ours",
        "operator/forks/fork_reconciler.py",
        "if own is None or not owned(own.metadata, run):",
        "if own is None:",
        STRANGERS + "service_that_was_put_in_the_place_of_a_forks_own",
    ),
    guard(
        "logs that wear a run's label are its own",
        "operator/status/step_logs.py",
        "if owned(each.metadata, run)",
        "if each.metadata.name",
        STRANGERS + "logs_that_wear_the_label_of_a_run",
    ),
    guard(
        "a pod that somebody else made is taken for ours",
        PODS,
        "if not _is_ours(found, manifest):",
        'if not found["metadata"]:',
        "operator/test_pods.py::test_foreign_pod_of_our_name_is_left_alone",
    ),
    guard(
        "a pod without our nonce is ours",
        PODS,
        """        and nonce == wanted["annotations"][names.NONCE_ANNOTATION]
""",
        "",
        "execute/test_pod_run.py::test_one_that_lacks_what_nobody_else_can_know_is_not",
    ),
    guard(
        "a pod without our finalizer is ours",
        PODS,
        """        and names.FINALIZER in (meta.get("finalizers") or ())
""",
        "",
        "execute/test_pod_run.py::test_one_that_lacks_what_nobody_else_can_know_is_not",
    ),
    # --- what a stale cache, a log or a peer may not be believed ---
    guard(
        "another UID's pod tells of the claimed one",
        OBSERVE,
        "(pod.metadata.uid == record.ref if claimed else owned(pod.metadata, run))",
        "(claimed or owned(pod.metadata, run))",
        LINE + "pod_in_the_place_of_the_claimed_one_tells_nothing_of_it",
    ),
    guard(
        "another UID's pod, read by quorum, tells of the claimed one",
        OBSERVE,
        "            if pod is not None and pod.metadata.uid == record.ref:\n",
        "            if pod is not None:\n",
        LINE + "pod_in_the_place_of_the_claimed_one_tells_nothing_of_it",
    ),
    guard(
        "a Sandbox that was fenced before is born again",
        "operator/front/sandboxes.py",
        "if now is None or now.metadata.deletion_timestamp or finalized(now.metadata, TARGET_FINALIZER):",
        "if now is None or now.metadata.deletion_timestamp:",
        LINE + "sandbox_that_was_fenced_before_is_not_born_again",
    ),
    guard(
        "a peer's pod is refused where one of the two sends no traces",
        "operator/pods/pod_builder.py",
        "traced = read.is_traced(stored)",
        "traced = None",
        "operator/test_pod_builder.py::TestTraces",
    ),
    guard(
        "a pod may start at any time",
        "operator/pods/pod_builder.py",
        "if not 0 < start_before <= latest:",
        "if not 0 < start_before:",
        LINE + "pod_that_may_start_later_than_any_of_ours_is_not_claimed",
    ),
    guard(
        "a pod that is too old by a wrong clock is made again and again",
        "operator/executors/step_executor.py",
        "            if self._waits(sight, effect, pod):",
        "            if self._waits(sight, effect, pod) and effect.ahead:",
        CLOCKS + "where_it_is_not_told_and_ahead_each_step_says_why_it_does_not_start",
    ),
    guard(
        "what was too old by a wrong clock waits on when it is too old by the right one",
        "operator/executors/step_executor.py",
        "        if said is None or now < said.since or not input_pins.in_time(step, said.since, now):",
        "        if said is None or now < said.since:",
        CLOCKS + "once_the_clocks_are_right_what_is_too_old_by_then_is_made_anew",
    ),
    guard(
        "what waits for clocks to be set waits as long again as they were wrong",
        "operator/executors/step_executor.py",
        "        if said is None or now < said.since or not input_pins.in_time(step, said.since, now):",
        "        if said is None or not input_pins.in_time(step, said.since, now):",
        CLOCKS + "once_the_clocks_are_right_what_is_too_old_by_then_is_made_anew",
    ),
    guard(
        "a peer's pod for a later attempt is taken away",
        "operator/executors/step_executor.py",
        "if input_pins.fits(sight.run, step, pod, sight.now, forks) or input_pins.newer(sight.run, step, pod):",
        "if input_pins.fits(sight.run, step, pod, sight.now, forks):",
        LINE + "pod_that_a_peer_made_for_a_later_attempt_is_left_to_it",
    ),
    guard(
        "a receipt in a log is the pod's whose name it is found by",
        "operator/pods/follow.py",
        'heard.whole and heard.field("pod") == uid else None',
        "heard.whole else None",
        LINE + "receipt_in_a_log_that_is_another_pods_is_not_this_ones",
    ),
    guard(
        "outputs come from any log of that name",
        PODS,
        "return splitter.contents() if splitter.digest == digest else None",
        "return splitter.contents()",
        "execute/test_pod_run.py::test_outputs_come_from_the_very_document_that_was_sealed",
    ),
    guard(
        "a finalizer goes from whatever took the place of the object",
        OWNERSHIP,
        """        if seen.metadata.uid != meta.uid:
            return
""",
        "",
        LINE + "finalizer_of_an_object_that_took_the_place_of_another_stays",
    ),
    guard(
        "a pod is read for the one whose place it took",
        PODS,
        'return found if found is not None and found["metadata"]["uid"] == pod.metadata.uid else None',
        "return found",
        "execute/test_pod_run.py::test_a_pod_that_took_its_place_is_not_read_for_it",
    ),
    # --- what a pod may be ---
    guard(
        "another step's outputs lie in our own volume",
        POLICY,
        'all(set(each) == {"secret"} and (each["secret"] or {}).get("name") in terms.secrets for each in sources[2:])',
        "all(sources[2:])",
        "policy/test_policy.py::test_outputs_of_another_step_beside_the_order",
    ),
    guard(
        "a webhook may change a pod's deadline",
        STORED,
        'for field in ("restartPolicy", "activeDeadlineSeconds", "automountServiceAccountToken"):',
        'for field in ("restartPolicy", "automountServiceAccountToken"):',
        "policy/test_stored.py::test_what_it_may_not",
    ),
    guard(
        "any value of the label grants a namespace",
        "operator/pods/namespaces.py",
        'labels.get(GRANT_LABEL) != "true":',
        "GRANT_LABEL not in labels:",
        "operator/test_pods.py::test_namespace_must_be_granted",
    ),
    guard(
        "another program under the runner's name is run with the steps' Secrets",
        "operator/pods/namespaces.py",
        'if any(found.get(field) != wanted[field] for field in ("immutable", "binaryData")):',
        "if not found:",
        "operator/test_grants.py::TestRunner::test_another_program_under_its_name_is_never_run",
    ),
    # --- the embedded host ---
    guard(
        "a step that has started is fenced",
        "execute/process/run.py",
        'return slurp(f"{self.path}/marker").startswith(b"void")',
        "return True",
        "execute/test_process_folder.py::test_what_has_started_is_not_fenced",
    ),
    guard(
        "an attempt whose folder was removed never began",
        "execute/process/run.py",
        "(os.path.lexists(self._trace) or self._has_log())",
        "self._has_log()",
        "embedded/test_removed.py::test_the_folder_of_a_step_while_there_is_no_server",
    ),
    guard(
        "altered bytes are an output",
        "execute/process/run.py",
        'if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest:',
        "if not digest:",
        "execute/test_process_folder.py::test_bytes_that_the_receipt_was_not_sealed_over_are_no_output",
    ),
    guard(
        "an output that the receipt does not speak of is there",
        "execute/receipt.py",
        'told.get(output.name, ("missing", "0"))',
        'told.get(output.name, ("present", "0"))',
        "execute/test_receipt.py::test_an_output_that_the_receipt_does_not_speak_of_was_not_written",
    ),
    guard(
        "a run that has ended is born again",
        "embedded/ledger.py",
        'if self._db.execute("SELECT 1 FROM ended WHERE uid = ?", (uid,)).fetchone():',
        'if self._db.execute("SELECT 1 FROM ended WHERE uid = ? AND 0", (uid,)).fetchone():',
        "simulator/test_ledger.py::test_a_run_that_has_ended_is_not_born_again",
    ),
    guard(
        "everybody may read the ledger",
        "embedded/ledger.py",
        "Path(path).touch(mode=0o600)",
        "Path(path).touch(mode=0o644)",
        "simulator/test_ledger.py::test_the_file_is_its_owners_alone",
    ),
    guard(
        "attempts work where others may write",
        "execute/process/place.py",
        "stat.S_ISDIR(seen.st_mode) and seen.st_uid == os.geteuid() and not seen.st_mode & 0o077",
        "stat.S_ISDIR(seen.st_mode)",
        "embedded/test_place.py::test_a_folder_that_others_can_write_to_is_refused",
    ),
    guard(
        "what was secret stays in the ledger's file",
        "embedded/ledger.py",
        "PRAGMA secure_delete = ON",
        "PRAGMA secure_delete = OFF",
        "simulator/test_ledger.py::test_values_leave_the_file_with_the_run",
    ),
    guard(
        "forks of a run that ends are revised",
        "embedded/ledger.py",
        "UPDATE run SET forks = ? WHERE uid = ? AND phase = 'open'",
        "UPDATE run SET forks = ? WHERE uid = ?",
        "simulator/test_ledger.py::test_forks_of_a_run_that_ends_are_not_revised",
    ),
    guard(
        "the lease of a run that ends is renewed",
        "embedded/host.py",
        "if stored is None or (only_open and stored.run.closed is not None):",
        "if stored is None:",
        "embedded/test_steps.py::test_the_lease_of_a_run_that_ends_is_not_renewed",
    ),
    guard(
        "whoever gives a cleanup up last is recorded by the host",
        "embedded/host.py",
        "lambda wish: wish if wish.abandon else msgspec.structs.replace(wish, abandon=request)",
        "lambda wish: msgspec.structs.replace(wish, abandon=request)",
        "embedded/test_steps.py::test_who_gives_a_cleanup_up_first_is_recorded",
    ),
    guard(
        "an offer that a stop has overtaken begins a run",
        "embedded/host.py",
        "never=None if known else never",
        "never=None",
        "embedded/test_orders.py::test_an_end_that_overtakes_its_offer_stays_an_end",
    ),
    guard(
        "an older form of a wish is taken over",
        "embedded/host.py",
        "if offer.generation >= before.generation:",
        "if True:",
        "embedded/test_orders.py::test_an_older_form_of_a_wish_changes_nothing",
    ),
    guard(
        "what is lost is begun once more",
        "embedded/host.py",
        "if offer.birth and self._ledger.birth(stored):",
        "if self._ledger.birth(stored):",
        "embedded/test_orders.py::test_what_is_said_to_have_begun_and_is_not_known_is_lost",
    ),
    guard(
        "an end that nobody has noted is forgotten",
        "embedded/ledger.py",
        "WHERE at < ? AND acknowledged",
        "WHERE at < ?",
        "embedded/test_adoption.py::test_what_ended_long_ago_is_known_until_the_store_has_taken_note_of_it",
    ),
    *CLI,
    *CONTROL,
    *ALONE,
    *OBJECTS,
    *PAGE,
    *ROUTES,
    *ROUTESERVER,
    *SECRETS,
    *STATES,
    *AGENTS,
    *TELLING,
    *GROUPS,
    *HOOKS,
    *KUBE,
    *WISHES,
)
