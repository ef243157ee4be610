"""As `guards`, for objects that steps make: with whose rights, which very one, and what may never be made."""

from __future__ import annotations

from mutation.guard import Guard, guard

EXECUTOR, OBSERVER = "operator/executors/object_executor.py", "operator/objects/object_observer.py"
RUN, RENDER, READ = "execute/object/run.py", "execute/object/render.py", "execute/object/read.py"
LIFE = "operator/test_objects.py::test_"
RIGHTS = "operator/test_object_rights.py::test_"
WHOLE = LIFE + "a_claim_lives_its_whole_life_between_steps"
AT_REST = LIFE + "a_job_is_born_at_rest_and_let_go_by_its_uid"
PURE = "object/test_render.py::test_"

OBJECTS: tuple[Guard, ...] = (
    guard(
        "what an object says of its Secret's name becomes a part of a request as it is",
        READ,
        " and is_name(values[0]) else",
        " else",
        "object/test_read.py::test_what_cannot_be_the_name_of_a_secret_names_none",
    ),
    guard(
        "an object whose kind is served no more is gone",
        RUN,
        "            raise self._lost(kind) from missing\n\n    async def is_ending",
        "            return None\n\n    async def is_ending",
        "operator/test_objects.py::test_an_object_whose_kind_is_served_no_more_is_out_of_sight_and_not_gone",
    ),
    guard(
        "an object whose kind is served no more is let go",
        RUN,
        "            except errors.NotFound:\n                return\n            except errors.NotServed",
        "            except errors.ABSENT:\n                return\n            except errors.NotServed",
        "execute/test_object_run.py::TestLettingGo::test_one_whose_kind_is_served_no_more_is_still_held",
    ),
    guard(
        "an object whose creation nobody answers is created again at once",
        EXECUTOR,
        "                raise  # to try again at once",
        "                return  # to try again at once",
        "operator/test_object_executor.py::TestMaking::"
        "test_what_is_not_there_hinders_the_turn_and_is_not_tried_again_at_once",
    ),
    guard(
        "objects are made with the operator's own rights",
        RUN,
        "return self._client.acting_as(account(namespace), EXTRA)",
        "return self._client",
        WHOLE,
    ),
    guard(
        "policies are not told who it is that makes objects",
        RUN,
        "acting_as(account(namespace), EXTRA)",
        "acting_as(account(namespace), {})",
        WHOLE,
    ),
    guard(
        "an object is deleted by its name",
        RUN,
        """                uid=meta["uid"],
                resource_version""",
        "                resource_version",
        WHOLE,
    ),
    guard(
        "an object's finalizer is taken off whoever bears the name",
        RUN,
        """                {"op": "test", "path": "/metadata/uid", "value": meta["uid"]},
""",
        "",
        WHOLE,
    ),
    guard(
        "whatever finalizer of an object is in the place of ours goes",
        RUN,
        """                {"op": "test", "path": f"/metadata/finalizers/{at}", "value": FINALIZER},
""",
        "",
        WHOLE,
    ),
    guard(
        "a namespace that is gone proves nothing",
        RUN,
        "if await self._client.find(NAMESPACES, namespace) is None:",
        "if namespace is None:",
        LIFE + "a_namespace_that_is_gone_is_proof",
    ),
    guard(
        "an object is let go by its name",
        RENDER,
        '"metadata": {"uid": meta["uid"], "annotations"',
        '"metadata": {"annotations"',
        AT_REST,
    ),
    guard(
        "a Job is at work before its UID is entered",
        RENDER,
        "        spec[held.field] = held.value\n",
        "",
        AT_REST,
    ),
    guard(
        "the table of kinds is not asked when an object is sent",
        RENDER,
        "    if problem:\n        raise CannotRenderError(Reason.KIND_REFUSED",
        "    if problem is None:\n        raise CannotRenderError(Reason.KIND_REFUSED",
        PURE + "a_kind_that_no_step_may_make_is_refused_here_again",
    ),
    guard(
        "a sensitive input stands anywhere in an object",
        RENDER,
        "if placed.input in sensitive and not",
        "if placed.input is sensitive and not",
        PURE + "what_is_sensitive_stands_in_a_secret_alone",
    ),
    guard(
        "a copy with our token is ours although the ledger holds another UID",
        READ,
        '        return bool(meta["uid"] == ref)\n',
        '        ref = ref and "" if meta["uid"] == ref else ref\n',
        LIFE + "a_copy_with_its_marks_is_nobodys",
    ),
    guard(
        "what a controller said of an earlier generation counts",
        READ,
        "if _is_late(observed, generation) and (item.ready or item.failed):",
        "if observed is Ellipsis and (item.ready or item.failed):",
        "object/test_read.py::test_how_it_stands",
    ),
    guard(
        "an object is gone although somebody's finalizer is still on it",
        OBSERVER,
        "    if not left:\n        return None\n    many",
        "    if left or not left:\n        return None\n    many",
        LIFE + "what_it_waits_for_is_said_in_the_words_of_its_controller",
    ),
    guard(
        "what was given up is waited for",
        OBSERVER,
        """        if turn.abandoned:
            return _over(turn, record, Reason.CANCELLED, "its cleanup was given up")
""",
        "",
        LIFE + "given_up_it_waits_for_nothing_and_the_cluster_collects_it",
    ),
    guard(
        "an object is claimed before the server was asked whether it would take it",
        EXECUTOR,
        "if said := await self._observer.ask(turn, step, key[1]):",
        "if said := None:",
        RIGHTS + "without_the_right_it_says_the_line_to_type_and_goes_on",
    ),
    guard(
        "an object that may not be looked at is asked for without end",
        EXECUTOR,
        "if found is None and isinstance(effect, Fence):",
        "if found is None:",
        RIGHTS + "what_may_not_be_looked_at_or_deleted_any_more_is_tried_now_and_then[get]",
    ),
    guard(
        "an object that may not be deleted is deleted without end",
        EXECUTOR,
        "if found is None or read.ending(found) or memory.hindrance(self._cluster.now()):",
        "if found is None or read.ending(found):",
        RIGHTS + "what_may_not_be_looked_at_or_deleted_any_more_is_tried_now_and_then[delete]",
    ),
    guard(
        "what was made after its run had ended stays",
        EXECUTOR,
        'if not await self._is_permitted(sight, where, Phase.OPEN, Phase.CLOSED, made=made["metadata"]["uid"]):',
        "if where is None:",
        LIFE + "an_operator_that_stood_still_takes_back_what_it_made_too_late",
    ),
    guard(
        "what a peer has seen before we heard that it was made is taken back",
        EXECUTOR,
        "return record.ref == made",
        "return False",
        LIFE + "an_operator_that_hears_late_that_it_was_made_leaves_it_to_its_peer",
    ),
    guard(
        "an object that may be ready by now is deleted for not being ready",
        EXECUTOR,
        "await self._objects.delete(kind, found, unchanged=True)",
        "await self._objects.delete(kind, found)",
        LIFE + "one_that_becomes_ready_as_its_time_runs_out_stays",
    ),
    guard(
        "what is not there before the ledger is closed is taken for never made",
        OBSERVER,
        "if turn.run.ledger.phase is not Phase.OPEN:",
        "if turn.closing:",
        "operator/test_object_alone.py::TestMaking::test_before_the_ledger_is_closed_a_peer_may_be_making_it",
    ),
    guard(
        "our finalizer stays when the run is over",
        EXECUTOR,
        "                await self._let_go(where, record.ref)\n",
        "                pass\n",
        WHOLE,
    ),
    guard(
        "the first UID that was seen is not entered",
        OBSERVER,
        "            turn.made[key] = found",
        "            _ = found",
        WHOLE,
    ),
    guard(
        "a query looks at as much as it likes",
        "spec/jsonpath.py",
        "            raise _TooManyError",
        "            pass",
        "spec/test_jsonpath.py::test_a_large_object_is_looked_through_once",
    ),
    guard(
        "a query into an object may have regular expressions",
        "spec/kube_object.py",
        '(*keys, "when"), faults, regex=False)',
        '(*keys, "when"), faults)',
        "object/test_written.py::test_each_mistake_has_its_place",
    ),
    guard(
        "what is bound to one UID is bound to the next that is seen",
        "plan/decide.py",
        "record.state in ALIVE and not record.ref:",
        "record.state in ALIVE:",
        "plan/test_binding.py::test_another_of_its_name_is_never_let_go",
    ),
    guard(
        "news of another attempt binds this one",
        "plan/decide.py",
        "if record.attempt == attempt and record.state in ALIVE and not",
        "if record.state in ALIVE and not",
        "plan/test_binding.py::test_news_of_another_attempt_binds_nothing",
    ),
)
