"""Mutants that nothing could notice, each with the reason: by name, as `mutants` prints it."""

from __future__ import annotations

EQUIVALENT: dict[str, str] = {
    "plan/closing.py _kept_rest: _rest(desk, going) and len(going) == len(desk.run.kept) -> (_rest(desk, going))": (
        "what waits does so for another that is there and comes later; as `after` has no circle the last of them is "
        "among those that go, and does not rest"
    ),
    "plan/opening.py _start_fork: 0 -> 1": "a moment in unix milliseconds that is over: no clock shows 0",
    "execute/masks.py _begun: at >= 0 -> (at > 0)": "what is sought behind the first byte is never found at it",
    "execute/masks.py _begun: at < 0 -> (at <= 0)": "what is sought behind the first byte is never found at it",
    **{
        f"execute/host_end.py HostEnd.__init__: 0 -> 1 ({number})": "the first greeting, before which nothing is heard, sets it"
        for number in (1, 2, 3)
    },
    "execute/webhook/exchange.py _first: left <= 0 -> (left < 0)": (
        "at the very end of its time a connection is made without waiting, and there is none either"
    ),
    "execute/webhook/guard.py _inside: address in _MAPPED or any(address in network for network in _TRANSLATED) -> "
    "(any((address in network for network in _TRANSLATED)))": (
        "to this version of `ipaddress` all of them are private; newer ones look inside"
    ),
    "execute/process/resident.py Resident._opened: ours.setblocking(False) -> pass": (
        "it is read when there is something to read, and so few questions at once never fill it"
    ),
    "execute/process/beginning.py Beginnings.__init__: 0 -> 1": "folders in waiting may be numbered from any number on",
    "execute/webhook/guard.py _inside: 0xFFFF -> 65536": "all of ::/8 is reserved, whatever is inside",
}
