"""As `guards`, for lifecycle hooks: what must be seen before anything is begun for an object, or taken for gone."""

from __future__ import annotations

from mutation.guard import Guard, guard

PAIRS, ADAPTER = "operator/hooks/pairs.py", "operator/targets/lifecycle_hook.py"
CONTROLLER, TARGETS = "operator/hooks/controller.py", "operator/targets/targets.py"
BIRTH, END = "operator/test_hook_guards.py::TestBirth::test_", "operator/test_hook_guards.py::TestEnd::test_"
GONE = "operator/test_hook_guards.py::TestGone::test_"
HOLD, MOMENTS = "operator/test_hook_hold.py::test_", "operator/test_hook_moments.py::test_"

HOOKS: tuple[Guard, ...] = (
    guard(
        "a hook begins something before it is held",
        PAIRS,
        "hook.metadata.deletion_timestamp or not finalized(hook.metadata, HOOK_FINALIZER):",
        "hook.metadata.deletion_timestamp:",
        BIRTH + "only_a_hook_that_is_held_begins_anything",
    ),
    guard(
        "a hook that is on its way out begins something",
        PAIRS,
        "if hook is None or hook.metadata.deletion_timestamp or not",
        "if hook is None or not",
        BIRTH + "nothing_is_begun_for_what_is_on_its_way_out",
    ),
    guard(
        "an object that is on its way out is begun for",
        PAIRS,
        "if item is None or item.metadata.uid != seen.metadata.uid or item.metadata.deletion_timestamp:",
        "if item is None or item.metadata.uid != seen.metadata.uid:",
        BIRTH + "nothing_is_begun_for_what_is_on_its_way_out",
    ),
    guard(
        "an object that is held already is begun for",
        PAIRS,
        "if finalized(item.metadata, HOOKED_PREFIX + pair.hook):",
        "if item is None:",
        BIRTH + "what_is_held_already_is_not_begun_again",
    ),
    guard(
        "what an earlier hook of its name has selected is begun for a hook of another kind",
        PAIRS,
        " or not _means(wish, resource):",
        ":",
        "operator/test_hook_pairs.py::TestPairs::test_nothing_is_begun_where_one_of_them_is_not[hook of another kind]",
    ),
    guard(
        "an object that nobody may change holds up its hook everywhere",
        CONTROLLER,
        "                refused = refused or error",
        "                raise",
        "operator/test_hook_taken_up.py::TestWaiting::test_what_nobody_may_change_in_one_namespace_holds_up_no_other",
    ),
    guard(
        "a cache says that a hook lives before anything is begun",
        ADAPTER,
        "if run.ledger.seq and seen is not None and",
        "if seen is not None and",
        BIRTH + "a_run_that_was_born_after_its_hooks_end_is_over_before_it_begins",
    ),
    guard(
        "a run that was born after its hook's end is begun",
        TARGETS,
        "if hook is not None and await find_hook(self._cluster.client, hook.name, hook.uid) is None:",
        "if finalizer is None:",
        BIRTH + "it_is_taken_away_again_with_all_that_was_made_for_it",
    ),
    guard(
        "a ledger goes before its target",
        TARGETS,
        "return seen is None or not await self.of(run).stays(run)",
        "return True",
        END + "a_ledger_stays_as_long_as_hook_and_target_are_there",
    ),
    guard(
        "a cache says that a hook owes nothing",
        CONTROLLER,
        'listing = await self._client.list_all(RUNS, labels=f"{HOOK_LABEL}={meta.uid}")\n'
        "            left = [run for run in listing.items if run.ledger.phase not in _OVER]",
        "left = []",
        END + "a_hook_is_not_let_go_while_a_run_is_there_that_no_cache_knows",
    ),
    guard(
        "documents of a hook that is gone stay as long as its object",
        TARGETS,
        "if hook and await living_hook(self._cluster.client, document.spec.origin.plugin, hook) is None:",
        "if not hook and target is None:",
        END + "documents_for_a_run_that_was_never_born_go_with_their_hook",
    ),
    guard(
        "what is not served is gone",
        ADAPTER,
        "if isinstance(missing, errors.NotFound) and await served(self._client, target.api_version, target.kind):",
        "if target.name:",
        GONE + "what_is_not_served_is_not_gone",
    ),
    guard(
        "what goes out of sight as it is to be held is gone",
        TARGETS,
        "            await self.of(run).vouch(run, missing)\n            return None",
        "            return None",
        GONE + "what_goes_out_of_sight_as_it_is_to_be_held_keeps_its_run",
    ),
    guard(
        "what goes out of sight as it is to be let go needs no more",
        "kube/ownership.py",
        "style=Style.JSON)\n            return\n        except errors.NotFound:",
        "style=Style.JSON)\n            return\n        except errors.ABSENT:",
        "operator/test_hook_kinds.py::test_it_is_let_go_though_its_kind_goes_just_before_that",
    ),
    guard(
        "a hold of what goes out of sight has been taken away",
        ADAPTER,
        "        except errors.ABSENT as missing:\n            await self.vouch(run, missing)\n        return True",
        "        except errors.ABSENT:\n            pass\n        return True",
        "operator/test_hooked_target.py::TestHold::test_it_is_not_taken_away_where_its_kind_goes_just_before_that",
    ),
    guard(
        "a hook is gone where hooks are not served",
        ADAPTER,
        "    except errors.NotFound:\n        return None\n    except errors.NotServed",
        "    except errors.ABSENT:\n        return None\n    except errors.NotServed",
        GONE + "nor_is_a_hook_gone_where_hooks_are_not_served",
    ),
    guard(
        "another of its name is a hook's object",
        ADAPTER,
        'return found if found["metadata"]["uid"] == target.uid else None',
        "return found",
        GONE + "another_of_its_name_is_not_it",
    ),
    guard(
        "a shared hold goes with the first that is through",
        ADAPTER,
        "if name != run.metadata.name and await self._needs(name, hold):",
        "if name is None:",
        HOLD + "a_shared_hold_goes_with_the_last_that_needs_it",
    ),
    guard(
        "somebody else's hold is taken for ours",
        ADAPTER,
        "return {} if _at(found, hold) is not None else _nested",
        "return _nested",
        HOLD + "it_is_left_to_whoever_has_set_another",
    ),
    guard(
        "hooks wait for each other",
        ADAPTER,
        "others = tuple(each for each in meta.finalizers or () if each not in holds(meta))",
        "others = tuple((meta.finalizers or ())[1:])",
        MOMENTS + "two_hooks_do_not_wait_for_each_other",
    ),
)
