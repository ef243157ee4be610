from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WatchOp(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ADD: _ClassVar[WatchOp]
    REMOVE: _ClassVar[WatchOp]
    REPLACE: _ClassVar[WatchOp]
    SYNCED: _ClassVar[WatchOp]
ADD: WatchOp
REMOVE: WatchOp
REPLACE: WatchOp
SYNCED: WatchOp

class WorkloadRoutingRule(_message.Message):
    __slots__ = ("routing_key", "baseline", "destination_sandbox", "mappings")
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    BASELINE_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_SANDBOX_FIELD_NUMBER: _ClassVar[int]
    MAPPINGS_FIELD_NUMBER: _ClassVar[int]
    routing_key: str
    baseline: BaselineWorkload
    destination_sandbox: DestinationSandbox
    mappings: _containers.RepeatedCompositeFieldContainer[WorkloadPortMapping]
    def __init__(self, routing_key: _Optional[str] = ..., baseline: _Optional[_Union[BaselineWorkload, _Mapping]] = ..., destination_sandbox: _Optional[_Union[DestinationSandbox, _Mapping]] = ..., mappings: _Optional[_Iterable[_Union[WorkloadPortMapping, _Mapping]]] = ...) -> None: ...

class DestinationSandbox(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class BaselineWorkload(_message.Message):
    __slots__ = ("kind", "namespace", "name")
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    kind: str
    namespace: str
    name: str
    def __init__(self, kind: _Optional[str] = ..., namespace: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class WorkloadPortMapping(_message.Message):
    __slots__ = ("workload_port", "destinations")
    WORKLOAD_PORT_FIELD_NUMBER: _ClassVar[int]
    DESTINATIONS_FIELD_NUMBER: _ClassVar[int]
    workload_port: int
    destinations: _containers.RepeatedCompositeFieldContainer[Location]
    def __init__(self, workload_port: _Optional[int] = ..., destinations: _Optional[_Iterable[_Union[Location, _Mapping]]] = ...) -> None: ...

class Location(_message.Message):
    __slots__ = ("host", "port")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class WorkloadRoutingRulesRequest(_message.Message):
    __slots__ = ("baseline_workload", "routing_key", "destination_sandbox")
    BASELINE_WORKLOAD_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    DESTINATION_SANDBOX_FIELD_NUMBER: _ClassVar[int]
    baseline_workload: BaselineWorkload
    routing_key: str
    destination_sandbox: DestinationSandbox
    def __init__(self, baseline_workload: _Optional[_Union[BaselineWorkload, _Mapping]] = ..., routing_key: _Optional[str] = ..., destination_sandbox: _Optional[_Union[DestinationSandbox, _Mapping]] = ...) -> None: ...

class GetWorkloadRoutingRulesResponse(_message.Message):
    __slots__ = ("routingRules",)
    ROUTINGRULES_FIELD_NUMBER: _ClassVar[int]
    routingRules: _containers.RepeatedCompositeFieldContainer[WorkloadRoutingRule]
    def __init__(self, routingRules: _Optional[_Iterable[_Union[WorkloadRoutingRule, _Mapping]]] = ...) -> None: ...

class WorkloadRoutingRuleOp(_message.Message):
    __slots__ = ("op", "route")
    OP_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    op: WatchOp
    route: WorkloadRoutingRule
    def __init__(self, op: _Optional[_Union[WatchOp, str]] = ..., route: _Optional[_Union[WorkloadRoutingRule, _Mapping]] = ...) -> None: ...
