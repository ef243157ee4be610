"""What a cluster's refusals and silences mean to a server: nothing has been done for certain, ask again."""

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from dayfly.kube import errors
from dayfly.spec.host_errors import HostUnavailableError


class Bound(Protocol):
    """Whoever works in the namespace of one organisation."""

    @property
    def namespace(self) -> str:
        """It."""


S = TypeVar("S", bound=Bound)
P = ParamSpec("P")
T = TypeVar("T")
_Method: TypeAlias = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def unavailable_on_error(method: _Method[S, P, T]) -> _Method[S, P, T]:
    """The cluster may fail us: nothing is known to be done then, and it is ordered again."""

    @functools.wraps(method)
    async def tried(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(self, *args, **kwargs)
        except errors.Forbidden as fault:
            if fault.namespace_ending:
                raise HostUnavailableError(str(fault)) from fault
            raise HostUnavailableError(
                f"{fault}: whoever administers the cluster can say kubectl create rolebinding dayfly-agent -n "
                f"{self.namespace} --clusterrole dayfly-agent --serviceaccount dayfly-system:dayfly-operator"
            ) from fault
        except errors.ApiError as fault:
            raise HostUnavailableError(str(fault)) from fault

    return tried
