"""Guards that are held by a test of their wing alone: forks, births, places, and one machine's attempts."""

from __future__ import annotations

from mutation.guard import Guard, guard

FORKS, ON_FORKS = "operator/forks/fork_reconciler.py", "execute/fork/run.py"
SEEING = "operator/test_fork_guards.py::TestSeeing::test_"
FOLLOWING = "operator/test_fork_guards.py::TestFollowing::test_"
TIDYING = "operator/test_fork_guards.py::TestTidying::test_"
DOING = "operator/test_fork_guards.py::TestDoing::test_"
TELLING, TOLD = "operator/cluster/fork_values.py", "operator/test_fork_values.py::test_"
BIRTH = "operator/test_birth_guards.py::Test"
ROUTED = "embedded/test_routes.py::test_"
HELD = "embedded/test_holding.py::test_"
CLEARED = "embedded/test_clearing.py::test_it_is_looked_for_"
PLACES, PLACED = "operator/pods/places.py", "operator/test_places_alone.py::Test"

ALONE: tuple[Guard, ...] = (
    # --- what one machine hands on, and whose end it hears of ---
    guard(
        "a value that another attempt has told is handed on",
        "embedded/attempt_executor.py",
        "Key(run.uid, source.unit, record.attempt)) if record else None",
        "Key(run.uid, source.unit, run.unit(source.unit).attempt))",
        "embedded/test_kinds.py::TestOrders::test_what_a_later_attempt_has_at_hand_is_not_what_the_ledger_holds",
    ),
    guard(
        "a launcher that is held is told to go before its claim is durable",
        "embedded/holding.py",
        "self._held[key] = _Since(held, self._loop.time())",
        "self._held[key] = _Since(held, self._loop.time()); held._ours.send(b'go')",
        HELD + "nothing_of_it_begins_before_the_claim_is_durable",
    ),
    guard(
        "what was made ready long ago begins",
        "embedded/holding.py",
        "if self._loop.time() - at < HELD_MOST_S:",
        "if True:",
        HELD + "what_had_to_wait_for_long_is_made_ready_anew",
    ),
    guard(
        "of a claim that is refused the launcher stays",
        "embedded/engine.py",
        "await self.attempts.drop_held(claims)",
        "pass",
        HELD + "of_a_claim_that_is_refused_nothing_is_left_and_the_next_begins_once",
    ),
    guard(
        "a launcher that a failed turn has left stands at its gate for ever",
        "embedded/attempt_executor.py",
        "await self._attempts.drop_held([Key(live.run.uid, name, record.attempt)])",
        "pass",
        HELD + "a_turn_that_fails_between_claim_and_start_leaves_nobody_waiting",
    ),
    guard(
        "a step is started in a folder that is being swept",
        "embedded/attempts.py",
        "elif not await self._sweeper.gone(key):",
        "elif False:",
        "embedded/test_attempts.py::test_an_attempt_whose_folder_is_being_swept_is_started_once_that_has_gone",
    ),
    guard(
        "launchers are held beside steps that run",
        "embedded/engine.py",
        "if len(claims) != 1 or claims != self.attempts.busy or live is None:",
        "if len(claims) != 1 or live is None:",
        HELD + "beside_another_step_none_is_held",
    ),
    guard(
        "an alarm rings at a moment that was put off",
        "embedded/alarms.py",
        "if alarm.at > alarm.due:",
        "if alarm.at > alarm.at:",
        "embedded/test_alarms.py::test_one_that_is_put_off_rings_at_its_last_moment_alone",
    ),
    guard(
        "an end is heard of by who has forgotten it",
        "embedded/leaving.py",
        "if self._calls.pop(pidfd, None) is not None:",
        "if self._calls.get(pidfd) is not None:",
        "embedded/test_leaving.py::test_who_hears_of_an_end_may_forget_another_one",
    ),
    guard(
        "what an engine had begun outlives it",
        "execute/process/start.py",
        "monitors.end(_name(folder), folder.path)",
        "pass",
        "execute/test_process_start.py::test_what_a_killed_podman_left_is_ended_with_its_container",
    ),
    # --- what a fork tells its sandbox's hooks ---
    guard(
        "whatever bears a fork's name tells for it",
        TELLING,
        "if record.state not in ALIVE or seen is None or seen.metadata.uid != record.ref:",
        "if record.state not in ALIVE or seen is None:",
        TOLD + "a_fork_that_is_not_the_ledgers_tells_nothing",
    ),
    guard(
        "a fork that has ended tells still",
        TELLING,
        "if record.state not in ALIVE or seen is None",
        "if seen is None",
        TOLD + "a_fork_that_is_not_the_ledgers_tells_nothing",
    ),
    guard(
        "the address of somebody else's Service is told",
        TELLING,
        "if leads is not None and owned(leads.metadata, run) else",
        "if leads is not None else",
        TOLD + "of_somebody_elses_service_nothing_is_told",
    ),
    guard(
        "a pod is claimed that holds what a fork tells no more",
        "operator/pods/input_pins.py",
        "if reads_forks(step.unit):",
        "if not step.unit:",
        "operator/test_memory.py::TestInputPins::test_one_that_holds_what_a_fork_tells_no_more_is_replaced",
    ),
    guard(
        "an object is made of what a fork cannot tell yet",
        "operator/executors/object_executor.py",
        "objections[step.id] = Objection(reason=error.reason, message=str(error))",
        "memory.admitted = True",
        TOLD + "an_object_of_a_hook_waits_for_a_fork_that_cannot_tell",
    ),
    guard(
        "what a fork cannot tell yet uses an attempt up",
        "operator/executors/step_executor.py",
        """        except UntoldError as error:
            said: NeverRan | Objection = Objection(reason=error.reason, message=str(error), since=now)
        except CannotRenderError as error:
            said = NeverRan(""",
        """        except CannotRenderError as error:
            said: NeverRan | Objection = NeverRan(""",
        TOLD + "without_a_service_what_creates_waits_and_goes_on_once_there_is_one",
    ),
    # --- forks: what a cache has of them may be gone, replaced or a stranger's, and the wish may be old ---
    guard(
        "a fork that nobody claimed does not hold up the end of the claimed one",
        FORKS,
        "stray = found is not None and owned(found.metadata, run)",
        "stray = False",
        SEEING + "one_of_ours_that_nobody_claimed_holds_up_the_end_of_the_claimed_one",
    ),
    guard(
        "a stranger's Deployment holds up the end of a fork",
        FORKS,
        "stray = found is not None and owned(found.metadata, run)",
        "stray = found is not None",
        SEEING + "one_of_ours_that_nobody_claimed_holds_up_the_end_of_the_claimed_one",
    ),
    guard(
        "what the cache has in a fork's place is not asked for",
        FORKS,
        "if found is None or found.metadata.uid != record.ref:\n            found = await",
        "if found is None:\n            found = await",
        SEEING + "what_the_cache_does_not_know_is_asked_for",
    ),
    guard(
        "a fork that is being deleted is held",
        FORKS,
        "    if found.metadata.deletion_timestamp:\n        message",
        "    if found.metadata.deletion_timestamp == 0:\n        message",
        SEEING + "what_is_being_deleted_is_not_held",
    ),
    guard(
        "a fork whose end is recorded is held for the next attempt",
        FORKS,
        "if found is None or found.metadata.uid == record.ref:",
        "if found is None:",
        SEEING + "one_whose_end_is_recorded_is_not_held_for_the_next_attempt",
    ),
    guard(
        "a Deployment with pods counts as one that is held",
        FORKS,
        "if not found.spec.replicas else",
        "if found.metadata.uid else",
        SEEING + "what_was_prepared_is_held_unless_it_has_pods",
    ),
    guard(
        "a Deployment of our label is ours",
        FORKS,
        "if owned(item.metadata, run)]",
        "if item.metadata.name]",
        SEEING + "a_strangers_of_our_label_is_not_seen",
    ),
    guard(
        "a fork without pods is followed",
        FORKS,
        "not isinstance(fact, Held) and not seen",
        "not seen",
        FOLLOWING + "one_without_pods_waits_for_its_replicas",
    ),
    guard(
        "a fork that is being deleted is followed",
        FORKS,
        "if now is None or now.metadata.uid != seen.metadata.uid or now.metadata.deletion_timestamp:",
        "if now is None or now.metadata.uid != seen.metadata.uid:",
        FOLLOWING + "one_that_is_being_deleted_is_left_to_its_end",
    ),
    guard(
        "what took a fork's place is given its form",
        FORKS,
        "if now is None or now.metadata.uid != seen.metadata.uid or now.metadata.deletion_timestamp:",
        "if now is None or now.metadata.deletion_timestamp:",
        FOLLOWING + "one_that_took_its_place_is_not_given_its_form",
    ),
    guard(
        "a fork follows a wish that is not the newest",
        FORKS,
        "if manifest is not None and await self._is_newest(run):",
        "if manifest is not None:",
        FOLLOWING + "a_wish_that_is_not_the_newest_is_not_followed",
    ),
    guard(
        "a run that ends changes its forks",
        FORKS,
        "wished = _forks(plan) if run.ledger.closed is None else {}",
        "wished = _forks(plan)",
        FOLLOWING + "a_run_that_ends_changes_no_fork",
    ),
    guard(
        "forks are tidied up by a wish that is not the newest",
        FORKS,
        "if (unwanted or left) and await self._is_newest(run):",
        "if unwanted or left:",
        TIDYING + "it_stays_where_the_wish_is_not_the_newest",
    ),
    guard(
        "a fork that is yet to be claimed is tidied up",
        FORKS,
        "if found.metadata.name not in coming and found.metadata.uid not in refs",
        "if found.metadata.uid not in refs",
        TIDYING + "what_is_to_be_claimed_stays",
    ),
    guard(
        "a fork that is claimed is tidied up",
        FORKS,
        "if found.metadata.name not in coming and found.metadata.uid not in refs",
        "if found.metadata.name not in coming",
        TIDYING + "what_is_claimed_stays_and_what_bears_its_name_goes",
    ),
    guard(
        "whoever bears a fork's name is let go",
        ON_FORKS,
        "meta.namespace, replicas, uid=meta.uid)",
        "meta.namespace, replicas)",
        DOING + "what_took_its_place_is_left_alone",
    ),
    guard(
        "a form is given to any version of a fork",
        ON_FORKS,
        """        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        # Its""",
        """        identity = {"uid": meta.uid}
        # Its""",
        DOING + "a_form_is_given_to_the_version_that_was_seen",
    ),
    guard(
        "whoever bears the name of a fork's Service gets its ports",
        ON_FORKS,
        """        identity = {"uid": meta.uid, "resourceVersion": meta.resource_version}
        patch""",
        """        identity = {"name": meta.name}
        patch""",
        DOING + "a_service_gets_ports_as_the_one_that_was_seen",
    ),
    guard(
        "any namespace's workloads may be forked",
        "operator/forks/namespaces.py",
        "if namespace != home and home not in listed(notes, SOURCES_ANNOTATION):",
        "if not home:",
        "operator/test_fork_namespaces.py::TestLeave::test_another_namespace_has_to_name_the_sandboxes",
    ),
    # --- births ---
    guard(
        "documents of a target that lives are swept away before its run is there",
        "operator/sweeper.py",
        "if not await self._targets.wants_run(document) and not await",
        "if not await",
        BIRTH + "Documents::test_they_go_once_no_run_may_come_any_more",
    ),
    guard(
        "a target that is on its way out is held",
        "operator/targets/targets.py",
        "return not meta.deletion_timestamp and not finalized(meta, finalizer)",
        "return not finalized(meta, finalizer)",
        BIRTH + "Birth::test_a_target_that_is_on_its_way_out_is_not_held",
    ),
    guard(
        "a run that a peer has begun is taken away as never born",
        "operator/targets/targets.py",
        "meta.name, uid=meta.uid, resource_version=meta.resource_version)",
        "meta.name, uid=meta.uid)",
        BIRTH + "Birth::test_a_run_that_a_peer_has_begun_is_not_taken_away",
    ),
    # --- places: the share of each namespace ---
    guard(
        "who comes later passes by those that wait",
        PLACES,
        "return self._free(bucket) - before",
        "return self._free(bucket)",
        PLACED + "Sharing::test_of_those_that_wait_the_first_is_next",
    ),
    guard(
        "steps that clean up wait for those that make",
        PLACES,
        "if record.state in ALIVE and late is cleaning and",
        "if record.state in ALIVE and",
        PLACED + "Counting::test_what_was_claimed_after_the_close_cleans_up",
    ),
    guard(
        "more is claimed than there are places",
        PLACES,
        "if len(wanted) > max(self._room(bucket, name) + ended, 0):",
        "if len(wanted) > 256:",
        PLACED + "Claiming::test_as_many_as_there_are_places",
    ),
    guard(
        "any number of steps may wait for their images",
        PLACES,
        "        if taken.lacking >= IMAGES:\n            return 0",
        "        if taken.lacking < 0:\n            return 0",
        PLACED + "Counting::test_too_many_that_lack_it_end_all_beginning",
    ),
    guard(
        "a place is held for a unit that something hinders",
        PLACES,
        "record.state not in ALIVE and unit not in hindered and",
        "record.state not in ALIVE and",
        PLACED + "Holding::test_it_is_held_as_long_as_its_pod_may_come",
    ),
    guard(
        "a place is held by a run that is gone",
        PLACES,
        "                self._taken[bucket].put(name, {})\n                self._waiting[bucket].pop(name, None)\n",
        "                self._waiting[bucket].pop(name, None)\n",
        "operator/test_places_turns.py::TestSettling::test_one_that_is_gone_leaves_its_places_and_its_turn",
    ),
    # --- one machine, and the plan ---
    guard(
        "an attempt that has an order already is started",
        "embedded/attempts.py",
        "        except (FileExistsError, UnansweredError):",
        "        except UnansweredError:",
        "embedded/test_attempts.py::test_an_attempt_with_an_order_is_looked_at_and_not_started",
    ),
    guard(
        "the lease of a sandbox that ends is renewed",
        "control/sandboxes.py",
        """                raise ApiError(404, SANDBOX_NOT_FOUND)
            await self._refuse_if_ending(record)
            return {"seconds": seconds""",
        """                raise ApiError(404, SANDBOX_NOT_FOUND)
            return {"seconds": seconds""",
        "control/test_host_sync.py::test_the_lease_of_one_that_ends_is_not_renewed_before_its_host_knows",
    ),
    guard(
        "what never ran may linger",
        "plan/desk.py",
        "self.unit(name).state is State.DONE and lingers(",
        "lingers(",
        "plan/test_status.py::test_only_what_ran_may_linger",
    ),
    guard(
        "a result is an end while another container of its pod lives",
        "execute/pod/read.py",
        "if isinstance(fact, Ended) and not _all_ended(seen):",
        "if isinstance(fact, Ended) and not fact:",
        "execute/test_pod_read.py::test_a_result_is_no_end_while_another_container_of_its_pod_lives",
    ),
    guard(
        "who reads its own resource waits for itself",
        "plan/sealed.py",
        "if ref.resource and ref.resource != document.resource:",
        "if ref.resource:",
        "plan/test_status.py::TestSealed::test_who_reads_its_own_resource_by_name_waits_for_no_reader_of_it",
    ),
    # --- what an engine leaves ---
    guard(
        "a server that ends waits for no runner that has sealed",
        "embedded/sweeping.py",
        """        await self._sweeping.done(besides=self._uncleared)
""",
        "",
        "embedded/test_attempt_ends.py::TestSealing::test_a_server_that_ends_waits_for_the_last_folder",
    ),
    guard(
        "a container that its engine could not start is forgotten",
        "embedded/attempts.py",
        "            self._sweeper.unseen.add(key)\n            seen = self._unmarked(folder, watched)",
        "            seen = self._unmarked(folder, watched)",
        CLEARED + "where_the_engine_ended_before_the_runner_began",
    ),
    guard(
        "what an engine cannot remove at once stays",
        "embedded/sweeping.py",
        "self._loop.call_later(UNCLEARED_AGAIN_S, self.sweep, key)",
        "pass",
        CLEARED + "again_and_the_folder_stays_until_then",
    ),
    guard(
        "a server ends without a last look",
        "embedded/sweeping.py",
        "for key in tuple(self._uncleared):",
        "for key in ():",
        CLEARED + "once_more_when_the_server_ends",
    ),
    guard(
        "a server that ends looks no more for what was refused meanwhile",
        "embedded/sweeping.py",
        "        await self._tried()\n        for key",
        "        for key",
        CLEARED + "once_more_where_that_fails_while_the_server_ends",
    ),
    # --- routes on one machine ---
    guard(
        "a fork ends with its route",
        "embedded/routing.py",
        "await asyncio.sleep(entry.wished.drain_ms / 1000)",
        "await asyncio.sleep(0)",
        ROUTED + "the_fork_outlives_its_route_and_what_came_by_it_is_answered",
    ),
    guard(
        "a proxy of another release is adopted",
        "embedded/envoy.py",
        'if found and slurp(f"{self._folder}/form").decode(errors="replace") != self._form():',
        "if False:",
        "embedded/test_envoy.py::test_one_of_another_form_is_replaced_and_there_is_never_a_second",
    ),
    guard(
        "what is no key reaches a host's patterns",
        "embedded/route_executors.py",
        "meaning.check_key(key)",
        "pass",
        ROUTED + "a_document_with_what_is_no_key_is_refused",
    ),
    guard(
        "what is no key reaches a document",
        "compile/routes.py",
        "    for each in keys:\n        routing.check_key(each)\n",
        "",
        "compile/test_routes.py::test_what_is_no_key_reaches_no_pattern",
    ),
    guard(
        "a port that somebody else has is fought for",
        "embedded/envoy.py",
        'if not problem or await asyncio.to_thread(self._probed, way.listens) != "":',
        "if way:",
        ROUTED + "a_port_that_somebody_else_has_is_said_and_taken_once_it_is_free",
    ),
    guard(
        "an endpoint leads where nobody has declared anything",
        "embedded/answering.py",
        "if step.unit.preview is not None and leads_nowhere(step.unit.preview, baselines):",
        "if False:",
        ROUTED + "a_preview_gives_its_key_and_an_endpoint_of_a_baseline_has_one_too",
    ),
    guard(
        "what fails for good in a turn stops nothing in that turn",
        "plan/opening.py",
        """            if desk.has_failed(step):
                failed = (*failed, step.id)  # in this very turn; those before it are claimed already
""",
        "",
        "plan/test_decide.py::test_decision[taken away once too often: nothing more is begun]",
    ),
)
