"""Errors of the Kubernetes API, as the server receives them: the order had no certain effect and is sent again."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from dayfly.kube import errors
from dayfly.spec.host_errors import HostUnavailableError

OPERATOR = "dayfly-system:dayfly-operator"


class HasGrant(Protocol):
    """An object that needs a grant of an administrator."""

    @property
    def grant_command(self) -> str:
        """The command that gives the grant."""


S = TypeVar("S", bound=HasGrant)
P = ParamSpec("P")
T = TypeVar("T")
_Method: TypeAlias = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def unavailable_on_error(method: _Method[S, P, T]) -> _Method[S, P, T]:
    """Raise `HostUnavailableError` for each error of the API server, so that the server repeats its order."""

    @functools.wraps(method)
    async def wrapper(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        except errors.Forbidden as fault:
            if fault.is_namespace_ending:
                raise HostUnavailableError(str(fault)) from fault
            problem = f"{fault}: a cluster administrator can grant the right with {self.grant_command}"
            raise HostUnavailableError(problem) from fault
        except errors.ApiError as fault:
            raise HostUnavailableError(str(fault)) from fault

    return wrapper
