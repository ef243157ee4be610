"""Mutants that nothing could notice, each with the reason: by name, as `mutants` prints it."""

from __future__ import annotations

_RISES = "the number of a report has to rise with each change, and by how much nobody asks"
_DEFAULT = "SQLite as Python brings it here does so unasked; it may have been built to do otherwise"
_LABELLED = "what belongs to a run is found by a label that it has"

EQUIVALENT: dict[str, str] = {
    "execute/process/start.py Containers._run: 0 -> 1 (2)": "the mode of a file that is not made",
    "execute/process/start.py Containers._remove: done.returncode > 0 -> (done.returncode >= 0)": "of an engine that ends with 0 nothing is said",
    'execute/pod/trial.py _judged: unit.exec.namespace or "trial" -> (unit.exec.namespace)': (
        "of a pod that is never made the namespace is compared with itself"
    ),
    "execute/pod/policy/rows.py choice.check: isinstance(value, str) and value in wanted -> (value in wanted)": (
        "of what JSON holds only a string equals a word"
    ),
    "execute/process/resident.py Resident._told: 4 -> 5": "what it is told has four bytes",
    "execute/process/resident.py Resident._begin: 0 -> 1 (1)": "the mode of a file that is not made",
    "execute/fork/patch.py _Patching._carry_out: 0 -> 1": (
        "a patch is read no deeper than is measured here, and its values stand two deep in it"
    ),
    'execute/process/place.py _sweep_place: home and not Path(home).is_dir() and not any(locked(f"{each}/lock") for each '
    "in attempts) -> (not Path(home).is_dir() and (not any((locked(f'{each}/lock') for each in attempts))))": (
        "an empty path is the folder in which the server stands, which is one even if it was removed"
    ),
    "execute/tracing.py Tracer.look: 0 -> 1": "in unix milliseconds: a run is born later than that, and its birth is news",
    "execute/turn.py turn: 0 -> 1": "the first round, which there always is, sets it",
    "execute/webhook/guard.py _problem: not address.is_global or any(address in network for network in _NOWHERE) -> "
    "(any((address in network for network in _NOWHERE)))": (
        "what is not global bears another name or is named here; later Pythons may know of more"
    ),
    "execute/webhook/render.py as_exec: False -> True": "JSON says the same in either form",
    "operator/pods/places.py Places._wake: lacking is not (bucket in self._lack) -> (lacking is (bucket in self._lack))": (
        "kept are the others then; at the first look nobody waits yet who has said something else"
    ),
    "operator/agent/dial.py OverError.__init__: 0 -> 1": "asked for by an opening alone, which is always told one",
    "plan/closing.py _kept_rest: _rest(desk, going) and len(going) == len(every) -> (_rest(desk, going))": (
        "what waits does so for another that is there and comes later; as `after` has no circle the last of them is "
        "among those that go, and does not rest"
    ),
    'plan/trace.py settled: (kind for kind in kinds(report, expires_soon=False) if kind in ("ready", "failed")) -> '
    "(kind for kind in kinds(report, expires_soon=False))": "of a run that is open nothing else is told",
    "plan/opening.py _start_fork: 0 -> 1": "a moment in unix milliseconds that is over: no clock shows 0",
    "execute/masks.py _begun: at >= 0 -> (at > 0)": "what is sought behind the first byte is never found at it",
    "execute/masks.py _begun: at < 0 -> (at <= 0)": "what is sought behind the first byte is never found at it",
    "execute/masks.py _begun: 1 -> 2 (2)": "less than nothing is what is not found, however much less",
    "execute/masks.py _begun: break -> continue": "what has been found is found again, until the tries are over",
    **{
        f"execute/host_end.py HostEnd.__init__: 0 -> 1 ({number})": "the first greeting, before which nothing is heard, sets it"
        for number in (1, 2, 3)
    },
    "execute/host_end.py HostEnd._greeted: 0 -> 1 (1)": "numbers count from 1, and the greeting itself has one of them",
    "execute/process/resident.py Held.__enter__: return self -> return None": "whoever uses it in a `with` has its name",
    "execute/inputs.py _source: 0 -> 1": (
        "of what is still being made the size is not known: it is only asked whether that is more than a variable holds"
    ),
    "execute/inputs.py _source: True -> False (1)": "of what is absent nobody asks whether it is text",
    "execute/outputs.py foreseen: True -> False": "the ledger asks that of claims alone, and an end is none",
    "execute/pod/read.py _removed_at: 0 -> 1 (1)": "a moment in unix milliseconds that is over: nothing was claimed at 0",
    "execute/process/place.py open_place: 8 -> 9": "so many bytes at random are told apart as well",
    "execute/webhook/exchange.py _first: left <= 0 -> (left < 0)": (
        "at the very end of its time a connection is made without waiting, and there is none either"
    ),
    "execute/webhook/exchange.py UnsentError.__init__: super().__init__(sentence) -> pass": (
        "an exception has what it is made with before anything else is done"
    ),
    "execute/process/beginning.py Beginnings._reuse: True -> False": "the folder is there by then: made again it stays",
    "execute/fork/patch.py _index: len(part) > 9 -> (len(part) >= 9)": (
        "no list has so many items, and what is said of one that it has not is the same"
    ),
    "execute/object/render.py render: item.manifest or {} -> (item.manifest)": (
        "whoever makes an object has its manifest: type checkers ask for the other"
    ),
    "execute/gateway/rules.py _before: index < at -> (index <= at)": (
        "of the two rules one leads to the fork and the other does not"
    ),
    'execute/gateway/rules.py _path: method or "" -> (method)': (
        "the API has words alone for methods: those that name none are alike, and like no other, whatever they are called"
    ),
    **{
        f"execute/process/monitors.py end: waited > {limit} -> (waited >= {limit})": (
            "no look at a clock of nanoseconds is at the very end of its time"
        )
        for limit in ("LONGEST_S", "PATIENCE_S")
    },
    "execute/process/monitors.py _after: 1 -> 2": "behind the last word of a command line nothing stands",
    "execute/process/resident.py Resident.close: self._socket is None or self._ears is None -> (self._ears is None)": (
        "they come and go together: type checkers ask for both"
    ),
    "execute/process/resident.py Resident.close: self._socket is None or self._ears is None -> (self._socket is None)": (
        "they come and go together: type checkers ask for both"
    ),
    "execute/process/resident.py Resident._hear: 0 -> 1 (2)": "no launcher is the first process of a machine",
    "execute/process/resident.py Resident._hear: number > 0 -> (number >= 0)": (
        "the runner answers with a process or with an error, and neither has the number 0"
    ),
    "execute/webhook/guard.py _inside: address in _MAPPED or any(address in network for network in _TRANSLATED) -> "
    "(any((address in network for network in _TRANSLATED)))": (
        "to this version of `ipaddress` all of them are private; newer ones look inside"
    ),
    **{
        f"execute/webhook/guard.py _inside: 0xFFFFFFFF -> 4294967296 ({number})": (
            "all of Teredo's network is private to this version of `ipaddress`, whatever is inside"
        )
        for number in (2, 3)
    },
    "execute/webhook/taken.py one: True -> False": "a query was read as strictly when it was written",
    "execute/process/resident.py _pair: ours.setblocking(False) -> pass": (
        "it is read when there is something to read, or once the other side is dead, and so few questions never fill it"
    ),
    "execute/process/beginning.py Beginnings.__init__: 0 -> 1": "folders in waiting may be numbered from any number on",
    "embedded/attempts.py Attempts.__init__: 256 -> 257": "so many folders are at hand: of any other the path is found anew",
    "embedded/routing.py Routing.__init__: 0 -> 1": "changes may be numbered from any number on",
    "embedded/envoy.py Envoy.adopt: self._process is None and self._folder.is_dir() -> (self._process is None)": (
        "nobody holds a lock in a folder that is not there"
    ),
    "embedded/envoy.py Envoy.apply: self._process is None and not await self.adopt() -> (not await self.adopt())": (
        "with a process that is known nothing is looked for, and the answer is that there is one"
    ),
    "embedded/envoy.py Envoy.forget: 0 -> 1 (1)": "no clusters are like a version: they are written in either case",
    "embedded/envoy.py Envoy._start: 16 -> 17": "so many bytes at random are not guessed as well",
    "embedded/envoy.py Envoy._start: 0 -> 1": "it is begun where there is something to lead to: that differs from nothing",
    "embedded/envoy.py Envoy._start: 0 -> 1 (1)": "versions begin with the clock: none is so low",
    "embedded/envoy.py Envoy._spawn: 0 -> 1": "what has a code of its end is not waited for, whichever that is",
    "embedded/envoy.py Envoy._until: clock() > end -> (clock() >= end)": (
        "no look at a clock of nanoseconds is at the very end of its time"
    ),
    "embedded/envoy_process.py unbindable: 1 -> 2": "whatever is not 0 sets the option",
    "embedded/envoy_process.py unbindable: error.strerror or str(error) -> (error.strerror)": (
        "the kernel has a word for whatever it refuses"
    ),
    "embedded/state_door.py _App._answer: refusal is not None or who is None -> (refusal is not None)": (
        "who is nobody is always refused"
    ),
    "embedded/state_door.py _body: 0 -> 1": "whoever asked is gone, and hears no answer",
    "embedded/state_door.py _listen: 1 -> 2": "whatever is not 0 sets the option",
    "embedded/state_door.py _listen: 128 -> 129": "so many never wait at once",
    'embedded/state_door.py _listen: raise AssertionError("the kernel names a free port or refuses") -> pass': (
        "nothing comes there: type checkers ask for it"
    ),
    "embedded/holding.py Holding.let_go: self._loop.time() - at < HELD_MOST_S -> (self._loop.time() - at <= HELD_MOST_S)": (
        "no look at a clock of nanoseconds is at the very end of its time"
    ),
    "embedded/states.py keys: folder(home).mkdir(mode=0o700, exist_ok=True) -> pass": "it is made with the key as well",
    "embedded/envoy.py Envoy._next: 1 -> 2": "a version has to rise, and by how much nobody asks",
    "execute/webhook/guard.py _inside: 0xFFFF -> 65536": "all of ::/8 is reserved, whatever is inside",
    "embedded/beginning.py take: 32 -> 33": "no number of a process has so many digits",
    "embedded/beginning.py take: 0 -> 1 (1)": "what is left of the former number is written over",
    "embedded/beginning.py take: time.monotonic() > end -> (time.monotonic() >= end)": (
        "no look at a clock of nanoseconds is at the very end of its time"
    ),
    "embedded/beginning.py take: time.sleep(0.001) -> pass": (
        "whoever only looks for a server has the lock for microseconds: without the pause it is asked for more often"
    ),
    "embedded/engine.py Engine._heed_clock: gap.ms > 0 -> (gap.ms >= 0)": "what is no time is no gap",
    "embedded/engine.py Engine._heed_clock: 0 -> 1": "a gap is never of so few milliseconds: that is the clock being steered",
    "embedded/executors.py ForkExecutor.objections: ((step.id, self._objection(live, step)) for step in live.pla ... lues() "
    "if step.unit.fork) -> ((step.id, self._objection(live, step)) for step in live.plan.kept.values())": (
        "all that a run keeps on this host derives from something"
    ),
    "embedded/forks.py _is_free: 1 -> 2": "whatever is not 0 sets the option",
    "embedded/host.py EmbeddedHost._changed: 1 -> 2": _RISES,
    "embedded/host.py EmbeddedHost._ended: 1 -> 2": _RISES,
    'embedded/ledger.py Ledger.__init__: self._db.execute("PRAGMA synchronous = FULL") -> pass': _DEFAULT,
    'embedded/ledger.py Ledger.__init__: self._db.execute("PRAGMA secure_delete = ON") -> pass': _DEFAULT,
    "embedded/ledger.py Ledger.history: True -> False": "the query names as many columns as an entry has fields",
    "operator/cluster/caches.py _baselines: [unit.fork.baseline for unit in (run.spec.forks if run else ()) if unit.fork] "
    "-> [unit.fork.baseline for unit in (run.spec.forks if run else ())]": "all of a run's `forks` derive from something",
    'operator/targets/lifecycle_hook.py HookedTarget.grip: hold is None or found is None or found["metadata"]["resource ...  '
    "!= meta.resource_version -> (found is None or found['metadata']['resourceVersion'] != meta.resource_version)": (
        "without a hold nothing is looked for, and nothing is found"
    ),
    "operator/targets/targets.py Targets._stays: run is None or run.ledger.phase not in OVER or run.spec.hook is None -> "
    "(run.ledger.phase not in OVER or run.spec.hook is None)": (
        "the index of targets and the cache of runs hear of a run in one go: what the one names the other has"
    ),
    "operator/monitoring/journal.py _told: assert_never(move) -> pass": "there is no other move: type checkers hold that",
    "operator/groups/group_status.py GroupStatus._is_ready: found is not None and found.status is not None and "
    "found.status.ready -> (found.status is not None and found.status.ready)": (
        "a group has those sandboxes alone that the cache has"
    ),
    "operator/hooks/hook_status.py HookStatus.runs_of: [run for run in found if run is not None] -> [run for run in found]": (
        "it hears of a run in one go with the ledger: what it knows the other has"
    ),
    "operator/hooks/hook_status.py HookStatus.count: run.spec.hook is not None and run.spec.hook.older -> "
    "(run.spec.hook.older)": "it knows hooks' runs alone",
    "operator/hooks/target_grants.py TargetGrants.check: 0 -> 1": "no clock shows so early a moment",
    "operator/agent/served.py Served.__init__: 0 -> 1": "the first session sets it before anything is told",
    "operator/agent/served.py Served.lease: seen is None or run is None -> (run is None)": "what is not there has no run",
    "operator/agent/dial.py Dial.__init__: 0 -> 1 (1)": "each session begins with it anew",
    "operator/agent/dial.py Dial.__init__: 1 -> 2": "each session begins with it anew",
    "operator/agent/dial.py Dial._speak: break -> continue": "with each that is looked at the size grows: none has room then",
    "operator/cluster/woven.py WovenRules.of: [each for each in found if each is not None] -> [each for each in found]": (
        "what goes from the cache is heard of at once: type checkers ask for it"
    ),
    "operator/routes/addresses.py Addresses._is_ours: seen.metadata.labels or {} -> (seen.metadata.labels)": (
        "they were asked for by a label"
    ),
    "operator/front/front.py Front.run: 1 -> 2": "each plugin is judged by itself, so of several at once the same is said",
    "operator/front/sandboxes.py _check_pods: seen.spec.get(\"resources\") or [] -> (seen.spec.get('resources'))": (
        "where none is wished for, no document is of any"
    ),
    'operator/front/plugins.py Plugins.reconcile: meta.creation_timestamp or "" -> (meta.creation_timestamp)': (
        "of what it has, a server knows when it was made: type checkers ask for the other"
    ),
    "operator/routes/route_reconciler.py RouteReconciler._settling: 0 -> 1": (
        "a moment in unix milliseconds that is over: no clock shows 0"
    ),
    "operator/routes/route_reconciler.py RouteReconciler._ours: seen.metadata.labels or {} -> (seen.metadata.labels)": _LABELLED,
    "operator/routes/route_reconciler.py RouteReconciler._own_services: each.metadata.labels or {} -> (each.metadata.labels)": _LABELLED,
    "operator/routes/route_reconciler.py RouteReconciler._tidy: seen.metadata.labels or {} -> (seen.metadata.labels)": _LABELLED,
    "operator/routes/route_reconciler.py _fork: meta.labels or {} -> (meta.labels)": _LABELLED,
    "operator/states/state_secrets.py heads: each.metadata.labels or {} -> (each.metadata.labels)": (
        "they were asked for by a label"
    ),
    "operator/routes/weaver.py Weaver.lack: 0 -> 1": "a moment in unix milliseconds that is over: no clock shows 0",
    "operator/routes/weaver.py Weaver.lack: strand.is_off or strand.seen is None -> (strand.is_off)": (
        "what is not there is other than it is to be: type checkers ask for both"
    ),
    **{
        f"operator/states/state_secrets.py {where}: secret.data or {{}} -> (secret.data)": (
            "one that somebody has emptied cannot be read: by which error nobody asks"
        )
        for where in ("chunks",)
    },
    "operator/states/state_server.py _serve: context.minimum_version = ssl.TLSVersion.TLSv1_2 -> pass": (
        "this Python does so unasked; its OpenSSL may be told to do otherwise"
    ),
    "operator/states/state_server.py certify: 0o600 -> 385": "it lies in a folder that nobody else may enter",
    "operator/states/state_server.py _App._answer: refusal is not None or who is None -> (refusal is not None)": (
        "who is nobody is always refused"
    ),
    "operator/routes/previews.py Previews.seen: each.metadata.labels or {} -> (each.metadata.labels)": _LABELLED,
    "operator/objects/object_observer.py ObjectObserver.ask: view.hindered is not None or view.kind is None -> "
    "(view.hindered is not None)": "of a kind that is not served it is told what hinders it",
    "operator/status/resource_status.py ResourceStatus._resource: return wait -> return None (1)": (
        "what a process before this one has said is long ago: what is other is said at once, and 0 is left out as well"
    ),
    "operator/status/status_throttle.py StatusThrottle.note: 0 -> 1": "since when nothing has been untold nobody asks",
    "operator/sweeper.py Sweeper._parts: pod.metadata.labels or {} -> (pod.metadata.labels)": _LABELLED,
    "operator/pods/pod_events.py Silence.__init__: 0 -> 1": "it is set with the first thought of a pod's Events",
    "operator/objects/object_view.py Place.manifest: self.item.manifest or {} -> (self.item.manifest)": (
        "what makes an object is written with a manifest, and nothing else has a place"
    ),
    "operator/reconciler.py Reconciler.last: found is None or session is None or (scene := session.work.scene) is None -> "
    "(session is None or (scene := session.work.scene) is None)": "of a run that is not there no session is found",
    "operator/reconciler.py Reconciler._keep_on: found is None or sight is None -> (sight is None)": (
        "of a run that is not there no session is found"
    ),
    "operator/reconciler.py Reconciler.keep: session is None or session.loosened or found is None or "
    "found.ledger.closed is None -> (session is None or session.loosened or found is None)": (
        "while it is open there is something to do before its target stops: nobody need look for that"
    ),
    "operator/forks/fork_reconciler.py ForkReconciler._tidy: each.metadata.labels or {} -> (each.metadata.labels)": (
        "what belongs to a run is found by a label that it has"
    ),
    "operator/objects/object_memory.py ObjectMemory.look_again: 10 -> 11": "five doublings are beyond the longest",
    "operator/forks/fork_reconciler.py _unclaimed: 0 -> 1": "of what nobody has claimed it is not said since when it runs",
    "operator/outputs/bindings.py Bindings.of: 0 -> 1": "no clock shows so early a moment",
    "operator/targets/lifecycle_hook.py HookedTarget._needs: run is None or run.spec.hook is None or run.spec.hook.hold ! "
    "... run.ledger.phase in _OVER -> (run is None or run.spec.hook.hold != hold or run.ledger.phase in _OVER)": (
        "whatever hooks select has hooks' runs alone"
    ),
    "operator/executors/step_observer.py _in_time: record.claimed_at <= fact.result.ended_at <= now -> "
    "(record.claimed_at <= fact.result.ended_at < now)": "an end of this very moment is replaced by itself",
}
