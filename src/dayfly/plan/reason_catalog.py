"""The catalogue of reasons: of what each constant word is said, what it means, and what somebody can do.

Whoever gives a reason takes it from `reasons`, and whoever asks what a reason is (is the sandbox failed? does an Event
warn? what is advised?) asks here. The table in docs/how-it-works.md and the API's `/meta/reasons` are made of it. A
reason that is not in it comes from Kubernetes and is passed on as it was said.
"""

import enum
from typing import Final, NamedTuple

from dayfly.plan.reasons import Reason


class Of(enum.StrEnum):
    """What a reason is said of; the values head the sections of the docs' page."""

    RUN = "A sandbox"
    WAIT = "A step or fork that is not done yet"
    HOLD = "A step or fork that cannot be made as it was asked for"
    IMAGE = "A step or fork whose image or container is being fetched or made, in Kubernetes' words"
    RESULT = "An attempt that has failed, or may have run"
    WEBHOOK = "A webhook that has failed, or whose outcome is not known"
    VOID = "An attempt that never ran"
    END = "Why a sandbox closes"
    OBJECT = "A plugin, a resource, a hook or a cluster"
    GROUP = "A route group"


class Tone(enum.IntEnum):
    """How it stands where that is said, from good to bad."""

    PROGRESS = 0  # all goes well
    TROUBLE = 1  # something stands in the way, or has; it may pass
    WARNING = 2  # somebody should look
    FAILED = 3  # it does not go on until somebody does something


class ReasonEntry(NamedTuple):
    """One row. In `advice`, {look} is where its trouble is told, {logs} the command for its log, {sandbox} its name.

    `closing` is the advice while the run is being cleaned up, if it differs: sealed documents cannot be fixed.
    """

    reason: Reason
    tone: Tone
    meaning: str
    advice: str = ""
    closing: str = ""


_STEP_FAILED = "{look}, fix the plugin or the parameters, delete the sandbox and apply it again"
NO_IMAGE_ADVICE: Final = (
    "make that image available to the cluster's nodes: the step then continues by itself. If its name is wrong: fix "
    "the plugin, delete the sandbox and apply it again"
)
IMAGE_OF_CLEANUP: Final = (
    "make that image available to the cluster's nodes: the step then continues by itself. If no create step ever ran, "
    "or what they made is certainly gone: `dayfly abandon {sandbox} --reason ...`"
)
_ABANDON: Final = "If what it would remove is certainly gone: `dayfly abandon {sandbox} --reason ...`"
_SOLVED: Final = (
    "remove the cause in the message, or ask the cluster's administrator to; the cleanup then continues. " + _ABANDON
)
_BY_ITSELF: Final = f"wait: it continues by itself once what the message names is done. {_ABANDON}"
_NODE_GONE: Final = "If its node is gone, the node's administrator must bring it back or remove it"
_GRANT = "ask the namespace's administrator for what the message names"
_FORK = "fix what the message names under the fork's customizations and apply the sandbox again"
_NO_SPACE = "let the step read it as a file (`as: {{path: ...}}`), or make it smaller"

_ROWS: Final[dict[Of, tuple[ReasonEntry, ...]]] = {
    Of.RUN: (
        ReasonEntry(Reason.READY, Tone.PROGRESS, "Every create step has succeeded, every fork answers."),
        ReasonEntry(Reason.RESOURCES_PENDING, Tone.PROGRESS, "Create steps of its resources have not finished yet."),
        ReasonEntry(Reason.HOOKS_PENDING, Tone.PROGRESS, "Its own hooks have not finished yet."),
        ReasonEntry(Reason.FORKS_PENDING, Tone.PROGRESS, "Its forks are being created, or do not answer yet."),
        ReasonEntry(Reason.DELETING, Tone.PROGRESS, "It is being cleaned up."),
        ReasonEntry(Reason.CLEANED, Tone.PROGRESS, "Every delete step has succeeded; nothing is left."),
        ReasonEntry(Reason.WAITING_FOR_OPERATOR, Tone.PROGRESS, "No operator has picked it up yet."),
        ReasonEntry(
            Reason.SUPPORTED, Tone.PROGRESS, "Every part of its file has effect here (the condition `Supported`)."
        ),
        ReasonEntry(
            Reason.EXPIRES_SOON,
            Tone.WARNING,
            "Its time to live is nearly over (the condition `ExpiresSoon`): a tenth of it is left, or ten minutes.",
            "let it go, or keep it: `dayfly sandbox extend {sandbox} --for 2h`",
        ),
        ReasonEntry(
            Reason.UNSUPPORTED,
            Tone.WARNING,
            "This host does not support a part of its file (see the condition `Supported`, and `why`); the rest works.",
            "remove that part, or use the file where it is supported; everything else is ready",
        ),
        ReasonEntry(
            Reason.RESOURCE_FAILED, Tone.FAILED, "A create step has failed; nothing else is started.", _STEP_FAILED
        ),
        ReasonEntry(
            Reason.HOOK_FAILED,
            Tone.FAILED,
            "A postStart step has failed.",
            "{look}; the forks stay as they are until the sandbox is deleted",
        ),
        ReasonEntry(
            Reason.FORK_FAILED,
            Tone.FAILED,
            "A fork cannot be created as its spec says; waiting does not help.",
            "change the fork in the sandbox's file and apply it again",
        ),
        ReasonEntry(
            Reason.CLEANUP_STUCK,
            Tone.WARNING,
            "A delete step has failed several times. It is retried until it succeeds.",
            "{look} and fix what it needs; it is retried until it succeeds, or at once with `dayfly retry {sandbox}`. "
            "If what it would remove is certainly gone: `dayfly abandon {sandbox} --reason ...`",
        ),
        ReasonEntry(
            Reason.OUTCOME_UNKNOWN,
            Tone.WARNING,
            "A step may have run, and how it ended is not known yet. Nothing is started in the meantime.",
            "wait: it resolves itself by its deadline, and nothing runs twice in the meantime",
        ),
        ReasonEntry(Reason.ABANDONED, Tone.WARNING, "Its cleanup was abandoned; the reason is recorded."),
        ReasonEntry(Reason.PARTLY_APPLIED, Tone.WARNING, "Part of what it asks for has no effect; the rest is done."),
        ReasonEntry(
            Reason.PLUGIN_MISSING,
            Tone.WARNING,
            "A plugin that it names does not exist.",
            "apply the plugin; the sandbox then continues by itself",
        ),
        ReasonEntry(Reason.BLOCKED, Tone.WARNING, "The host could not take the next step, and keeps trying."),
        ReasonEntry(
            Reason.REFUSED, Tone.FAILED, "What it asks for is not possible.", "fix its file and apply it again"
        ),
        ReasonEntry(
            Reason.LEDGER_LOST, Tone.FAILED, "Its ledger is gone, so nothing is done; the message says what to do."
        ),
        ReasonEntry(
            Reason.PLAN_LOST, Tone.FAILED, "A sealed document is gone, so nothing is done: restore it, or abandon."
        ),
    ),
    Of.WAIT: (
        ReasonEntry(Reason.WAITING_FOR_INPUT, Tone.PROGRESS, "A step whose output it reads has not finished."),
        ReasonEntry(Reason.WAITING_FOR_FORKS, Tone.PROGRESS, "It starts after the forks, which do not answer yet."),
        ReasonEntry(Reason.WAITING_FOR_LATER, Tone.PROGRESS, "It is removed once everything after it is gone."),
        ReasonEntry(
            Reason.WAITING_FOR_TARGET,
            Tone.PROGRESS,
            "Its target has not started, or not stopped, yet.",
            closing="have the target stop, or have the owner of the finalizer that the message names remove it",
        ),
        ReasonEntry(
            Reason.WAITING_FOR_EARLIER, Tone.PROGRESS, "It starts once the steps and forks before it are done."
        ),
        ReasonEntry(Reason.WAITING_FOR_READERS, Tone.PROGRESS, "Resources that read this one are cleaned up first."),
        ReasonEntry(
            Reason.WAITING_FOR_FIELD,
            Tone.TROUBLE,
            "The object that its hook selects lacks a field that it reads.",
            "wait for whoever writes that field, or correct `valueFromTarget` in the hook",
            closing="have the field written that the message names. " + _ABANDON,
        ),
        ReasonEntry(
            Reason.WAITING_FOR_SLOT,
            Tone.PROGRESS,
            "The limit of steps that may run at once is reached.",
            "wait, or raise the limit: on one machine with `dayfly up --parallel N`; in a cluster, the administrator "
            "sets the namespace's annotation dayfly.dev/steps",
        ),
        ReasonEntry(Reason.STARTING, Tone.PROGRESS, "It is allowed to run and is being started."),
        ReasonEntry(Reason.RUNNING, Tone.PROGRESS, "It is running.", "watch it with `{logs} -f`"),
        ReasonEntry(
            Reason.STOPPING,
            Tone.PROGRESS,
            "It has been asked to end, or its processes are ending.",
            closing="wait: its processes have their grace period to end, and are then killed. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.NOT_REPORTED,
            Tone.PROGRESS,
            "It was released, and nothing has been heard of it yet.",
            closing="wait: its node reports it by itself. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.WAITING_TO_RETRY,
            Tone.TROUBLE,
            "An attempt has failed or never ran; the next one follows after a pause.",
            "{look}; it is retried by itself, or at once with `dayfly retry {sandbox}`",
        ),
        ReasonEntry(
            Reason.NOT_ANSWERING,
            Tone.TROUBLE,
            "The fork's process is running but does not answer on its port.",
            "check that its process listens on the port given in PORT: `{logs}`",
        ),
        ReasonEntry(Reason.ROUTE_PENDING, Tone.PROGRESS, "Its routes are being set up."),
        ReasonEntry(
            Reason.ROUTE_NOT_ACCEPTED,
            Tone.TROUBLE,
            "A Gateway does not accept the route that would send requests with its key to the fork.",
            "check what the Gateway says about the route: kubectl describe httproutes,grpcroutes -l dayfly.dev/route",
        ),
        ReasonEntry(
            Reason.FENCING,
            Tone.TROUBLE,
            "It cannot start, and the runner has been asked to prove that it never began.",
            "wait: it continues by itself, with that proof or without it",
        ),
        ReasonEntry(
            Reason.OBJECT_NOT_READY,
            Tone.PROGRESS,
            "Its object exists and is not ready yet.",
            "check the controller that handles the object: use kubectl describe with the name in the message",
            closing="wait: it is being deleted",
        ),
        ReasonEntry(
            Reason.OBJECT_TERMINATING,
            Tone.PROGRESS,
            "Its object is being deleted; the message names the finalizers that are still on it.",
            "have that finalizer's owner remove it; the step then continues by itself",
        ),
        ReasonEntry(
            Reason.OUTPUTS_UNREADABLE,
            Tone.TROUBLE,
            "It has ended; its outputs cannot be read at the moment.",
            closing="wait: they are read again by and by. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.START_INTERRUPTED,
            Tone.TROUBLE,
            "It was allowed to start, but the process that should have started it ended first.",
            closing="wait: another process takes over by itself",
        ),
        ReasonEntry(Reason.STOPPED_BY_FAILURE, Tone.TROUBLE, "Another create step has failed, so it is not started."),
        ReasonEntry(Reason.STOPPED_BY_UNKNOWN, Tone.TROUBLE, "The outcome of another create step is not known yet."),
    ),
    Of.HOLD: (
        ReasonEntry(Reason.BASELINE_MISSING, Tone.TROUBLE, "The workload that it forks does not exist."),
        ReasonEntry(Reason.NOT_ROUTED, Tone.TROUBLE, "Nothing here routes requests to it by their routing key."),
        ReasonEntry(
            Reason.PATH_IN_USE,
            Tone.TROUBLE,
            "A running step uses the same path, on a machine that cannot keep them apart.",
        ),
        ReasonEntry(Reason.UNSUPPORTED_KIND, Tone.TROUBLE, "This host does not run units of that kind."),
        ReasonEntry(Reason.KIND_NOT_FORKED, Tone.TROUBLE, "Workloads of that kind cannot be forked here."),
        ReasonEntry(
            Reason.BAD_PATCH, Tone.TROUBLE, "The fork's patch is malformed, or does not fit its baseline.", _FORK
        ),
        ReasonEntry(Reason.EXCEEDS_BASELINE, Tone.TROUBLE, "The fork would have more rights than its baseline.", _FORK),
        ReasonEntry(
            Reason.CONTAINER_NOT_FOUND, Tone.TROUBLE, "A change names a container that the baseline does not have."
        ),
        ReasonEntry(
            Reason.FORK_WITHOUT_SERVICE, Tone.TROUBLE, "The address of a fork is needed, but no Service selects it."
        ),
        ReasonEntry(Reason.FORK_WITHOUT_PORT, Tone.TROUBLE, "The address of a fork is needed, but it has no port."),
        ReasonEntry(Reason.NAMESPACE_NOT_GRANTED, Tone.TROUBLE, "The namespace does not allow it.", _GRANT),
        ReasonEntry(Reason.NAMESPACE_MISSING, Tone.TROUBLE, "The namespace does not exist."),
        ReasonEntry(
            Reason.OBJECTS_NOT_GRANTED,
            Tone.TROUBLE,
            "The account dayfly-objects of the namespace lacks a right that its object needs.",
            "ask the namespace's administrator to run the command at the end of the message; it then continues",
        ),
        ReasonEntry(Reason.KIND_REFUSED, Tone.TROUBLE, "Steps are not allowed to create objects of that kind."),
        ReasonEntry(
            Reason.FIELD_REFUSED,
            Tone.TROUBLE,
            "Steps are not allowed to set that field of an object: its effect reaches beyond the namespace.",
        ),
        ReasonEntry(
            Reason.KIND_NOT_SERVED,
            Tone.TROUBLE,
            "The cluster serves no objects of that kind.",
            "have its CustomResourceDefinition installed; the step then continues by itself",
            closing="have the cluster's administrator install what the message names, or delete its "
            "CustomResourceDefinition for good; the cleanup then continues. " + _ABANDON,
        ),
        ReasonEntry(
            Reason.PLUGIN_NOT_GRANTED,
            Tone.TROUBLE,
            "A Secret, ConfigMap or claim that its pod reads does not exist, lacks a key, or does not name its plugin.",
            "have its owner annotate it as the message says; the step then continues by itself",
        ),
        ReasonEntry(
            Reason.NAME_CONFLICT, Tone.TROUBLE, "Another object, which Dayfly does not own, has the name. Delete it."
        ),
        ReasonEntry(Reason.POD_REFUSED, Tone.TROUBLE, "Its pod would have something that no plugin's pod may have."),
        ReasonEntry(
            Reason.FIELD_INVALID,
            Tone.TROUBLE,
            "The API server refuses a field of its pod, or of the fork; the message names it.",
            "correct that field in the plugin or the sandbox",
        ),
        ReasonEntry(
            Reason.POD_MODIFIED, Tone.TROUBLE, "Something in the cluster changed its pod before it was released."
        ),
        ReasonEntry(
            Reason.CLOCK_SKEW,
            Tone.TROUBLE,
            "By the operator's clock its pod is too old to start the moment it is created: that clock and the API "
            "server's differ, and what tells the API server's time on the way does not.",
            "have the clocks of the machines of operator and API server set; the step then continues by itself",
        ),
        ReasonEntry(Reason.INPUT_TOO_LARGE, Tone.TROUBLE, "An input is too large for a variable.", _NO_SPACE),
        ReasonEntry(
            Reason.INPUT_NOT_TEXT, Tone.TROUBLE, "An input has a zero byte, which no variable can hold.", _NO_SPACE
        ),
        ReasonEntry(
            Reason.SCRIPT_TOO_LARGE, Tone.TROUBLE, "Script and plain inputs are too large for a pod's annotations."
        ),
        ReasonEntry(Reason.NOT_PROGRESSING, Tone.TROUBLE, "The fork's Deployment makes no progress."),
        ReasonEntry(
            Reason.UNSCHEDULABLE,
            Tone.TROUBLE,
            "No node can take the pod; the message has the scheduler's words.",
            closing="have the cluster's administrator make room or add a node that fits; the step then continues",
        ),
    ),
    Of.IMAGE: (
        ReasonEntry(Reason.CREATING_CONTAINER, Tone.PROGRESS, "Its container is being created."),
        ReasonEntry(Reason.POD_INITIALIZING, Tone.PROGRESS, "Its pod's init containers are running."),
        ReasonEntry(Reason.PULLING, Tone.TROUBLE, "Pulling its image takes longer than usual.", NO_IMAGE_ADVICE),
        ReasonEntry(Reason.ERR_IMAGE_PULL, Tone.TROUBLE, "Its image could not be pulled.", NO_IMAGE_ADVICE),
        ReasonEntry(
            Reason.IMAGE_PULL_BACK_OFF,
            Tone.TROUBLE,
            "Its image could not be pulled; tried again soon.",
            NO_IMAGE_ADVICE,
        ),
        ReasonEntry(
            Reason.ERR_IMAGE_NEVER_PULL,
            Tone.TROUBLE,
            "Its image is not on the node and may not be pulled.",
            NO_IMAGE_ADVICE,
        ),
        ReasonEntry(Reason.INVALID_IMAGE_NAME, Tone.TROUBLE, "Its image's name is not valid.", NO_IMAGE_ADVICE),
        ReasonEntry(Reason.IMAGE_INSPECT_ERROR, Tone.TROUBLE, "Its image is damaged on the node."),
        ReasonEntry(Reason.REGISTRY_UNAVAILABLE, Tone.TROUBLE, "The image's registry does not answer."),
        ReasonEntry(Reason.SIGNATURE_VALIDATION_FAILED, Tone.TROUBLE, "The image's signature could not be verified."),
    ),
    Of.RESULT: (
        ReasonEntry(Reason.EXIT_CODE, Tone.TROUBLE, "Its script or command ended with an exit code other than 0."),
        ReasonEntry(Reason.SIGNAL, Tone.TROUBLE, "Its script or command was killed by a signal."),
        ReasonEntry(Reason.OOM_KILLED, Tone.TROUBLE, "The kernel killed it because memory ran out."),
        ReasonEntry(
            Reason.EVICTED, Tone.TROUBLE, "The node evicted its pod: it filled the disk, or the node was short."
        ),
        ReasonEntry(
            Reason.RUN_DEADLINE, Tone.TROUBLE, "It ran longer than its limit: see its log, or raise `timeouts.run`."
        ),
        ReasonEntry(Reason.CANCELLED, Tone.TROUBLE, "It was asked to end."),
        ReasonEntry(
            Reason.NOT_EXECUTABLE,
            Tone.TROUBLE,
            "Nothing of it ran: its script or command could not be executed. Is the program there, or the interpreter?",
        ),
        ReasonEntry(Reason.OUTPUT_MISSING, Tone.TROUBLE, "It succeeded but left no file where `valueFromPath` says."),
        ReasonEntry(
            Reason.OUTPUT_TOO_LARGE, Tone.TROUBLE, "Its outputs are above the limit for a step, or for a sandbox."
        ),
        ReasonEntry(Reason.OUTPUT_REFUSED, Tone.TROUBLE, "An output is not a plain file."),
        ReasonEntry(Reason.OUTPUTS_LOST, Tone.TROUBLE, "Its outputs are gone, altered, or could not be kept."),
        ReasonEntry(
            Reason.STATE_REFUSED,
            Tone.TROUBLE,
            "A Terraform state that it wrote was not stored, so what it created may be unknown to its delete steps.",
        ),
        ReasonEntry(
            Reason.STATE_MISSING,
            Tone.TROUBLE,
            "The plugin has `state: true`, and its create steps stored no Terraform state.",
        ),
        ReasonEntry(
            Reason.STATE_NOT_EMPTY,
            Tone.TROUBLE,
            "The delete steps succeeded, and the Terraform state still lists resources.",
            "{look}; let a delete step run `terraform destroy` with the backend that the create step used",
        ),
        ReasonEntry(
            Reason.STATE_NOT_READ,
            Tone.TROUBLE,
            "The delete steps succeeded, and none of them read the Terraform state.",
            "{look}; the module of a delete step must have the backend `http`, as the create step's",
        ),
        ReasonEntry(Reason.OBJECT_FAILED, Tone.TROUBLE, "Its object says that it has failed (`failed`)."),
        ReasonEntry(Reason.OBJECT_DELETED, Tone.TROUBLE, "Somebody deleted its object before it was ready."),
        ReasonEntry(Reason.RESULT_LOST, Tone.TROUBLE, "It has certainly ended, but how it ended was never reported."),
        ReasonEntry(Reason.NO_RECORD, Tone.TROUBLE, "Its node has no record of its container."),
        ReasonEntry(Reason.NODE_LOST, Tone.TROUBLE, "Its node is lost."),
        ReasonEntry(
            Reason.NODE_NOT_REPORTING,
            Tone.TROUBLE,
            "Its deadline passed long ago, but its node has not reported its end.",
        ),
        ReasonEntry(Reason.POD_DELETED, Tone.TROUBLE, "Its pod was removed, and with it the proof of how it ended."),
        ReasonEntry(Reason.POD_ENDED, Tone.TROUBLE, "Its pod has ended, and how its container ended is not known."),
        ReasonEntry(Reason.MACHINE_RESTARTED, Tone.TROUBLE, "The machine was restarted while it ran."),
        ReasonEntry(Reason.FOLDER_LOST, Tone.TROUBLE, "Its folder was removed while it may have been running."),
        ReasonEntry(
            Reason.REPLACED, Tone.TROUBLE, "A newer version of the fork replaces it, or it is no longer wanted."
        ),
    ),
    Of.WEBHOOK: (
        ReasonEntry(
            Reason.NOT_SENT,
            Tone.TROUBLE,
            "Its host was not found, or the connection or TLS handshake failed; nothing was sent.",
        ),
        ReasonEntry(
            Reason.ADDRESS_REFUSED,
            Tone.TROUBLE,
            "It leads to an address that is not public, or would be sent unencrypted.",
            "use a public https:// address, or have the administrator allow that server: `--allow-webhook HOST:PORT`",
        ),
        ReasonEntry(
            Reason.RESPONSE_LOST,
            Tone.TROUBLE,
            "It was sent, but its outcome is not known. It is cleaned up, or sent again with the same key if that is "
            "allowed.",
        ),
        ReasonEntry(
            Reason.UNEXPECTED_STATUS, Tone.TROUBLE, "The server answered with a status that does not mean success."
        ),
        ReasonEntry(Reason.REDIRECTED, Tone.TROUBLE, "The server sent a redirect, and redirects are not followed."),
        ReasonEntry(Reason.RESPONSE_TOO_LARGE, Tone.TROUBLE, "Its answer is larger than 1 MiB."),
        ReasonEntry(
            Reason.RESPONSE_NOT_JSON, Tone.TROUBLE, "Its answer is not JSON, but a value is to be read from it."
        ),
        ReasonEntry(Reason.RESPONSE_TRUNCATED, Tone.TROUBLE, "Its answer ended too early."),
        ReasonEntry(Reason.RESPONSE_TIMEOUT, Tone.TROUBLE, "Its answer began, but did not finish in time."),
        ReasonEntry(Reason.RESPONSE_INVALID, Tone.TROUBLE, "Its answer lacks what an output or `poll` takes from it."),
        ReasonEntry(Reason.JOB_FAILED, Tone.TROUBLE, "The long job that it began has failed."),
        ReasonEntry(Reason.JOB_UNFINISHED, Tone.TROUBLE, "The job did not finish within `timeouts.run`."),
        ReasonEntry(Reason.INPUT_INVALID, Tone.TROUBLE, "An input cannot be used at its place in the request."),
    ),
    Of.VOID: (
        ReasonEntry(
            Reason.START_DEADLINE, Tone.TROUBLE, "It did not start in time (`timeouts.schedule`, `timeouts.pull`)."
        ),
        ReasonEntry(Reason.CANNOT_START, Tone.TROUBLE, "It could not be started; the message says why. Tried again."),
        ReasonEntry(Reason.CANNOT_PREPARE, Tone.TROUBLE, "The runner could not prepare what the step needs."),
        ReasonEntry(Reason.NEVER_RAN, Tone.TROUBLE, "It was kept from starting; tried again where that is safe."),
    ),
    Of.END: (
        ReasonEntry(
            Reason.DELETED, Tone.TROUBLE, "Somebody deleted it: the sandbox, a step's pod, or a fork's workload."
        ),
        ReasonEntry(Reason.HOOK_REMOVED, Tone.PROGRESS, "Its hook was removed: what the hook's steps made is undone."),
        ReasonEntry(Reason.EXPIRED, Tone.PROGRESS, "Its time to live is over; apply it again with a longer `ttl`."),
        ReasonEntry(Reason.LEASE_EXPIRED, Tone.PROGRESS, "Whoever used it (`dayfly with`) is gone."),
    ),
    Of.OBJECT: (
        ReasonEntry(Reason.ACCEPTED, Tone.PROGRESS, "Sandboxes can use the plugin."),
        ReasonEntry(Reason.RESOURCE_READY, Tone.PROGRESS, "All create steps of the resource have succeeded."),
        ReasonEntry(
            Reason.LEFTOVERS_POSSIBLE,
            Tone.WARNING,
            "Its create steps ran and its cleanup was abandoned, so what they created may still exist.",
            "check whether these still exist, and remove them by hand",
        ),
        ReasonEntry(Reason.HOOK_ACTIVE, Tone.PROGRESS, "The hook's steps run for each object that it selects."),
        ReasonEntry(
            Reason.TARGETS_NOT_GRANTED,
            Tone.WARNING,
            "The operator may not read and hold objects of the kind that the hook selects, so the hook does nothing.",
            "ask the cluster's administrator to run the command at the end of the message; it then continues",
        ),
        ReasonEntry(
            Reason.CLUSTER_NOT_REPORTING,
            Tone.TROUBLE,
            "The server has not heard from the cluster's agent, which carries on with what it has received.",
            "check that the operator is running there and can reach this server",
        ),
    ),
    Of.GROUP: (
        ReasonEntry(
            Reason.NO_MATCHED_SANDBOXES,
            Tone.PROGRESS,
            "It is ready, and no living sandbox has the labels that it matches.",
        ),
        ReasonEntry(
            Reason.FORK_CONFLICT,
            Tone.TROUBLE,
            "Several of its sandboxes fork the same baseline; the fork of the oldest answers (the condition "
            "`ForkConflict`).",
            "narrow the group's match, or delete the sandbox that you do not want",
        ),
        ReasonEntry(Reason.NO_FORK_CONFLICT, Tone.PROGRESS, "No two of its sandboxes fork the same baseline."),
    ),
}

CATALOGUE: Final[dict[str, ReasonEntry]] = {entry.reason: entry for rows in _ROWS.values() for entry in rows}
SECTIONS: Final = {of: tuple(entry.reason for entry in rows) for of, rows in _ROWS.items()}
NO_IMAGE: Final = frozenset(SECTIONS[Of.IMAGE]) - {Reason.CREATING_CONTAINER, Reason.POD_INITIALIZING, Reason.PULLING}
"""What a kubelet says of a container whose image it cannot get; more than one of these may be said in turn."""


HELD: Final = (
    NO_IMAGE
    | (frozenset(SECTIONS[Of.HOLD]) - {Reason.PATH_IN_USE})
    | {Reason.ROUTE_NOT_ACCEPTED, Reason.PLUGIN_MISSING, Reason.PARTLY_APPLIED, Reason.BLOCKED}
)
"""Of what waits: it was refused, or lacks what only somebody can give it. Time alone changes nothing."""


def tone(reason: str) -> Tone:
    """How it stands where that is said. What is not ours is Kubernetes' word for something in the way."""
    if not reason:
        return Tone.PROGRESS
    entry = CATALOGUE.get(reason)
    return entry.tone if entry else Tone.TROUBLE


def keeps_from_ending(reason: str) -> bool:
    """Return whether what runs cannot end for that reason: only a person, or another controller, changes that."""
    return bool(reason) and (reason in HELD or reason == Reason.OBJECT_TERMINATING or reason not in CATALOGUE)


def advice(reason: str, *, closing: bool = False) -> str:
    """Return what a person can do, as a template (see `ReasonEntry`).

    It is empty if there is nothing to do, or the message has the advice. While a run is being cleaned up (`closing`)
    every reason has advice.
    """
    entry = CATALOGUE.get(reason)
    if not closing:
        return entry.advice if entry else ""
    if entry is None:
        return _SOLVED if reason else _BY_ITSELF
    if entry.closing or entry.advice not in ("", _FORK, _NO_SPACE, _STEP_FAILED):
        return entry.closing or (IMAGE_OF_CLEANUP if entry.advice == NO_IMAGE_ADVICE else entry.advice)
    return _BY_ITSELF if entry.tone is Tone.PROGRESS else _SOLVED
