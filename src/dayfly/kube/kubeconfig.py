"""The loader of kubeconfigs that the package `kubernetes` has, without the 1,700 modules of types and calls beside it.

The package's own `__init__`s import all of them, which every command that names a context would pay for with a second
of a processor and 70 MB. So while the loader is imported they are stood in for. Whoever else imports the package in
this process finds nothing of that: it is loaded whole for them. Where it is there whole already, it is taken as it is.

It hands on certificates and keys as files, which it removes when the interpreter ends: one that is killed leaves a key
in /tmp, where every step of a `dayfly up` sees it. Loaded here they are files in memory.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import tempfile
import threading
import types
from pathlib import Path
from typing import Any

_PACKAGE = "kubernetes"
_PLACES = {_PACKAGE: "", f"{_PACKAGE}.aio": "aio", f"{_PACKAGE}.aio.client": "aio/client"}
_LOADING = threading.Lock()


@functools.cache
def library() -> Any:
    """The package's module `kubernetes.aio.config`.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    with _LOADING:
        if _PACKAGE in sys.modules:
            return importlib.import_module(f"{_PACKAGE}.aio.config")
        found = importlib.util.find_spec(_PACKAGE)
        if found is None or not found.submodule_search_locations:
            raise ModuleNotFoundError(f"No module named {_PACKAGE!r}", name=_PACKAGE)
        folder = Path(found.submodule_search_locations[0])
        try:
            return _load(folder)
        finally:
            for name in [each for each in sys.modules if each == _PACKAGE or each.startswith(f"{_PACKAGE}.")]:
                del sys.modules[name]


def _load(folder: Path) -> Any:
    for name, place in _PLACES.items():
        stand_in = types.ModuleType(name)
        stand_in.__path__ = [str(folder / place)]
        sys.modules[name] = stand_in
    client: Any = sys.modules[f"{_PACKAGE}.aio.client"]
    client.Configuration = importlib.import_module(f"{_PACKAGE}.aio.client.configuration").Configuration
    client.ApiClient = None  # what the loader would make of its result for others
    config = importlib.import_module(f"{_PACKAGE}.aio.config")
    if hasattr(os, "memfd_create"):
        beside = {"mkstemp": _in_memory, "NamedTemporaryFile": tempfile.NamedTemporaryFile}
        config.kube_config.tempfile = types.SimpleNamespace(**beside)
    return config


def _in_memory(**_where: str | None) -> tuple[int, str]:
    """In the place of `tempfile.mkstemp`. The loader keeps it, by what it holds, as long as the process lives."""
    descriptor = os.memfd_create("kubeconfig")
    return descriptor, f"/proc/self/fd/{descriptor}"
