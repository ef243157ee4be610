"""The stages that KWOK plays in place of a kubelet. KWOK skips a document that it cannot read, so they are read here."""

from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
STAGES = {
    "testcluster/kwok/stages.yaml": {"node-ready", "pod-run", "pod-succeed", "pod-stop", "pod-delete"},
    "bench/cluster/stages.yaml": {"pod-runner"},
}


@pytest.mark.parametrize("file", STAGES)
def test_each_stage_of_kwok_is_a_valid_document(file):
    documents = list(yaml.safe_load_all((ROOT / file).read_text()))
    assert {each["kind"] for each in documents} == {"Stage"}
    assert {each["metadata"]["name"] for each in documents} == STAGES[file]
