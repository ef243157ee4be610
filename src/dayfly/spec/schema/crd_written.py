"""As `crd_schema` says, for what Dayfly writes itself: documents, the ledger, resources and every status.

Bounds are wide: a ledger that could not be written would be worse than a long message in it.
"""

from typing import Any

from dayfly.spec import kinds, lifecycle, run
from dayfly.spec.scalars import kube_names
from dayfly.spec.schema.crd_schema import Row, Schema, label, many, object_name, optional, rule, text
from dayfly.spec.steps import value_from

_MANY = 512
_LONG = 65_536
_DIGEST = "^sha256:[0-9a-f]{64}$"
_TIME = "RFC 3339, empty for not yet."
_MILLISECONDS = "unix milliseconds, 0 for not yet."


def _many(about: str, *, key: str = "") -> Schema:
    return many(about, _MANY, key)


def _never(cel: str, message: str, **more: Any) -> list[Schema]:
    return [rule(cel, message, **more)]


_CONDITIONS = _many("What holds of the object; Ready above all.", key="type")
_UNITS = _many("Every step and fork, in the order of the document.", key="id")
_SPOKEN: Row = {
    "observed_generation": text("The generation that this status speaks of."),
    "phase": text("The part of its life it is in: Pending, Creating, Ready, Failed or Deleting."),
    "ready": text("Whether it can be used; the condition Ready says the same."),
    "reason": text("The reason for its state, in one word."),
    "message": text("The reason in one sentence.", _LONG),
    "progress": text("Steps done, out of all in this part of its life, like 2/5."),
    "run": text("Name of the Run, its ledger."),
    "conditions": _CONDITIONS,
    "units": _UNITS,
}

STRUCTS: dict[type, Schema] = {
    lifecycle.Lifecycle: {"x-kubernetes-validations": _never("self == oldSelf", "a compiled document never changes")},
    kinds.ResourceSpec: {
        "x-kubernetes-validations": _never(
            "self.name == oldSelf.name && self.sandbox == oldSelf.sandbox",
            "a resource's name and sandbox never change",
        )
    },
    kinds.RunObject: {
        "x-kubernetes-validations": [
            *_never("self.uid == oldSelf.uid && self.target == oldSelf.target", "a ledger stays with its target"),
            *_never("self.?seq.orValue(0) >= oldSelf.?seq.orValue(0)", "a ledger never goes back", fieldPath=".seq"),
        ]
    },
}

FIELDS: dict[type, Row] = {
    # --- documents ---------------------------------------------------------------------------------------------------
    lifecycle.Target: {
        "api_version": text(
            "API version of the target object.",
            kube_names.LONGEST_QUALIFIED,
            pattern=f"^({kube_names.API_VERSION})?$",
        ),
        "kind": text("Kind of the target object.", 63, pattern="^[A-Z][A-Za-z0-9]*$"),
        "namespace": optional(label("Its namespace; empty for cluster-wide kinds.")),
        "name": text("Its name.", 253, pattern="^[^/%]*$"),
        "uid": text("Its UID; an object of the same name made later is another one.", 128),
    },
    lifecycle.StepOrigin: {
        "publisher": text("Who has published the plugin; empty: whoever wrote the target has written the steps.", 253),
        "plugin": text("Name of the plugin, without its version.", 253),
    },
    lifecycle.Ref: {
        "unit": text("Name of the other unit.", 253),
        "output": text("Name of its output.", 253),
        "resource": text("The resource whose unit it is; empty: this document's.", 253),
    },
    lifecycle.As: {
        "env": text("Environment variable; empty for none.", 253),
        "path": text("File; empty for none.", 4096),
    },
    lifecycle.UnitInput: {
        "name": text("Name of the input.", 253),
        "value": text("A constant.", lifecycle.MAX_DOCUMENT_BYTES),
        "from_": text("Another unit's output."),
        "fork": text("What a fork tells."),
        "secret": text("Whether it must not stand in a log; if nothing else says what it is, it comes with the run."),
        "as_": text("Where the value appears."),
        "target": text("A JSONPath into the target object that finds the value; empty: it comes from elsewhere.", 1024),
    },
    lifecycle.ForkValue: {
        "fork_of": text("The baseline of the fork."),
        "expression": text("Text with places for what it tells.", value_from.LONGEST_EXPRESSION),
    },
    lifecycle.UnitOutput: {
        "name": text("Name of the output.", 253),
        "path": text("File whose bytes are the value.", 4096),
        "json_path": text("What finds the value in a webhook's answer, or in an object.", 1024),
        "header": text("Of a webhook: the answer's header that is the value.", 128),
        "status": text("Of a webhook: whether the value is the answer's status."),
        "secret": text("Of an object: a key of a Secret beside it."),
        "sensitive": text("Never shown; it is kept in Secrets only."),
    },
    lifecycle.UnitRetry: {
        "idempotent": text("Whether the unit may start again after a failed attempt."),
        "limit": text("How often it may start; 0 is without end.", minimum=0),
        "backoff_ms": text("Milliseconds before the second start; doubled each time.", minimum=0),
    },
    lifecycle.UnitTimeouts: {
        "schedule_ms": text("Longest time to be placed, in milliseconds.", minimum=0),
        "pull_ms": text("Longest time to fetch the image, in milliseconds.", minimum=0),
        "run_ms": text("Longest time to run, in milliseconds.", minimum=0),
        "grace_ms": text("Time between asking the script to end and ending it, in milliseconds.", minimum=0),
    },
    lifecycle.Exec: {
        "script": text("Program text that begins with #!.", lifecycle.MAX_DOCUMENT_BYTES),
        "command": text("A program of the image and its arguments, instead of a script."),
        "image": text("Image of the pod."),
        "namespace": optional(label("Namespace of the pod.")),
        "pod_template": text("Partial pod template, merged into the pod as Kubernetes merges."),
        "env": {
            "description": "Environment that Dayfly gives to the script.",
            "maxProperties": _MANY,
            "additionalProperties": {"maxLength": _LONG},
        },
        "state": text("Whether it is told where the Terraform state of its resource is kept."),
    },
    lifecycle.WebhookUnit: {
        "request": text("The request, as it was written."),
        "namespace": optional(label("Namespace of the pod that sends it.")),
        "env": {
            "description": "What Dayfly tells of the run, for those of its values that name it.",
            "maxProperties": _MANY,
            "additionalProperties": {"maxLength": _LONG},
        },
    },
    lifecycle.SecretKey: {
        "key": text("The key.", 253, pattern=f"^{kube_names.KEY}$"),
        "name": optional(object_name("Name of the Secret.")),
        "json_path": text("What finds its name in the object.", 1024),
    },
    lifecycle.Object: {
        "written": text("The object, as it was written."),
        "remove": text("Of a unit that removes: the unit whose object goes.", 253),
        "namespace": optional(label("Where what it tells is kept.")),
    },
    lifecycle.Baseline: {
        "kind": text("Kind of the baseline workload."),
        "namespace": label("Its namespace."),
        "name": object_name("Its name."),
    },
    lifecycle.EnvChange: {
        "name": text("Name of the variable."),
        "value": text("A constant.", lifecycle.MAX_DOCUMENT_BYTES),
        "input": text("The input whose value it is."),
        "source": text("What only the host can look up: configMap, secret or fork."),
        "container": text("Name of the container; empty means the main one."),
        "delete": text("Remove the variable."),
    },
    lifecycle.ForkUnit: {
        "baseline": text("The workload from which it derives."),
        "env": _many("Changes to the environment, in this order."),
        "images": _many("Other images."),
        "patch": text("A patch to the whole workload, laid over it last."),
    },
    lifecycle.Route: {
        "baseline": text("The workload whose requests it leads to the fork."),
        "keys": _many("The routing keys that a request may carry for that; the first is the target's own."),
        "drain_ms": text("Milliseconds that the fork lives on once the route is gone.", minimum=0),
        "local_port": text("A port of the developer's own machine, where that is the host; 0: it leads to the fork."),
    },
    lifecycle.PreviewUnit: {
        "scheme": text("http, https or grpc.", 8),
        "host": text(
            "Host of the workload or Service, as a request without a key would name it.",
            253,
            pattern=f"^{kube_names.HOST}$",
        ),
        "port": text("Its port.", minimum=1),
        "key": text("The routing key that requests are given.", 32),
    },
    lifecycle.Unit: {
        "name": text("Name of the unit, unique in its document.", 253),
        "kind": text("What its work is. Of a kind that it does not know the operator says so, and runs nothing.", 63),
        "inputs": _many("Values it is given."),
        "outputs": _many("Values it makes."),
        "retry": text("What follows a failure."),
        "timeouts": text("The clocks of an attempt."),
        "exec": text("A script in a pod."),
        "webhook": text("A call to a server."),
        "object": text("A Kubernetes object."),
        "fork": text("An object derived from a baseline."),
        "route": text("Requests with a key that go to a fork."),
        "preview": text("An address that gives requests a key."),
        "after": _many("Of a kept unit: those that answer before it begins, and outlive it."),
        "undoes": text("Of a postStop unit: the create unit whose work it takes back.", 253),
    },
    lifecycle.Lifecycle: {
        "target": text("The object to whose life the units are tied."),
        "resource": text("The resource that this document makes; empty: the target's own hooks.", 253),
        "origin": text("Who wrote these steps; grants name it."),
        "pre_start": _many("Before the target starts."),
        "post_start": _many("Once it is ready."),
        "pre_stop": _many("Before it stops."),
        "post_stop": _many("After it has stopped."),
    },
    # --- the ledger --------------------------------------------------------------------------------------------------
    run.OutputRecord: {
        "digest": text("SHA-256 of the value."),
        "size": text("Its bytes."),
        "sensitive": text("Never shown."),
        "attempt": text("The attempt that made it."),
        "text": text("Whether a variable can hold it: it has no zero byte."),
    },
    run.UnitRecord: {
        "attempt": text("Number of the latest attempt, from 1."),
        "state": text("Of the latest attempt. unknown is not final."),
        "outcome": text("How it ended."),
        "reason": text("The reason for that end, in one word."),
        "message": text("What there is to say of that end, in one sentence.", _LONG),
        "kind": text("The kind of its work."),
        "ref": text("What was allowed to start: UID of a pod, a fork or an object."),
        "definition": text("Of an object: the CustomResourceDefinition of its kind, as NAME/UID."),
        "generation": text("Of a kept unit: digest of the wish it was started from."),
        "after": _many("Of a kept unit: those that outlive it."),
        "claimed_at": text("When it was allowed to start, " + _MILLISECONDS),
        "started_at": text("When it began, " + _MILLISECONDS),
        "ended_at": text("When it ended, " + _MILLISECONDS),
        "failures": text("Failed attempts."),
        "voids": text("Attempts that never ran."),
        "outputs": {"description": "What it made: digests, never values.", "maxProperties": _MANY},
    },
    run.Request: {
        "at": text("When, in unix milliseconds."),
        "reason": text("One word."),
        "message": text("One sentence.", _LONG),
        "by": text("Who asked."),
    },
    run.Run: {
        "uid": text("Identity of this ledger: the target's UID."),
        "target": text("The object whose life it records."),
        "plan": text("Digest of the sealed documents."),
        "seq": text("Rises by one with each commit.", minimum=0),
        "phase": text("Closing is the moment after which no create unit can start.", default="open"),
        "born_at": text("When it was made, " + _MILLISECONDS),
        "started_at": text("When its target was seen to have started by itself, " + _MILLISECONDS),
        "stopped_at": text("When its target was seen to have stopped for good, " + _MILLISECONDS),
        "units": {
            "description": "A line for each unit that was ever allowed to start.",
            "maxProperties": run.MOST_UNITS,
        },
        "closed": text("Who closed it, when and why."),
        "abandon": text("Who abandoned the cleanup, when and why."),
        "ended_at": text("When all was cleaned up, " + _MILLISECONDS),
    },
    kinds.Pin: {
        "name": object_name("Name of the ObjectLifecycleMethods."),
        "uid": text("Its UID.", 128),
        "digest": text("Digest of its spec.", 71, pattern=_DIGEST),
    },
    kinds.RunSpec: {
        "documents": _many("The sealed documents."),
        "forks": _many("The target's forks, in their newest revision."),
        "plural": label("The target's kind, as in its address."),
        "generation": text("The newest generation of the target that it goes by.", minimum=0),
        "updated_at": text("When that was, if it is not the first one, " + _MILLISECONDS),
        "unmatched_since": text("Since when no sandbox matches a route group, " + _MILLISECONDS),
        "hook": text("The lifecycle hook that it carries out; absent where its target says itself what is to be done."),
        "offered": text("Whose sandbox it is, if a control plane has it; absent for one that was applied here."),
    },
    kinds.Offered: {
        "uid": text("Its UID at the control plane.", 36),
        "org": text("The organisation that has it.", 253),
        "name": text("Its name there.", 30),
        "kind": text("What it is there, Sandbox or RouteGroup; empty for a sandbox.", 63),
        "generation": text("The newest wish that was taken up.", minimum=0),
        "expires_at": text("When its time to live is over, " + _MILLISECONDS),
        "lease_until": text("Until when it was renewed, " + _MILLISECONDS),
        "stop": text("Who asked there for its end."),
    },
    # --- resources and what is said ----------------------------------------------------------------------------------
    kinds.StatusCondition: {
        "type": text("Type of the condition.", 316),
        "status": text("Whether it holds.", enum=["True", "False", "Unknown"]),
        "observed_generation": text("The generation it speaks of."),
        "last_transition_time": text("Since when.", None, format="date-time", maxLength=None),
        "reason": text("Why, in one word.", 1024),
        "message": text("Why, in one sentence.", _LONG),
    },
    kinds.UnitStatus: {
        "id": text("Name of the unit in its run: resource/step, or fork:namespace/name.", 600),
        "event": text("When it is its turn: preStart, postStart, preStop or postStop."),
        "kind": text("exec, webhook, object or fork."),
        "state": text("waiting, running, succeeded, failed, retrying, unknown, stopped or skipped."),
        "attempt": text("Number of the latest attempt."),
        "reason": text("The reason in one word."),
        "message": text("What there is to say of it, in one sentence.", _LONG),
        "template": text("The message with {since} and {until} in its clocks' places; empty if it has none.", _LONG),
        "pod": text("Its pod, as namespace/name."),
        "since": text("Since when it has been in this state, " + _TIME),
        "until": text("When that changes by itself: it is retried, or is certain to have ended; empty for never."),
        "started_at": text("When it began, " + _TIME),
        "ended_at": text("When it ended, " + _TIME),
        "reads": _many("Units whose outputs it is given."),
        "waits_on": _many("Units it is waiting for now."),
    },
    kinds.Binding: {"name": object_name("Name of the Secret.")},
    kinds.EndpointStatus: {
        "name": text("Name of the endpoint."),
        "url": text("Where it answers.", 4096),
    },
    kinds.SandboxRef: {
        "namespace": label("Namespace of the sandbox."),
        "name": object_name("Its name."),
        "uid": text("Its UID.", 128),
    },
    kinds.ResourceSpec: {
        "name": text("Name of the resource in its sandbox.", 253),
        "sandbox": text("The sandbox it belongs to."),
        "plugin": text("The plugin as name@version; empty for one written in place."),
        "document": optional(object_name("Name of the ObjectLifecycleMethods that make and remove it.")),
        "output_namespaces": many(
            "Namespaces in which a Secret with the outputs lies.",
            _MANY,
            items={"maxLength": kube_names.LONGEST_LABEL, "pattern": f"^{kube_names.LABEL}$"},
        ),
    },
    kinds.Hooked: {
        "name": label("Name of the hook."),
        "uid": text("Its UID; a hook of the same name made later is another one.", 128),
        "started": text("What tells that the target has started, as the hook said then."),
        "stopped": text("What tells that the target has stopped."),
        "hold": text("What makes the target's own controller wait."),
        "older": text("Whether the target was there before the hook, so that preStart was passed over."),
        "definition": text("UID of the CustomResourceDefinition of the target's kind; empty for none.", 128),
    },
    kinds.LifecycleHookStatus: {
        **{field: _SPOKEN[field] for field in ("observed_generation", "reason", "message", "conditions")},
        "ready": text("Whether its steps run for each object that it selects; the condition Ready says the same."),
        "objects": text("How many objects it goes with.", minimum=0),
        "ending": text("How many of them are being cleaned up.", minimum=0),
        "troubled": text("How many of them somebody should look at; the message names one.", minimum=0),
        "older": text("How many of them were there before the hook: their preStart was passed over.", minimum=0),
    },
    kinds.PluginStatus: {
        **{field: _SPOKEN[field] for field in ("observed_generation", "reason", "message", "conditions")},
        "accepted": text("Whether sandboxes can use it; the condition Accepted says the same."),
    },
    kinds.SandboxStatus: {
        **_SPOKEN,
        "about": text("The unit that the message is about; empty if there is none.", 600),
        "others": text("How many more units the same applies to.", minimum=0),
        "routing_key": text("Key by which requests find the sandbox."),
        "served_for": text("Whose it is at the control plane that has it, as ORGANISATION/NAME.", 300),
        "expires_at": text("When it will be deleted, " + _TIME),
        "endpoints": _many("Ways in."),
    },
    kinds.ConflictStatus: {
        "baseline": text("The baseline, as namespace/name.", 320),
        "sandbox": text("The sandbox whose fork is meant: the oldest.", 63),
        "others": _many("The sandboxes whose forks are not."),
    },
    kinds.RouteGroupStatus: {
        **_SPOKEN,
        "routing_key": text("Key by which requests find the forks of its sandboxes."),
        "expires_at": text("When it will be deleted as things stand, " + _TIME),
        "matched_sandboxes": _many("The sandboxes that it has now; of very many the first ones."),
        "matched": text("How many they are.", minimum=0),
        "conflicts": _many("Baselines that several of them fork."),
        "endpoints": _many("Ways in."),
    },
    kinds.ResourceStatus: {**_SPOKEN, "binding": text("The Secret with the outputs.")},
    kinds.StepLog: {
        "unit": text("Name of the unit in its run: resource/step, or the name of a hook.", 600),
        "attempt": text("Which of its attempts, from 1."),
        "size": text("Bytes that it printed in all, of which the text holds the end; 0 if that is not known."),
        "encoding": text("How the text is to be read.", enum=["utf-8", "base64"]),
        "text": text("The end of what it printed.", 131_072),
        "times": text(
            "When the text was printed: pairs of numbers, from which of its bytes on, and Unix time in milliseconds.",
            maxItems=1_024,
        ),
    },
    kinds.StepLogsSpec: {
        "sandbox": text("The sandbox whose steps they are: that very object."),
        "logs": _many("One for each attempt."),
    },
}
