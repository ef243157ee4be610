"""A client of the API server with prepared answers, which records its calls."""

from __future__ import annotations

from typing import Any


class Client:
    """Initialize with the results of each verb in order; the last one repeats. Errors are raised."""

    def __init__(self, **answers: Any) -> None:
        self.done: list[tuple[Any, ...]] = []
        self._answers = {verb: each if isinstance(each, list) else [each] for verb, each in answers.items()}

    def __getattr__(self, verb: str):
        async def ask(kind, *given, **more):
            self.done.append((verb, getattr(kind, "kind", kind), *given, more))
            answers = self._answers[verb]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    def acting_as(self, user: str, extra: Any) -> Client:
        """Record the user and return the same client."""
        self.done.append(("acting_as", user, extra))
        return self

    def calls_of(self, verb: str) -> list[tuple[Any, ...]]:
        """Return the arguments of calls with this verb."""
        return [each[1:] for each in self.done if each[0] == verb]
