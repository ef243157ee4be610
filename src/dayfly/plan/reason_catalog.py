"""The catalogue of reasons: the subject, severity, meaning and advice of each reason.

A component that gives a reason takes it from `reasons`. docs/reference/reasons.md and the API's `/meta/reasons` are
generated from this catalogue. A reason that is not in it comes from Kubernetes and is reported unchanged.
"""

import enum
from typing import Final, NamedTuple

from dayfly.plan.reasons import Reason


class Subject(enum.StrEnum):
    """The subject of a reason. The values are headings in the docs, and the API returns the lower-case names."""

    RUN = "A sandbox"
    WAIT = "A step or fork that is not done yet"
    HOLD = "A step or fork that cannot be made as specified"
    IMAGE = "A step or fork whose image is being pulled or whose container is being created (reasons of Kubernetes)"
    RESULT = "An attempt that has failed, or may have run"
    WEBHOOK = "A webhook that has failed, or whose outcome is unknown"
    VOID = "An attempt that never ran"
    END = "Why a sandbox closes"
    OBJECT = "A plugin, a resource, a hook or a cluster"
    GROUP = "A route group"
    POOL = "A resource pool, or why one of its members closes"
    LEAK_CHECK = "A leak check"


class Severity(enum.IntEnum):
    """The severity of a reason. The API returns the lower-case names."""

    PROGRESS = 0  # normal
    TROUBLE = 1  # something blocks it or has failed; it may resolve itself
    WARNING = 2  # a person should look at it
    FAILED = 3  # it does not continue until a person acts


class ReasonEntry(NamedTuple):
    """One row of the catalogue.

    `advice` is a template: {look} is the place with the details, {logs} the command for the log, {sandbox} its name.
    `closing` is the advice during cleanup, if it differs: sealed documents cannot be fixed.
    """

    reason: Reason
    severity: Severity
    meaning: str
    advice: str = ""
    closing: str = ""


_STEP_FAILED = "{look}, fix the plugin or the parameters, delete the sandbox and apply it again"
NO_IMAGE_ADVICE: Final = (
    "make that image available to the cluster's nodes: the step then continues by itself. If its "
    "name is wrong: fix the plugin, delete the sandbox and apply it again"
)
NO_IMAGE_CLOSING_ADVICE: Final = (
    "make that image available to the cluster's nodes: the step then continues by itself. If no "
    "create step ran, or everything that they created is certainly gone: `dayfly abandon {sandbox} "
    "--reason ...`"
)
_ABANDON: Final = "If everything that it would remove is certainly gone: `dayfly abandon {sandbox} --reason ...`"
_FIX_CAUSE: Final = (
    "fix the cause in the message, or ask the cluster's administrator to fix it; the cleanup then "
    "continues. " + _ABANDON
)
_WAIT_FOR_CONDITION: Final = f"wait: it continues by itself once the condition in the message is met. {_ABANDON}"
_NODE_GONE: Final = "If its node is gone, the node's administrator must bring it back or remove it"
_REQUEST_PERMISSION = "ask the namespace's administrator for the permission in the message"
_FIX_FORK = "fix the field in the message under the fork's customizations and apply the sandbox again"
_READ_AS_FILE = "let the step read it as a file (`as: {{path: ...}}`), or make it smaller"

_ROWS: Final[dict[Subject, tuple[ReasonEntry, ...]]] = {
    Subject.RUN: (
        ReasonEntry(Reason.READY, Severity.PROGRESS, "Every create step has succeeded, and every fork answers."),
        ReasonEntry(
            Reason.RESOURCES_PENDING, Severity.PROGRESS, "Create steps of its resources have not finished yet."
        ),
        ReasonEntry(Reason.HOOKS_PENDING, Severity.PROGRESS, "The steps of its own hooks have not finished yet."),
        ReasonEntry(Reason.FORKS_PENDING, Severity.PROGRESS, "Its forks are being created, or do not answer yet."),
        ReasonEntry(Reason.DELETING, Severity.PROGRESS, "It is being cleaned up."),
        ReasonEntry(Reason.CLEANED, Severity.PROGRESS, "Every delete step has succeeded; nothing is left."),
        ReasonEntry(Reason.WAITING_FOR_OPERATOR, Severity.PROGRESS, "No operator has started to process it yet."),
        ReasonEntry(
            Reason.SUPPORTED,
            Severity.PROGRESS,
            "This host supports every part of its file (the condition `Supported`).",
        ),
        ReasonEntry(
            Reason.EXPIRES_SOON,
            Severity.WARNING,
            "Its time to live ends soon (the condition `ExpiresSoon`): a tenth of it is left, or ten minutes.",
            "let it expire, or extend it: `dayfly sandbox extend {sandbox} --for 2h`",
        ),
        ReasonEntry(
            Reason.UNSUPPORTED,
            Severity.WARNING,
            "This host does not support a part of its file (see the condition `Supported`, and `why`); the rest works.",
            "remove that part, or use the file on a host that supports it; everything else is ready",
        ),
        ReasonEntry(
            Reason.RESOURCE_FAILED, Severity.FAILED, "A create step has failed. No other step is started.", _STEP_FAILED
        ),
        ReasonEntry(
            Reason.HOOK_FAILED,
            Severity.FAILED,
            "A postStart step has failed.",
            "{look}; the forks stay as they are until the sandbox is deleted",
        ),
        ReasonEntry(
            Reason.FORK_FAILED,
            Severity.FAILED,
            "A fork cannot be created as specified. Waiting does not help.",
            "change the fork in the sandbox's file and apply it again",
        ),
        ReasonEntry(
            Reason.CLEANUP_STUCK,
            Severity.WARNING,
            "A delete step has failed several times. It is retried until it succeeds.",
            "{look} and fix the cause; it is retried until it succeeds, or at once with `dayfly retry "
            "{sandbox}`. If everything that it would remove is certainly gone: `dayfly abandon {sandbox} "
            "--reason ...`",
        ),
        ReasonEntry(
            Reason.OUTCOME_UNKNOWN,
            Severity.WARNING,
            "A step may have run, and its outcome is not known yet. No other step is started until then.",
            "wait: the step's deadline resolves it, and nothing runs twice",
        ),
        ReasonEntry(Reason.ABANDONED, Severity.WARNING, "Its cleanup was abandoned. The reason is recorded."),
        ReasonEntry(Reason.PARTLY_APPLIED, Severity.WARNING, "A part of its spec has no effect. The rest is applied."),
        ReasonEntry(
            Reason.PLUGIN_MISSING,
            Severity.WARNING,
            "A plugin in its spec does not exist.",
            "apply the plugin; the sandbox then continues by itself",
        ),
        ReasonEntry(Reason.BLOCKED, Severity.WARNING, "The host could not take the next step. It retries."),
        ReasonEntry(
            Reason.REFUSED,
            Severity.FAILED,
            "Its spec is invalid or not possible on this host.",
            "fix its file and apply it again",
        ),
        ReasonEntry(
            Reason.LEDGER_LOST,
            Severity.FAILED,
            "Its ledger is gone, so the host takes no action. The message names the remedy.",
        ),
        ReasonEntry(
            Reason.PLAN_LOST,
            Severity.FAILED,
            "A sealed document is gone, so the host takes no action. Restore the document, or abandon the cleanup.",
        ),
    ),
    Subject.WAIT: (
        ReasonEntry(Reason.WAITING_FOR_INPUT, Severity.PROGRESS, "A step whose output it reads has not finished."),
        ReasonEntry(
            Reason.WAITING_FOR_FORKS, Severity.PROGRESS, "It starts after the forks, and they do not answer yet."
        ),
        ReasonEntry(
            Reason.WAITING_FOR_LATER, Severity.PROGRESS, "It is removed after the units that were started after it."
        ),
        ReasonEntry(Reason.WAITING_FOR_HOLDER, Severity.PROGRESS, "It ends once its users have released it."),
        ReasonEntry(
            Reason.WAITING_FOR_PARENT,
            Severity.TROUBLE,
            "All shared parents of its plugin are full, or the former one is being cleaned up.",
            "delete a sandbox that uses the parent, or publish a version of the plugin with a higher capacity or "
            "maxParents",
        ),
        ReasonEntry(
            Reason.WAITING_FOR_TARGET,
            Severity.PROGRESS,
            "Its target has not started yet, or has not stopped yet.",
            closing="stop the target, or have the controller of the finalizer in the message remove it",
        ),
        ReasonEntry(Reason.WAITING_FOR_EARLIER, Severity.PROGRESS, "It starts after the steps and forks before it."),
        ReasonEntry(
            Reason.WAITING_FOR_READERS, Severity.PROGRESS, "Resources that read this one are cleaned up first."
        ),
        ReasonEntry(
            Reason.WAITING_FOR_FIELD,
            Severity.TROUBLE,
            "The object that its hook selects lacks a field that it reads.",
            "wait until the field's controller writes it, or correct `valueFromTarget` in the hook",
            closing="have the field in the message written. " + _ABANDON,
        ),
        ReasonEntry(
            Reason.WAITING_FOR_SLOT,
            Severity.PROGRESS,
            "The host, or the namespace, already runs as many steps as its limit allows.",
            "wait, or raise the limit: on one machine with `dayfly up --parallel N`; in a cluster, the "
            "administrator sets the namespace's annotation dayfly.dev/steps",
        ),
        ReasonEntry(Reason.STARTING, Severity.PROGRESS, "Its claim is in the ledger, and it is being started."),
        ReasonEntry(Reason.RUNNING, Severity.PROGRESS, "It is running.", "watch it with `{logs} -f`"),
        ReasonEntry(
            Reason.STOPPING,
            Severity.PROGRESS,
            "It was asked to end, or its processes are ending.",
            closing="wait: its processes have their grace period to end, and are then killed. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.NOT_REPORTED,
            Severity.PROGRESS,
            "It was released, and its host has not reported on it yet.",
            closing="wait: its node will report it. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.WAITING_TO_RETRY,
            Severity.TROUBLE,
            "An attempt has failed or never ran. The next attempt follows after a pause.",
            "{look}; it is retried by itself, or at once with `dayfly retry {sandbox}`",
        ),
        ReasonEntry(
            Reason.NOT_ANSWERING,
            Severity.TROUBLE,
            "The fork's process is running but does not answer on its port.",
            "check that its process listens on the port given in PORT: `{logs}`",
        ),
        ReasonEntry(Reason.ROUTE_PENDING, Severity.PROGRESS, "Its routes are being set up."),
        ReasonEntry(
            Reason.ROUTE_NOT_ACCEPTED,
            Severity.TROUBLE,
            "A Gateway does not accept the route that would send requests with its routing key to the fork.",
            "check the route's conditions: kubectl describe httproutes,grpcroutes -l dayfly.dev/route",
        ),
        ReasonEntry(
            Reason.FENCING,
            Severity.TROUBLE,
            "It cannot start. The runner was asked to prove that it never began.",
            "wait: it continues with that proof, or after a timeout without it",
        ),
        ReasonEntry(
            Reason.OBJECT_NOT_READY,
            Severity.PROGRESS,
            "Its object exists and is not ready yet.",
            "check the controller that handles the object: use kubectl describe with the name in the message",
            closing="wait: it is being deleted",
        ),
        ReasonEntry(
            Reason.OBJECT_TERMINATING,
            Severity.PROGRESS,
            "Its object is being deleted. The message names its remaining finalizers.",
            "have that finalizer's controller remove it; the step then continues by itself",
        ),
        ReasonEntry(
            Reason.OUTPUTS_UNREADABLE,
            Severity.TROUBLE,
            "It has ended, but its outputs cannot be read or stored at the moment.",
            closing="wait: this is retried. " + _NODE_GONE,
        ),
        ReasonEntry(
            Reason.START_INTERRUPTED,
            Severity.TROUBLE,
            "Its claim is in the ledger, but the process that should have started it ended first.",
            closing="wait: another process takes over",
        ),
        ReasonEntry(
            Reason.STOPPED_BY_FAILURE, Severity.TROUBLE, "Another create step has failed, so it is not started."
        ),
        ReasonEntry(
            Reason.STOPPED_BY_UNKNOWN, Severity.TROUBLE, "The outcome of another create step is not known yet."
        ),
    ),
    Subject.HOLD: (
        ReasonEntry(Reason.BASELINE_MISSING, Severity.TROUBLE, "Its baseline workload does not exist."),
        ReasonEntry(Reason.NOT_ROUTED, Severity.TROUBLE, "No route here sends requests to it by their routing key."),
        ReasonEntry(
            Reason.PATH_IN_USE,
            Severity.TROUBLE,
            "A running step uses the same path, and this machine cannot isolate the two.",
        ),
        ReasonEntry(Reason.UNSUPPORTED_KIND, Severity.TROUBLE, "This host does not run units of that kind."),
        ReasonEntry(Reason.KIND_NOT_FORKED, Severity.TROUBLE, "Workloads of that kind cannot be forked here."),
        ReasonEntry(
            Reason.BAD_PATCH,
            Severity.TROUBLE,
            "The fork's patch is malformed, or does not fit its baseline.",
            _FIX_FORK,
        ),
        ReasonEntry(
            Reason.EXCEEDS_BASELINE, Severity.TROUBLE, "The fork would have more rights than its baseline.", _FIX_FORK
        ),
        ReasonEntry(
            Reason.CONTAINER_NOT_FOUND, Severity.TROUBLE, "A change names a container that the baseline does not have."
        ),
        ReasonEntry(
            Reason.FORK_WITHOUT_SERVICE, Severity.TROUBLE, "The address of a fork is needed, but no Service selects it."
        ),
        ReasonEntry(Reason.FORK_WITHOUT_PORT, Severity.TROUBLE, "The address of a fork is needed, but it has no port."),
        ReasonEntry(
            Reason.NAMESPACE_NOT_GRANTED, Severity.TROUBLE, "The namespace does not allow it.", _REQUEST_PERMISSION
        ),
        ReasonEntry(Reason.NAMESPACE_MISSING, Severity.TROUBLE, "The namespace does not exist."),
        ReasonEntry(
            Reason.OBJECTS_NOT_GRANTED,
            Severity.TROUBLE,
            "The account dayfly-objects of the namespace lacks a right that its object needs.",
            "ask the namespace's administrator to run the command at the end of the message; it then continues",
        ),
        ReasonEntry(Reason.KIND_REFUSED, Severity.TROUBLE, "Steps are not allowed to create objects of that kind."),
        ReasonEntry(
            Reason.FIELD_REFUSED,
            Severity.TROUBLE,
            "Steps are not allowed to set that field of an object: its effect reaches beyond the namespace.",
        ),
        ReasonEntry(
            Reason.KIND_NOT_SERVED,
            Severity.TROUBLE,
            "The cluster serves no objects of that kind.",
            "have its CustomResourceDefinition installed; the step then continues by itself",
            closing="have the cluster's administrator install the API in the message, or delete its "
            "CustomResourceDefinition for good; the cleanup then continues. " + _ABANDON,
        ),
        ReasonEntry(
            Reason.PLUGIN_NOT_GRANTED,
            Severity.TROUBLE,
            "A Secret, ConfigMap or volume claim that its pod reads does not exist, lacks a key, or does not "
            "name its plugin.",
            "have its owner add the annotation in the message; the step then continues by itself",
        ),
        ReasonEntry(
            Reason.NAME_CONFLICT, Severity.TROUBLE, "An object that Dayfly does not own has the same name. Delete it."
        ),
        ReasonEntry(
            Reason.POD_REFUSED, Severity.TROUBLE, "Its pod would have a setting that is forbidden for plugins."
        ),
        ReasonEntry(
            Reason.FIELD_INVALID,
            Severity.TROUBLE,
            "The API server refuses a field of its pod, or of the fork. The message names the field.",
            "correct that field in the plugin or the sandbox",
        ),
        ReasonEntry(
            Reason.POD_MODIFIED, Severity.TROUBLE, "Something in the cluster changed its pod before it was released."
        ),
        ReasonEntry(
            Reason.CLOCK_SKEW,
            Severity.TROUBLE,
            "Its pod is too old to start when it is created, because the clocks of the operator and the API "
            "server differ, and the `Date` header of its responses does not show that.",
            "have the clocks of the operator's and the API server's machines set; the step then continues by itself",
        ),
        ReasonEntry(
            Reason.INPUT_TOO_LARGE,
            Severity.TROUBLE,
            "An input is too large for an environment variable.",
            _READ_AS_FILE,
        ),
        ReasonEntry(
            Reason.INPUT_NOT_TEXT,
            Severity.TROUBLE,
            "An input has a zero byte, which an environment variable cannot hold.",
            _READ_AS_FILE,
        ),
        ReasonEntry(
            Reason.SCRIPT_TOO_LARGE,
            Severity.TROUBLE,
            "The script and plain inputs are too large for a pod's annotations.",
        ),
        ReasonEntry(Reason.NOT_PROGRESSING, Severity.TROUBLE, "The fork's Deployment makes no progress."),
        ReasonEntry(
            Reason.UNSCHEDULABLE,
            Severity.TROUBLE,
            "No node can take the pod. The message is the scheduler's.",
            closing="have the cluster's administrator free capacity or add a node that fits; the step then continues",
        ),
    ),
    Subject.IMAGE: (
        ReasonEntry(Reason.CREATING_CONTAINER, Severity.PROGRESS, "Its container is being created."),
        ReasonEntry(Reason.POD_INITIALIZING, Severity.PROGRESS, "Its pod's init containers are running."),
        ReasonEntry(Reason.PULLING, Severity.TROUBLE, "Pulling its image takes longer than usual.", NO_IMAGE_ADVICE),
        ReasonEntry(Reason.ERR_IMAGE_PULL, Severity.TROUBLE, "Its image could not be pulled.", NO_IMAGE_ADVICE),
        ReasonEntry(
            Reason.IMAGE_PULL_BACK_OFF,
            Severity.TROUBLE,
            "Its image could not be pulled. The pull is retried soon.",
            NO_IMAGE_ADVICE,
        ),
        ReasonEntry(
            Reason.ERR_IMAGE_NEVER_PULL,
            Severity.TROUBLE,
            "Its image is not on the node and may not be pulled.",
            NO_IMAGE_ADVICE,
        ),
        ReasonEntry(Reason.INVALID_IMAGE_NAME, Severity.TROUBLE, "Its image's name is not valid.", NO_IMAGE_ADVICE),
        ReasonEntry(Reason.IMAGE_INSPECT_ERROR, Severity.TROUBLE, "Its image is damaged on the node."),
        ReasonEntry(Reason.REGISTRY_UNAVAILABLE, Severity.TROUBLE, "The image's registry does not answer."),
        ReasonEntry(
            Reason.SIGNATURE_VALIDATION_FAILED, Severity.TROUBLE, "The image's signature could not be verified."
        ),
    ),
    Subject.RESULT: (
        ReasonEntry(Reason.EXIT_CODE, Severity.TROUBLE, "Its script or command ended with an exit code other than 0."),
        ReasonEntry(Reason.SIGNAL, Severity.TROUBLE, "Its script or command was killed by a signal."),
        ReasonEntry(Reason.OOM_KILLED, Severity.TROUBLE, "The kernel killed it because memory ran out."),
        ReasonEntry(
            Reason.EVICTED, Severity.TROUBLE, "The node evicted its pod: it filled the disk, or the node was short."
        ),
        ReasonEntry(
            Reason.RUN_DEADLINE, Severity.TROUBLE, "It ran longer than its limit: see its log, or raise `timeouts.run`."
        ),
        ReasonEntry(Reason.CANCELLED, Severity.TROUBLE, "It was asked to end."),
        ReasonEntry(
            Reason.NOT_EXECUTABLE,
            Severity.TROUBLE,
            "Its script or command could not be executed, so it did not run. Is the program, or the script's "
            "interpreter, in the image?",
        ),
        ReasonEntry(
            Reason.OUTPUT_MISSING, Severity.TROUBLE, "It succeeded but wrote no file at the path in `valueFromPath`."
        ),
        ReasonEntry(
            Reason.OUTPUT_TOO_LARGE, Severity.TROUBLE, "Its outputs are above the limit for a step, or for a sandbox."
        ),
        ReasonEntry(Reason.OUTPUT_REFUSED, Severity.TROUBLE, "An output is not a plain file."),
        ReasonEntry(Reason.OUTPUTS_LOST, Severity.TROUBLE, "Its outputs are lost or altered, or could not be stored."),
        ReasonEntry(
            Reason.STATE_REFUSED,
            Severity.TROUBLE,
            "A Terraform state that it wrote was not stored, so its delete steps may not know everything "
            "that it created.",
        ),
        ReasonEntry(
            Reason.STATE_MISSING,
            Severity.TROUBLE,
            "The plugin has `state: true`, but its create steps stored no Terraform state.",
        ),
        ReasonEntry(
            Reason.STATE_NOT_EMPTY,
            Severity.TROUBLE,
            "The delete steps succeeded, but the Terraform state still lists resources.",
            "{look}; let a delete step run `terraform destroy` with the backend that the create step used",
        ),
        ReasonEntry(
            Reason.STATE_NOT_READ,
            Severity.TROUBLE,
            "The delete steps succeeded, but none of them read the Terraform state.",
            "{look}; use the backend `http` in the module of a delete step, as in the create step's",
        ),
        ReasonEntry(Reason.OBJECT_FAILED, Severity.TROUBLE, "Its object matches its rule for failure (`failed`)."),
        ReasonEntry(Reason.OBJECT_DELETED, Severity.TROUBLE, "Its object was deleted before it was ready."),
        ReasonEntry(Reason.RESULT_LOST, Severity.TROUBLE, "It has ended, but its outcome was never reported."),
        ReasonEntry(Reason.NO_RECORD, Severity.TROUBLE, "Its node has no record of its container."),
        ReasonEntry(Reason.NODE_LOST, Severity.TROUBLE, "Its node is lost."),
        ReasonEntry(
            Reason.NODE_NOT_REPORTING,
            Severity.TROUBLE,
            "Its deadline passed long ago, but its node has not reported its end.",
        ),
        ReasonEntry(Reason.POD_DELETED, Severity.TROUBLE, "Its pod was removed, and with it the proof of its outcome."),
        ReasonEntry(Reason.POD_ENDED, Severity.TROUBLE, "Its pod has ended, but its container's outcome is not known."),
        ReasonEntry(Reason.MACHINE_RESTARTED, Severity.TROUBLE, "The machine was restarted while it ran."),
        ReasonEntry(Reason.FOLDER_LOST, Severity.TROUBLE, "Its folder was removed while it may have been running."),
        ReasonEntry(
            Reason.REPLACED,
            Severity.TROUBLE,
            "A newer version of the fork replaces it, or the fork was removed from the spec.",
        ),
    ),
    Subject.WEBHOOK: (
        ReasonEntry(
            Reason.NOT_SENT,
            Severity.TROUBLE,
            "Its host was not found, or the connection or TLS handshake failed. Nothing was sent.",
        ),
        ReasonEntry(
            Reason.ADDRESS_REFUSED,
            Severity.TROUBLE,
            "Its address is not public, or the request would be sent unencrypted.",
            "use a public https:// address, or have the administrator allow that server: `--allow-webhook HOST:PORT`",
        ),
        ReasonEntry(
            Reason.RESPONSE_LOST,
            Severity.TROUBLE,
            "It was sent, but its outcome is not known. It is cleaned up, or sent again with the same "
            "idempotency key if that is allowed.",
        ),
        ReasonEntry(Reason.UNEXPECTED_STATUS, Severity.TROUBLE, "The server's status code does not mean success."),
        ReasonEntry(
            Reason.REDIRECTED, Severity.TROUBLE, "The server sent a redirect. Dayfly does not follow redirects."
        ),
        ReasonEntry(Reason.RESPONSE_TOO_LARGE, Severity.TROUBLE, "The response is larger than 1 MiB."),
        ReasonEntry(
            Reason.RESPONSE_NOT_JSON,
            Severity.TROUBLE,
            "The response is not JSON, but an output or `poll` reads a value from it.",
        ),
        ReasonEntry(Reason.RESPONSE_TRUNCATED, Severity.TROUBLE, "The response ended too early."),
        ReasonEntry(Reason.RESPONSE_TIMEOUT, Severity.TROUBLE, "The response began, but did not finish in time."),
        ReasonEntry(
            Reason.RESPONSE_INVALID, Severity.TROUBLE, "The response lacks a value that an output or `poll` reads."
        ),
        ReasonEntry(Reason.JOB_FAILED, Severity.TROUBLE, "The job that it started has failed."),
        ReasonEntry(Reason.JOB_UNFINISHED, Severity.TROUBLE, "The job did not finish within `timeouts.run`."),
        ReasonEntry(
            Reason.INPUT_INVALID, Severity.TROUBLE, "An input's value cannot be used at its place in the request."
        ),
    ),
    Subject.VOID: (
        ReasonEntry(
            Reason.START_DEADLINE, Severity.TROUBLE, "It did not start in time (`timeouts.schedule`, `timeouts.pull`)."
        ),
        ReasonEntry(
            Reason.CANNOT_START, Severity.TROUBLE, "It could not be started. The message has the cause. It is retried."
        ),
        ReasonEntry(Reason.CANNOT_PREPARE, Severity.TROUBLE, "The runner could not prepare the step's environment."),
        ReasonEntry(
            Reason.NEVER_RAN, Severity.TROUBLE, "It was stopped before it started. It is retried where that is safe."
        ),
    ),
    Subject.END: (
        ReasonEntry(
            Reason.DELETED, Severity.TROUBLE, "It was deleted: the sandbox, a step's pod, or a fork's workload."
        ),
        ReasonEntry(
            Reason.HOOK_REMOVED, Severity.PROGRESS, "Its hook was removed, so the work of the hook's steps is undone."
        ),
        ReasonEntry(
            Reason.EXPIRED, Severity.PROGRESS, "Its time to live has ended. Apply it again with a longer `ttl`."
        ),
        ReasonEntry(Reason.RELEASED, Severity.PROGRESS, "The sandbox that used this pool member has released it."),
        ReasonEntry(Reason.LEASE_EXPIRED, Severity.PROGRESS, "The process or the agent that used it has ended."),
        ReasonEntry(
            Reason.PARENT_FAILED, Severity.PROGRESS, "A create step of this shared parent has failed, so it closes."
        ),
        ReasonEntry(Reason.UNUSED, Severity.PROGRESS, "No sandbox has used this shared parent for its `linger` time."),
    ),
    Subject.OBJECT: (
        ReasonEntry(Reason.ACCEPTED, Severity.PROGRESS, "Sandboxes can use the plugin."),
        ReasonEntry(Reason.RESOURCE_READY, Severity.PROGRESS, "All create steps of the resource have succeeded."),
        ReasonEntry(
            Reason.LEFTOVERS_POSSIBLE,
            Severity.WARNING,
            "Its create steps ran and its cleanup was abandoned, so objects that they created may still exist.",
            "check whether these still exist, and remove them by hand",
        ),
        ReasonEntry(Reason.HOOK_ACTIVE, Severity.PROGRESS, "The hook's steps run for each object that it selects."),
        ReasonEntry(
            Reason.TARGETS_NOT_GRANTED,
            Severity.WARNING,
            "The operator may not read and hold objects of the kind that the hook selects, so the hook has no effect.",
            "ask the cluster's administrator to run the command at the end of the message; it then continues",
        ),
        ReasonEntry(
            Reason.CLUSTER_NOT_REPORTING,
            Severity.TROUBLE,
            "The cluster's agent has not reported to the server. It continues the work that it has received.",
            "check that the operator is running there and can reach this server",
        ),
    ),
    Subject.GROUP: (
        ReasonEntry(
            Reason.NO_MATCHED_SANDBOXES,
            Severity.PROGRESS,
            "It is ready, and no live sandbox matches its labels.",
        ),
        ReasonEntry(
            Reason.FORK_CONFLICT,
            Severity.TROUBLE,
            "Several of its sandboxes fork the same baseline. The oldest sandbox's fork answers (the "
            "condition `ForkConflict`).",
            "narrow the group's match, or delete the sandbox that you do not need",
        ),
        ReasonEntry(Reason.NO_FORK_CONFLICT, Severity.PROGRESS, "No two of its sandboxes fork the same baseline."),
    ),
    Subject.POOL: (
        ReasonEntry(Reason.POOL_FULL, Severity.PROGRESS, "It has as many ready members as it should."),
        ReasonEntry(Reason.FILLING, Severity.PROGRESS, "Members are being created."),
        ReasonEntry(Reason.PAUSED, Severity.PROGRESS, "A person has paused it. It creates no members until `resume`."),
        ReasonEntry(
            Reason.FAILING,
            Severity.FAILED,
            "Several members failed in a row. It creates no members until `resume`, a new spec or a new version.",
            "read the logs of the last failed member, fix the plugin or the pool's params, then `dayfly pool resume`",
        ),
        ReasonEntry(
            Reason.DRAINED,
            Severity.PROGRESS,
            "A person has drained it. Unused members close, and none is created until `resume` or a new spec.",
        ),
        ReasonEntry(Reason.SURPLUS, Severity.PROGRESS, "The pool was larger than it should be."),
        ReasonEntry(Reason.OUTDATED, Severity.PROGRESS, "A newer member of the pool has replaced it."),
        ReasonEntry(Reason.MEMBER_FAILED, Severity.TROUBLE, "One of its create steps failed."),
        ReasonEntry(Reason.WITHDRAWN, Severity.PROGRESS, "The pool no longer has the member in its ledger."),
    ),
    Subject.LEAK_CHECK: (
        ReasonEntry(Reason.LISTING, Severity.PROGRESS, "Its first list is being made."),
        ReasonEntry(Reason.NO_LEAKS, Severity.PROGRESS, "Its latest list has neither orphans nor missing resources."),
        ReasonEntry(
            Reason.LEAKS_FOUND,
            Severity.WARNING,
            "Its latest list has orphans, or lacks resources of open runs.",
            "look at `status.findings`, and delete the orphans",
        ),
        ReasonEntry(Reason.LEAKS_DELETED, Severity.PROGRESS, "A sweep has deleted orphans."),
        ReasonEntry(
            Reason.LIST_FAILED,
            Severity.WARNING,
            "Its inventory steps have failed, or their list is incomplete. Nothing is deleted.",
            "fix the inventory steps or their credentials; the next sweep lists again",
        ),
    ),
}

CATALOGUE: Final[dict[str, ReasonEntry]] = {entry.reason: entry for rows in _ROWS.values() for entry in rows}
SECTIONS: Final = {of: tuple(entry.reason for entry in rows) for of, rows in _ROWS.items()}
NO_IMAGE: Final = frozenset(SECTIONS[Subject.IMAGE]) - {
    Reason.CREATING_CONTAINER,
    Reason.POD_INITIALIZING,
    Reason.PULLING,
}
"""Reasons of a kubelet for a container whose image it cannot get. It may report several of them in turn."""


NEEDS_ACTION: Final = (
    NO_IMAGE
    | (frozenset(SECTIONS[Subject.HOLD]) - {Reason.PATH_IN_USE})
    | {Reason.ROUTE_NOT_ACCEPTED, Reason.PLUGIN_MISSING, Reason.PARTLY_APPLIED, Reason.BLOCKED}
)
"""Reasons of a waiting unit that time alone does not resolve: it was refused, or needs a person's action."""


def severity(reason: str) -> Severity:
    """Return the severity of a reason. A reason outside the catalogue is Kubernetes' word for an obstacle."""
    if not reason:
        return Severity.PROGRESS
    entry = CATALOGUE.get(reason)
    return entry.severity if entry else Severity.TROUBLE


def blocks_ending(reason: str) -> bool:
    """Return whether the reason keeps a running unit from ending until a person or another controller acts."""
    return bool(reason) and (reason in NEEDS_ACTION or reason == Reason.OBJECT_TERMINATING or reason not in CATALOGUE)


def advice(reason: str, *, closing: bool = False) -> str:
    """Return the advice for a reason, as a template (see `ReasonEntry`).

    The result is empty if no action is needed or the message contains the advice. During cleanup (`closing`) every
    reason has advice.
    """
    entry = CATALOGUE.get(reason)
    if not closing:
        return entry.advice if entry else ""
    if entry is None:
        return _FIX_CAUSE if reason else _WAIT_FOR_CONDITION
    if entry.closing or entry.advice not in ("", _FIX_FORK, _READ_AS_FILE, _STEP_FAILED):
        return entry.closing or (NO_IMAGE_CLOSING_ADVICE if entry.advice == NO_IMAGE_ADVICE else entry.advice)
    return _WAIT_FOR_CONDITION if entry.severity is Severity.PROGRESS else _FIX_CAUSE
