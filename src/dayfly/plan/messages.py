"""Every sentence that people read: in conditions, events, logs, the command line and the page alike.

Its reason, one constant word, is in `plan.reasons`; the sentence carries the numbers. A sentence with a clock is a
`Clocked` template: its clocks are filled in last, as spans for whoever reads it now, or as moments where it is kept.
"""

import functools
import re
from collections.abc import Iterable

import msgspec

from dayfly.spec.report import with_reason
from dayfly.spec.run import EndRequest, UnitRecord


class Clocked(msgspec.Struct, frozen=True, gc=False):
    """A sentence with clocks, `{since}` and `{until}` in `template` stand for them; other braces are doubled.

    The times are those of whoever says it (`Wait`, `UnitReport`). Whoever shows it fills them in, last and once.
    """

    template: str


Text = str | Clocked
_SLOT = re.compile(r"\{\{|\}\}|\{since\}|\{until\}")


def template(text: Text) -> str:
    """Its template; empty for a sentence without clocks."""
    return text.template if isinstance(text, Clocked) else ""


def spoken(text: Text, since: int, until: int, now: int) -> str:
    """The sentence for whoever hears it `now`: clocks are spans. All in unix milliseconds."""
    if isinstance(text, str):
        return text
    return filled(text.template, f"for {span(now - since)}", f"in {span(until - now)}")


def filled(template: str, since: str, until: str) -> str:
    """A template's sentence. It may come from somebody's status, so it has these two slots and no others."""
    slots = {"{since}": since, "{until}": until, "{{": "{", "}}": "}"}
    return _SLOT.sub(lambda found: slots[found[0]], template)


def _plain(text: str) -> str:
    """Somebody else's words, safe in a template."""
    return text.replace("{", "{{").replace("}", "}}")


def remarked(text: Text, remark: str) -> Text:
    """The sentence with another one behind it, if there is one."""
    if not remark:
        return text
    if isinstance(text, Clocked):
        return Clocked(f"{text.template}; {_plain(remark)}")
    return "; ".join(filter(None, (text, remark)))


def span(milliseconds: int) -> str:
    """`350 ms`, `4 s`, `3 min 20 s`, `2 h 5 min`: the two largest units, no more."""
    if milliseconds < 1000:
        return f"{max(milliseconds, 0)} ms"
    seconds = milliseconds // 1000
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    while parts[0][0] == 0:
        parts.pop(0)
    return " ".join(f"{number} {unit}" for number, unit in parts[:2] if number)


def unsupported(what: tuple[str, ...]) -> str:
    """Of wishes that nobody carries out."""
    return f"Not supported here: {names(what, most=8)}."


def by_whom(who: str) -> str:
    """Return ` by WHO`, or nothing where the author is not known."""
    return f" by {who}" if who else ""


def abandoned_too_early(annotation: str, kind: str) -> str:
    """Return the sentence for a request to give up a cleanup that has not begun."""
    return (
        f"the annotation {annotation} on a {kind} that is not being deleted (delete the {kind} first, or write "
        f"`{annotation}=force: REASON` to leave everything behind)"
    )


def no_members() -> str:
    """Of a route group."""
    return "No living sandbox matches."


def members(found: tuple[str, ...], waiting: tuple[str, ...]) -> str:
    """Of a route group that has some; `waiting` are those that are not ready."""
    said = f"{len(found)} sandbox{'es match' if len(found) > 1 else ' matches'}: {names(found, most=8)}"
    return f"{said}; not ready: {names(waiting, most=8)}." if waiting else f"{said}."


def conflicts(found: Iterable[tuple[str, str, tuple[str, ...]]], more: int) -> str:
    """Of the baselines (with whose fork is meant, and whose are not) that several sandboxes of a group fork."""
    said = [f"{baseline} is forked by several: {first} goes before {names(rest)}" for baseline, first, rest in found]
    if more:
        said.append(f"and so are {more} more")
    return f"{'; '.join(said)}." if said else ""


def expires_soon(until: str) -> str:
    """Of a life that ends then."""
    return f"Its time to live ends at {until}; extend it if you still need it."


@functools.lru_cache(maxsize=1024)
def names(units: tuple[str, ...], most: int = 4) -> str:
    """`a, b and c`, with the tail counted where there are many."""
    shown = list(units[:most])
    if len(units) > most:
        shown.append(f"{len(units) - most} more")
    return shown[0] if len(shown) == 1 else ", ".join(shown[:-1]) + " and " + shown[-1] if shown else "nothing"


def waits_for_input(units: tuple[str, ...]) -> str:
    return f"needs an output of {names(units)}"


def waits_for_earlier(units: tuple[str, ...]) -> str:
    return f"starts once {names(units)} {'is' if len(units) == 1 else 'are'} done"


def waits_for_readers(resources: tuple[str, ...]) -> str:
    return f"is read by {names(resources)}, which must be cleaned up first"


def waits_for_forks(forks: tuple[str, ...]) -> str:
    return f"starts once {names(forks)} answer{'s' if len(forks) == 1 else ''}"


def waits_for_later(kept: tuple[str, ...]) -> str:
    return f"is removed once {names(kept)} {'is' if len(kept) == 1 else 'are'} gone"


def waits_for_start(message: str) -> str:
    return "starts once its target has started" + (f": {message}" if message else "")


def waits_for_stop(message: str) -> str:
    return "starts once its target has stopped" + (f": {message}" if message else "")


def not_deleted(kind: str) -> str:
    return f"nobody has deleted the {kind or 'object'}"


def held_by_others(finalizers: tuple[str, ...]) -> str:
    return f"it is still held by the finalizer{'s' * (len(finalizers) > 1)} {', '.join(finalizers)}"


def hook_removed(hook: str) -> str:
    return f"the hook {hook} is removed"


def waits_for_field(query: str, kind: str, *, found: int) -> str:
    there = "there is nothing at" if not found else f"{found} values are found by"
    return f"needs one value of the {kind}: {there} {query}"


def kind_not_served(kind: str, api_version: str) -> str:
    return f"this cluster serves no {kind} of {api_version}: have its definition installed"


def kind_lost(kind: str, api_version: str, definition: str, *, proves: bool) -> str:
    """`definition` may be unknown (empty). `proves`: its absence proves that all objects of the kind are gone."""
    end = "; once that definition is deleted this ends by itself" if proves else ""
    what = f"have the definition {definition} serve it" if definition else f"have the API {api_version} served"
    return (
        f"the cluster serves no {kind} of {api_version} any more, so it is not known whether the object still exists, "
        f"and nothing is done: {what} again{end}"
    )


def unsupported_kind(kind: str, kinds: tuple[str, ...]) -> str:
    return f"this host runs units of kind {names(kinds, most=len(kinds))}, not {kind}"


def no_secrets(secrets: tuple[str, ...]) -> str:
    """Why a host cannot be given what stands in no document; empty if nothing is wanted."""
    if not secrets:
        return ""
    what, it = ("are secrets", "them") if len(secrets) > 1 else ("is a secret", "it")
    return (
        f"{names(secrets, most=len(secrets))} {what}, and --secrets-file gives {it} on a developer's own "
        f"machine alone; here let another resource make {it} (valueFrom.resource)"
    )


def waits_for_slot() -> str:
    return "waits for a free slot: the host is already running as many steps as it may"


def waits_for_place(namespace: str, bound: int, *, cleaning: bool) -> str:
    what = "steps that clean up" if cleaning else "steps"
    return f"waits for a free place: sandboxes of namespace {namespace} may run at most {bound} {what} at once"


def waits_for_images(namespace: str, count: int) -> str:
    return (
        f"waits for a free place: {count} steps of namespace {namespace} are waiting for their images, "
        "and no more are started there until some have theirs"
    )


def waits_to_retry(record: UnitRecord) -> Clocked:
    tried = f"attempt {record.attempt} {'failed' if record.state == 'done' else 'never ran'}"
    why = _plain(with_reason(record.reason or "failed", record.message or "no detail"))
    return Clocked(f"{tried} ({why}); tries again {{until}}")


def running(attempt: int) -> Clocked:
    return Clocked(f"attempt {attempt} has been running {{since}}")


def not_answering() -> Clocked:
    return Clocked("has been running {since} and does not answer yet")


def draining() -> str:
    return "its routes are gone; the last requests that came through them are being answered"


def address_leads(route: str) -> str:
    """Of a fork that is to end."""
    return f"its fork stays while HTTPRoute {route}, an endpoint's address, leads requests to it"


def address_left() -> str:
    return "no address leads to its fork any more, and the Gateway's proxies are being told"


def route_written(kind: str, beside: str) -> str:
    return f"a route beside {kind} {beside} is being written"


def no_data_plane() -> str:
    """Of a sandbox with forks in a cluster that cannot lead requests to them."""
    return "its routing key (neither the Gateway API nor Istio leads requests here: those with it reach the baselines)"


def route_settling_silently() -> str:
    """A route has been written, and nobody tells who goes by it."""
    return "waits a moment for Istio's proxies: they do not tell when they know its rules"


def route_settling() -> str:
    return "its Gateways have accepted its routes and are telling their proxies"


def routes_left_out(count: int) -> str:
    """More routes lead to a baseline than ours are made beside."""
    more = "1 more route leads" if count == 1 else f"{count} more routes lead"
    return f"{more} to the baseline than are followed, the newest: requests by them reach that one alone"


def services_left_out(count: int) -> str:
    """More Services lead to a baseline than have one of ours for a fork."""
    more = "1 more Service leads" if count == 1 else f"{count} more Services lead"
    return f"{more} to the baseline than are followed, the newest: requests to them reach that one alone"


def route_leaving() -> str:
    return "a route that is no longer wanted is being removed"


def starting(attempt: int, message: str) -> str:
    return f"attempt {attempt} is starting" + (f": {message}" if message else "")


def preparing(attempt: int) -> str:
    return f"attempt {attempt} is being prepared"


def void(attempt: int) -> str:
    return f"attempt {attempt} was removed before it was allowed to start; a new one is being made"


def foreign(attempt: int) -> str:
    return f"something else has the name of attempt {attempt} and has run without permission; remove it to continue"


def ending(attempt: int) -> str:
    return f"the result of attempt {attempt} is known; its processes are still ending"


def unread(attempt: int, message: str) -> str:
    return f"attempt {attempt} has ended; its outputs are in its log, which cannot be read at the moment: {message}"


def no_news(attempt: int) -> str:
    return f"attempt {attempt} was released; nothing has been heard of it yet"


def unknown(record: UnitRecord, message: str) -> Clocked:
    return Clocked(
        f"attempt {record.attempt} may have run and its outcome is not known ({_plain(message)}); "
        "it is certain to have ended {until}, and then cleanup can go on. Nothing is started again in the meantime"
    )


def stopped_by_failure(units: tuple[str, ...]) -> str:
    return f"is not started because {names(units)} failed; delete the sandbox to clean up"


def same_program(units: tuple[str, ...]) -> str:
    return f"{names(units)} would fail in the same way: correct the plugin for both"


def stopped_by_doubt(units: tuple[str, ...]) -> str:
    return f"is not started while the outcome of {names(units)} is unknown"


def start_deadline(limit_ms: int, *, placed: bool) -> str:
    if placed:
        return f"was placed but did not start within {span(limit_ms)}"
    return f"found no place to run within {span(limit_ms)}"


def out_of_memory(how: str, limit: str | None) -> str:
    """`limit` is a quantity as Kubernetes writes it; empty if its container has none, None if that is not known."""
    field = "resources.limits.memory of container main in the plugin's podTemplateOverlay"
    if limit == "":
        no_limit = f"it has no limit of its own, which would be set in {field}"
        return f"needed more memory than its node had left ({how}); {no_limit}"
    return f"needed more memory than its limit{f' of {limit}' if limit else ''} ({how}); raise {field}"


def evicted(message: str, how: str) -> str:
    """`message` is the kubelet's, `how` the way in which the step then ended."""
    said = message.strip().rstrip(".") or "without a message"
    # Kubernetes, pkg/kubelet/eviction/eviction_manager.go: the messages of its limits on local storage.
    if "exceed" in said and ("ephemeral" in said or "EmptyDir" in said):
        field = "resources.limits.ephemeral-storage of container main in the plugin's podTemplateOverlay"
        said += f"; write less to its disk, or raise {field}"
    return f"its node evicted its pod: {said} ({how})"


def killed_within(processes: int) -> str:
    """How a script came to feel the want of memory that outlived it."""
    return f"the kernel killed {processes} of its processes"


def no_record() -> str:
    return "its node has no record of its container, so it is not certain whether it ever began"


def last_words(message: str, note: str) -> str:
    return f"{message}; last heard: {note}"


def recalled(attempt: int, message: str, wait_ms: int) -> str:
    lack = f"attempt {attempt} cannot start{f' ({message})' if message else ''}"
    return (
        f"{lack}, so the runner, in another container of its pod, is asked to confirm that it never began; "
        f"without an answer within {span(wait_ms)} it is ended and cleaned up as if it had begun"
    )


def never_began() -> str:
    return "was recalled before it began"


def clocks_apart(servers: str, ours: str) -> str:
    """Both are moments."""
    return (
        f"its pod is too old to start: it was created at {servers} by the API server's clock, when the operator's said "
        f"{ours}; set the clocks of their machines, and the step continues by itself"
    )


def pulls(image: str, since: str) -> str:
    """`since` is a moment, not a clock: so the sentence stays true until the next one."""
    return f"has been pulling the image {image} since {since}"


def run_deadline(limit_ms: int) -> str:
    return f"ran longer than its limit of {span(limit_ms)}"


def cancelled(request: EndRequest | None) -> str:
    return f"asked to end: {request.message or request.reason}" if request else "asked to end"


def replaced() -> str:
    return "its spec or its baseline has changed"


def removed() -> str:
    return "is no longer wanted"


def stalled() -> str:
    return "was allowed to start, but the process that was to start it ended first"


def lost(message: str) -> str:
    return f"its outcome was never reported ({message}); its deadline has passed, so it has ended"


def hindered(problem: str) -> str:
    return f"cannot go on and is being retried: {problem}"


def expired() -> str:
    return "its time to live is over"


def lease_lapsed() -> str:
    return "nobody renewed its lease: whoever used it is gone"
