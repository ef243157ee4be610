"""Guards of the route server: whom it tells, and when it says that it does not know."""

from __future__ import annotations

from mutation.guard import Guard, guard

ROUTESERVER: tuple[Guard, ...] = (
    guard(
        "a page that leads its own name to this machine reads the rules",
        "routeserver/rest.py",
        'if loopback and not is_loopback_name(request.headers.get("host", "")):',
        'if loopback and not request.headers.get("host", ""):',
        "routeserver/test_telling.py::test_who_calls_it_by_another_name_is_refused",
    ),
    guard(
        "one address takes all streams there are",
        "routeserver/grpc_server.py",
        "or self._streams_of[whose] >= MOST_OF_ONE:",
        "or self._streams_of[whose] < 0:",
        "routeserver/test_telling.py::test_one_address_does_not_take_all_streams",
    ),
    guard(
        "what is not known counts as none",
        "routeserver/grpc_server.py",
        "            if not await _unless(closing, self._board.wait_known()):",
        "            if closing.done():",
        "routeserver/test_telling.py::test_nothing_is_told_before_it_is_known",
    ),
    guard(
        "a group's key that another sandbox has by now is taken from it",
        "routeserver/from_cluster.py",
        "                if self._owners.get(id_) == uid:",
        "                if self._owners.get(id_):",
        "operator/test_route_rules.py::test_a_groups_key_goes_from_one_sandbox_to_the_other",
    ),
    guard(
        "a fork has rules before its route is in force",
        "spec/routing_rules.py",
        "or sandbox.states.get(route_id(of), _RUNNING) != _RUNNING:",
        "or route_id(of) in ():",
        "control/test_routing_rules.py::test_what_does_not_answer_or_is_not_led_to_has_none",
    ),
)
