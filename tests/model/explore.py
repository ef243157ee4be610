"""Breadth-first search of all states of a small protocol model."""

from collections.abc import Container, Iterator
from typing import NamedTuple, Protocol, TypeVar

from dayfly.plan.transitions import IllegalMoveError

S = TypeVar("S")


class Outcome(NamedTuple):
    """The result of a search: the number of states, and the first violation with its trace."""

    states: int
    violation: str = ""
    trace: tuple[str, ...] = ()


class ViolationError(Exception):
    """A state that breaks a rule."""


class Model(Protocol[S]):
    """A protocol: its first state, the successors of a state, and its rules."""

    def first_state(self) -> S:
        """Return the state in which the search begins."""

    def successors(self, state: S) -> Iterator[tuple[str, S]]:
        """Yield each state that one step reaches, after a description of the step."""

    def check(self, state: S) -> None:
        """Raise `ViolationError` for a state that breaks a rule."""

    def check_rest(self, state: S) -> None:
        """Raise `ViolationError` for a state without successors that is not an end."""


def explore(model: Model[S], most: int, *, reaches_end: bool = False) -> Outcome:
    """Visit every state. The first violation ends the search, with a shortest trace.

    With `reaches_end`, an end must be reachable from each state, so that no cycle of steps is without an end.
    """
    first = model.first_state()
    came: dict[S, tuple[S, str] | None] = {first: None}
    before: dict[S, list[S]] = {first: []}
    todo, ends = [first], []
    for state in todo:
        violation = ""
        try:
            model.check(state)
            following = [item for item in model.successors(state) if item[1] != state]
            if reaches_end and _is_end(model, state):
                ends.append(state)
            elif not following:
                model.check_rest(state)
        except (ViolationError, IllegalMoveError) as error:
            violation = str(error)
        if violation:
            return Outcome(len(came), violation, _trace(came, state))
        for said, after in following:
            if after not in came:
                came[after] = (state, said)
                todo.append(after)
            if reaches_end:
                before.setdefault(after, []).append(state)
        if len(came) > most:
            return Outcome(len(came), f"{most} states were not enough")
    leading = _leading_to(ends, before) if reaches_end else came
    if (lost := next((state for state in todo if state not in leading), None)) is not None:
        return Outcome(len(came), "the end cannot be reached", _trace(came, lost))
    return Outcome(len(came))


def _is_end(model: Model[S], state: S) -> bool:
    try:
        model.check_rest(state)
    except ViolationError:
        return False
    return True


def _leading_to(ends: list[S], before: dict[S, list[S]]) -> Container[S]:
    """Return all states from which an end can be reached."""
    found, todo = set(ends), list(ends)
    for state in todo:
        for each in before.get(state, ()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return found


def _trace(came: dict[S, tuple[S, str] | None], state: S) -> tuple[str, ...]:
    lines: list[str] = []
    while (step := came[state]) is not None:
        state, said = step
        lines.append(said)
    return tuple(reversed(lines))
