"""The reference of traces lists every attribute, kind and number of the code."""

import inspect
import re

from tests.docs.conftest import ROOT

from dayfly.execute import tracing
from dayfly.plan import run_trace
from dayfly.spec.lifecycle import Kind

PAGE = (ROOT / "docs" / "reference" / "traces.md").read_text()
GUIDE = (ROOT / "docs" / "guides" / "tracing.md").read_text()


def test_every_span_attribute_is_documented():
    section = PAGE.partition("\n## Attributes\n")[2].partition("\n## ")[0]
    documented = {
        name
        for row in re.findall(r"^\| [^|]+ \| ([^|]+) \|", section, re.MULTILINE)
        for name in re.findall(r"`([\w.]+)`", row)
    }
    used = re.findall(r"\"((?:dayfly|k8s|error)\.[\w.]+)\"", inspect.getsource(run_trace))
    assert documented == set(used)


def test_every_unit_kind_is_documented():
    [row] = re.findall(r"^\| .*`dayfly\.kind` \| (.*) \|$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {kind.value for kind in Kind}


def test_trace_limits_are_those_of_the_code():
    assert f"contains the newest {run_trace.MAX_ATTEMPTS} |" in PAGE
    assert f"At most {tracing.MAX_QUEUED_TRACES} traces wait" in GUIDE
