"""The sentences in conditions, Events, logs, command output and the page.

The reason, one constant word for machines, is in `plan.reasons`; the sentence has the details. A sentence with clocks
is a `ClockedText`: its clocks are filled in last, as durations for display or as timestamps for storage.
"""

import functools
import re
from collections.abc import Iterable

import msgspec

from dayfly.spec.report import with_reason
from dayfly.spec.run import EndRequest, Run, UnitRecord


class ClockedText(msgspec.Struct, frozen=True, gc=False):
    """A sentence with clocks: a template with `{since}` and `{until}`, in which other braces are doubled.

    The times are in the structure that has the sentence (`Wait`, `UnitReport`). The component that displays it fills
    them in, once.
    """

    template: str


Text = str | ClockedText
_SLOT = re.compile(r"\{\{|\}\}|\{since\}|\{until\}")


def template_of(text: Text) -> str:
    """Return the template of a sentence with clocks, or an empty string for any other sentence."""
    return text.template if isinstance(text, ClockedText) else ""


def render(text: Text, since: int, until: int, now: int) -> str:
    """Return the sentence as of `now`, with clocks as durations. All times are unix milliseconds."""
    if isinstance(text, str):
        return text
    return fill_clocks(text.template, f"for {format_duration(now - since)}", f"in {format_duration(until - now)}")


def fill_clocks(template_of: str, since: str, until: str) -> str:
    """Return the sentence of a template, with these texts for its two clocks.

    The template may come from a status that others can write, so no other fields are filled in.
    """
    slots = {"{since}": since, "{until}": until, "{{": "{", "}}": "}"}
    return _SLOT.sub(lambda found: slots[found[0]], template_of)


def _escape(text: str) -> str:
    """Escape text from elsewhere for a template."""
    return text.replace("{", "{{").replace("}", "}}")


def with_remark(text: Text, remark: str) -> Text:
    """Append a remark to the sentence, if there is one."""
    if not remark:
        return text
    if isinstance(text, ClockedText):
        return ClockedText(f"{text.template}; {_escape(remark)}")
    return "; ".join(filter(None, (text, remark)))


def format_duration(milliseconds: int) -> str:
    """Return a duration in its two largest units: `350 ms`, `4 s`, `3 min 20 s`, `2 h 5 min`."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)} ms"
    seconds = milliseconds // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number)


def unsupported(what: tuple[str, ...]) -> str:
    """Return the sentence for parts of a spec that this host does not support."""
    return f"Not supported here: {join_names(what, most=8)}."


def by_author(who: str) -> str:
    """Return ` by WHO`, or an empty string if the author is not known."""
    return f" by {who}" if who else ""


def abandoned_too_early(annotation: str, kind: str) -> str:
    """Return the sentence for an abandon request whose object is not being deleted."""
    return (
        f"the annotation {annotation} on a {kind} that is not being deleted (delete the {kind} first, or write "
        f"`{annotation}=force: REASON` to leave everything behind)"
    )


def no_matched_sandboxes() -> str:
    """Return the sentence for a route group without sandboxes."""
    return "No live sandbox matches."


def matched_sandboxes(found: tuple[str, ...], waiting: tuple[str, ...]) -> str:
    """Return the sentence for the sandboxes of a route group. `waiting` are the sandboxes that are not ready."""
    said = f"{len(found)} sandbox{'es match' if len(found) > 1 else ' matches'}: {join_names(found, most=8)}"
    return f"{said}; not ready: {join_names(waiting, most=8)}." if waiting else f"{said}."


def conflicts(found: Iterable[tuple[str, str, tuple[str, ...]]], more: int) -> str:
    """Return the sentence for baselines that several sandboxes of a route group fork; empty for none.

    Each item is the baseline, the sandbox whose fork answers, and the other sandboxes. `more` counts the items left
    out.
    """
    said = [
        f"{baseline} is forked by several sandboxes: {first} takes precedence over {join_names(rest)}"
        for baseline, first, rest in found
    ]
    if more:
        said.append(f"and so are {more} more")
    return f"{'; '.join(said)}." if said else ""


def expires_soon(until: str) -> str:
    """Return the warning before a sandbox or route group expires."""
    return f"Its time to live ends at {until}; extend it if you still need it."


@functools.lru_cache(maxsize=1024)
def join_names(units: tuple[str, ...], most: int = 4) -> str:
    """Return `a, b and c`. Names beyond the first `most` are counted."""
    shown = list(units[:most])
    if len(units) > most:
        shown.append(f"{len(units) - most} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1] if shown else "nothing"


def waits_for_input(units: tuple[str, ...]) -> str:
    return f"needs an output of {join_names(units)}"


def waits_for_earlier(units: tuple[str, ...]) -> str:
    return f"starts after {join_names(units)}"


def waits_for_readers(resources: tuple[str, ...]) -> str:
    return f"is read by {join_names(resources)}, which must be cleaned up first"


def waits_for_holders(run: Run) -> str:
    names = tuple(f"{each.target.kind} {each.name_in(run.target.namespace)}" for each in run.holders)
    return f"ends once {join_names(names)} no longer {'uses' if len(names) == 1 else 'use'} it"


def parent_failed(steps: tuple[str, ...]) -> str:
    return f"{join_names(steps)} failed, so no sandbox can use it"


def parent_unused(linger_ms: int) -> str:
    return f"no sandbox has used it for {format_duration(linger_ms)}" if linger_ms else "no sandbox uses it"


def waits_for_parent(plugin: str, states: tuple[str, ...]) -> str:
    return f"waits for the shared parent {plugin}: {join_names(states)}"


def waits_for_forks(forks: tuple[str, ...]) -> str:
    return f"starts once {join_names(forks)} answer{'s' if len(forks) == 1 else ''}"


def waits_for_later(kept: tuple[str, ...]) -> str:
    return f"is removed once {join_names(kept)} {'is' if len(kept) == 1 else 'are'} gone"


def waits_for_start(message: str) -> str:
    return "starts once its target has started" + (f": {message}" if message else "")


def waits_for_stop(message: str) -> str:
    return "starts once its target has stopped" + (f": {message}" if message else "")


def not_deleted(kind: str) -> str:
    return f"the {kind or 'object'} has not been deleted"


def remaining_finalizers(finalizers: tuple[str, ...]) -> str:
    return f"finalizer{'s' * (len(finalizers) > 1)} remaining: {', '.join(finalizers)}"


def hook_removed(hook: str) -> str:
    return f"the hook {hook} was removed"


def waits_for_field(query: str, kind: str, *, found: int) -> str:
    there = "there is no value at" if not found else f"there are {found} values at"
    return f"needs one value of the {kind}: {there} {query}"


def kind_not_served(kind: str, api_version: str) -> str:
    return f"this cluster serves no {kind} of {api_version}: have its definition installed"


def kind_lost(kind: str, api_version: str, definition: str, *, proves: bool) -> str:
    """Return the sentence for a kind that the cluster no longer serves.

    `definition` is empty if it is not known. `proves` states that its absence proves that all objects of the kind are
    gone.
    """
    end = "; if that definition is deleted, the step ends by itself" if proves else ""
    what = f"have the definition {definition} serve it" if definition else f"have the API {api_version} served"
    return (
        f"the cluster no longer serves {kind} of {api_version}, so it is not known whether the object "
        f"still exists, and no action is taken: {what} again{end}"
    )


def unsupported_kind(kind: str, kinds: tuple[str, ...]) -> str:
    return f"this host runs units of kind {join_names(kinds, most=len(kinds))}, not {kind}"


def secrets_not_available(secrets: tuple[str, ...]) -> str:
    """Return why a host cannot get the values of secret parameters; empty if there are none."""
    if not secrets:
        return ""
    what, it = ("are secrets", "them") if len(secrets) > 1 else ("is a secret", "it")
    return (
        f"{join_names(secrets, most=len(secrets))} {what}, and --secrets-file can set {it} only on a "
        f"developer's own machine; here let another resource create {it} (valueFrom.resource)"
    )


def waits_for_slot() -> str:
    return "waits for a free slot: the host already runs as many steps as its limit allows"


def waits_for_namespace_slot(namespace: str, bound: int, *, is_cleanup: bool) -> str:
    what = "cleanup steps" if is_cleanup else "steps"
    return f"waits for a free slot: sandboxes of namespace {namespace} may run at most {bound} {what} at once"


def waits_for_images(namespace: str, count: int) -> str:
    return (
        f"waits for a free slot: {count} steps of namespace {namespace} are waiting for their images, and "
        "no more steps are started there until some images are pulled"
    )


def waits_to_retry(record: UnitRecord) -> ClockedText:
    tried = f"attempt {record.attempt} {'failed' if record.state == 'done' else 'never ran'}"
    why = _escape(with_reason(record.reason or "failed", record.message or "no detail"))
    return ClockedText(f"{tried} ({why}); tries again {{until}}")


def running(attempt: int) -> ClockedText:
    return ClockedText(f"attempt {attempt} has been running {{since}}")


def not_answering() -> ClockedText:
    return ClockedText("has been running {since} and does not answer yet")


def draining() -> str:
    return "its routes are gone; requests that came through them are still being answered"


def kept_by_address(route: str) -> str:
    """Return why a fork is kept although it is no longer in the spec."""
    return f"its fork stays while HTTPRoute {route}, an endpoint's address, routes requests to it"


def address_removed() -> str:
    return "no address routes to its fork any longer; the Gateway's proxies are being updated"


def route_written(kind: str, beside: str) -> str:
    return f"a route next to {kind} {beside} is being written"


def no_data_plane() -> str:
    """Return the unsupported part of a sandbox with forks, in a cluster that cannot route requests to them."""
    return (
        "its routing key (neither the Gateway API nor Istio routes requests here, so requests with the "
        "key reach the baselines)"
    )


def waits_for_istio() -> str:
    """Return the wait for Istio's proxies, which do not report when they have received a route."""
    return "waits a moment for Istio's proxies, which do not report when they have received its rules"


def waits_for_gateways() -> str:
    return "its Gateways have accepted its routes and are updating their proxies"


def routes_left_out(count: int) -> str:
    """Return the remark for a baseline with more routes than Dayfly supports."""
    return _above_limit("route", count)


def services_left_out(count: int) -> str:
    """Return the remark for a baseline with more Services than Dayfly supports."""
    return _above_limit("Service", count)


def _above_limit(kind: str, count: int) -> str:
    above = f"1 {kind} of the baseline is" if count == 1 else f"{count} {kind}s of the baseline are"
    return f"{above} above the limit; the newest are ignored, and their requests reach only the baseline"


def route_being_removed() -> str:
    return "an obsolete route is being removed"


def starting(attempt: int, message: str) -> str:
    return f"attempt {attempt} is starting" + (f": {message}" if message else "")


def preparing(attempt: int) -> str:
    return f"attempt {attempt} is being prepared"


def never_permitted(attempt: int) -> str:
    return f"attempt {attempt} was removed before it was allowed to start; another attempt follows"


def name_conflict(attempt: int) -> str:
    return (
        f"an object or process that Dayfly did not permit has the name of attempt {attempt} and has run; "
        "remove it to continue"
    )


def foreign_object(kind: str, namespace: str, name: str) -> str:
    """Return the sentence for an object that has the name of one of Dayfly's and another owner."""
    return f"{kind} {namespace}/{name} exists and does not belong to Dayfly; delete it"


def processes_ending(attempt: int) -> str:
    return f"the outcome of attempt {attempt} is known; its processes are still ending"


def outputs_unreadable(attempt: int, message: str) -> str:
    return f"attempt {attempt} has ended; its outputs cannot be read or stored at the moment: {message}"


def not_reported(attempt: int) -> str:
    return f"attempt {attempt} was released; its host has not reported on it yet"


def outcome_unknown(record: UnitRecord, message: str) -> ClockedText:
    return ClockedText(
        f"attempt {record.attempt} may have run, and its outcome is not known ({_escape(message)}); it ends {{until}} "
        "or earlier, and cleanup continues then. No other attempt is started until then"
    )


def stopped_by_failure(units: tuple[str, ...]) -> str:
    return f"is not started because {join_names(units)} failed; delete the sandbox to clean up"


def also_fails(units: tuple[str, ...]) -> str:
    return f"{join_names(units)} would fail in the same way: fix the plugin for both"


def stopped_by_unknown(units: tuple[str, ...]) -> str:
    return f"is not started while the outcome of {join_names(units)} is unknown"


def start_deadline(limit_ms: int, *, is_scheduled: bool) -> str:
    if is_scheduled:
        return f"was scheduled but did not start within {format_duration(limit_ms)}"
    return f"was not scheduled within {format_duration(limit_ms)}"


def out_of_memory(how: str, limit: str | None) -> str:
    """Return the message for a step that the kernel killed because memory ran out.

    `limit` is a Kubernetes quantity; empty if the container has none, None if that is not known.
    """
    field = "resources.limits.memory of container main in the plugin's podTemplateOverlay"
    if limit == "":
        no_limit = f"it has no limit; set one in {field}"
        return f"needed more memory than its node had left ({how}); {no_limit}"
    return f"needed more memory than its limit{f' of {limit}' if limit else ''} ({how}); raise {field}"


def evicted(message: str, how: str) -> str:
    """Return the message for an evicted pod. `message` is the kubelet's, `how` describes how the step then ended."""
    said = message.strip().rstrip(".") or "without a message"
    # Kubernetes, pkg/kubelet/eviction/eviction_manager.go: the messages of its limits on local storage.
    if "exceed" in said and ("ephemeral" in said or "EmptyDir" in said):
        field = "resources.limits.ephemeral-storage of container main in the plugin's podTemplateOverlay"
        said += f"; write less to its disk, or raise {field}"
    return f"its node evicted its pod: {said} ({how})"


def killed_processes(processes: int) -> str:
    """Return how a script that was not killed itself ran out of memory."""
    return f"the kernel killed {processes} of its processes"


def no_record() -> str:
    return "its node has no record of its container, so it is not known whether it began"


def with_last_report(message: str, note: str) -> str:
    return f"{message}; last report: {note}"


def recalled(attempt: int, message: str, wait_ms: int) -> str:
    lack = f"attempt {attempt} cannot start{f' ({message})' if message else ''}"
    return (
        f"{lack}, so the runner, in another container of its pod, was asked to confirm that it never "
        f"began; without an answer within {format_duration(wait_ms)} it is ended and cleaned up as if it had begun"
    )


def never_began() -> str:
    return "was recalled before it began"


def clock_skew(servers: str, ours: str) -> str:
    """Return the message for a pod that is too old when it is created. Both arguments are timestamps."""
    return (
        f"its pod is too old to start: the API server's clock says that it was created at {servers}, but "
        f"the operator's clock said {ours}; set the clocks of both machines, and the step continues by "
        "itself"
    )


def pulling(image: str, since: str) -> str:
    """Return the message for a slow pull. `since` is a timestamp, not a clock, so the sentence changes rarely."""
    return f"has been pulling the image {image} since {since}"


def run_deadline(limit_ms: int) -> str:
    return f"ran longer than its limit of {format_duration(limit_ms)}"


def cancelled(request: EndRequest | None) -> str:
    return f"asked to end: {request.message or request.reason}" if request else "asked to end"


def replaced() -> str:
    return "its spec or its baseline has changed"


def removed() -> str:
    return "is no longer wanted"


def stalled() -> str:
    return "was allowed to start, but the process that should have started it ended first"


def result_lost(message: str) -> str:
    return f"its outcome was never reported ({message}); its deadline has passed, so it has ended"


def blocked(problem: str) -> str:
    return f"cannot continue and is retried: {problem}"


def ttl_expired() -> str:
    return "its time to live has ended"


def lease_expired() -> str:
    return "its lease was not renewed: the process that used it has ended"
