"""As `guards`, for what controllers of others' own stand on: whose an object is, and of which version is spoken."""

from __future__ import annotations

from mutation.guard import Guard, guard

OWNERSHIP, STATUS, CONTROLLER = "kube/ownership.py", "kube/status.py", "kube/controller.py"
CLOCK, TIME = "kube/server_clock.py", "kube/test_server_clock.py::test_"
OWNS, SAYS = "kube/test_speaking.py::TestOwnership::test_", "kube/test_speaking.py::TestStatus::test_"
HOLDS = "kube/test_speaking.py::TestFinalizers::test_"

KUBE: tuple[Guard, ...] = (
    guard(
        "a finalizer needs no more where its object's kind is served no more",
        OWNERSHIP,
        "        except errors.NotFound:\n            return\n        if seen",
        "        except errors.ABSENT:\n            return\n        if seen",
        HOLDS + "what_goes_out_of_sight_with_its_kind_is_not_gone",
    ),
    guard(
        "a run is gone where runs are not served",
        "operator/cluster/runs.py",
        "        found = await self._client.find(RUNS, name)\n        if found is None:",
        """        try:
            found = await self._client.find(RUNS, name)
        except errors.NotServed:
            found = None
        if found is None:""",
        "operator/test_runs.py::test_where_runs_are_not_served_nobody_knows",
    ),
    guard(
        "a target is gone where its kind is not served",
        "operator/targets/adapter.py",
        "        if isinstance(missing, errors.NotServed):",
        "        if missing is None:",
        "operator/test_takings.py::test_what_the_proof_once_found",
    ),
    guard(
        "an object is not there because its kind is not served",
        "kube/answers.py",
        "kind = errors.NotServed  # a 404 of an object names it",
        "pass",
        "kube/test_client.py::TestChanges::test_what_is_not_found_is_none_and_what_is_not_served_is_nothing_known",
    ),
    guard(
        "an owner of the same name has what another one has made",
        OWNERSHIP,
        "found is not None and found.uid == owner.metadata.uid",
        "found is not None and found.name == owner.metadata.name",
        OWNS + "an_owner_of_the_same_name_is_another_one",
    ),
    guard(
        "whatever bears the name is the owner's",
        OWNERSHIP,
        "    if not controls(owner, found):",
        "    if not found:",
        OWNS + "an_owner_of_the_same_name_is_another_one",
    ),
    guard(
        "a finalizer is put on what has changed since",
        OWNERSHIP,
        """"resourceVersion": meta.resource_version, "finalizers": [*finalizers""",
        """"finalizers": [*finalizers""",
        HOLDS + "one_is_put_on_as_it_was_seen",
    ),
    guard(
        "a status is said of what has changed since",
        STATUS,
        """{"uid": meta.uid, "resourceVersion": meta.resource_version}""",
        """{"uid": meta.uid}""",
        SAYS + "nothing_is_said_of_what_has_changed_since_it_was_seen",
    ),
    guard(
        "a message that counts on is news",
        STATUS,
        "(one.type, one.status, one.reason) == (other.type, other.status, other.reason)",
        "one == other",
        SAYS + "an_event_is_said_when_a_condition_changes_and_at_no_other_time",
    ),
    guard(
        "the server's time is not heard",
        CLOCK,
        "        self._ahead = min(max(ahead, told - ticks), told + _SECOND_MS - asked)",
        "        self._ahead = ahead",
        TIME + "a_clock_that_is_wrong_by_a_day_is_right_after_one_answer",
    ),
    guard(
        "an answer is believed to have been dated when it came",
        CLOCK,
        "told + _SECOND_MS - asked)",
        "told + _SECOND_MS - ticks)",
        TIME + "an_answer_that_took_long_tells_little",
    ),
    guard(
        "whoever stands before the server tells its time",
        CLOCK,
        "        if status < _NO_SUCCESS and (date",
        "        if (date",
        TIME + "only_who_succeeds_is_the_server",
    ),
    guard(
        "what went wrong with one key ends its controller",
        CONTROLLER,
        "        except Exception:",
        "        except NotImplementedError:",
        "kube/test_controller.py::test_what_goes_wrong_with_one_is_tried_again_and_stops_nobody",
    ),
    guard(
        "a status that somebody has written over stays",
        "operator/status/sandbox_status.py",
        "            self._overwritten(change.new)",
        "            pass",
        "operator/test_good_operator.py::TestStatusIsNoInput::test_what_somebody_wrote_over_the_truth_does_not_stay",
    ),
    guard(
        "a hook's status that somebody has written over stays",
        "operator/hooks/hook_status.py",
        "            throttle = self._throttles[meta.uid] = StatusThrottle()",
        "            pass",
        "operator/test_good_operator.py::TestStatusIsNoInput::test_nor_what_somebody_wrote_over_that_of_a_hook",
    ),
    guard(
        "an object that is nested too deeply spoils every list",
        "kube/answers.py",
        "            decoded = decoder.decode(cut(answer.body))",
        "            raise",
        "operator/test_nesting.py::test_one_that_is_new_is_refused_and_others_live_on",
    ),
    guard(
        "an object that is nested too deeply ends every watch",
        "kube/watch.py",
        "        return _decoded(request, resource, cut(line))",
        "        raise",
        "operator/test_nesting.py::test_one_that_lives_keeps_what_it_has_until_it_is_deleted",
    ),
    guard(
        "a wish of which a part was cut is acted by",
        "operator/front/sandboxes.py",
        "        check_depth(seen.spec)\n",
        "",
        "operator/test_nesting.py::test_one_that_lives_keeps_what_it_has_until_it_is_deleted",
    ),
    guard(
        "a key that a kubeconfig holds lies in /tmp",
        "kube/kubeconfig.py",
        'if hasattr(os, "memfd_create"):',
        "if not config:",
        "kube/test_auth.py::TestLoad::test_keys_in_the_file_are_written_nowhere",
    ),
    guard(
        "a watch that is refused waits for ever for the reason",
        "kube/client.py",
        "                        async with asyncio.timeout(request.timeout):\n                            body = ",
        "                        async with asyncio.timeout(None):\n                            body = ",
        "kube/test_client.py::TestReads::test_a_stream_that_is_refused_and_never_explained_ends",
    ),
)
