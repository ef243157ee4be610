"""A program instead of a script: its words are filled in as Kubernetes does it, the folders of its outputs are made."""

import os

import pytest
from tests.runner.pods import Container

# The expansion of Kubernetes for the same words (third_party/forked/golang/expansion in its sources).
WORDS = {
    "$(A)": "one",
    "<$(A)-$(B)>": "<one-two words>",
    "$$(A)": "$(A)",
    "$$$(A)": "$one",
    "$A": "$A",
    "$(NONE)": "$(NONE)",
    "$(A$(B)": "$(A$(B)",
    "$(A": "$(A",
    "$()": "$()",
    "$": "$",
    "$(AGAIN)": "$(A)",
    "": "",
}
ENV = ["A=one", "B=two words", "AGAIN=$(A)"]
SAY = ["sh", "-c", 'for word; do printf "%s\\n" "$word"; done', "sh"]


def test_words_are_filled_in_as_kubernetes_does_it(attempt, isolation):
    one = attempt()
    receipt = one.run(arg=[*SAY, *WORDS], env=ENV, expand=1, isolation=isolation)
    assert (receipt.outcome, receipt.code) == ("exited", 0)
    assert one.log.split("\n")[:-1] == list(WORDS.values())


def test_a_service_gets_its_words_as_they_are(attempt, isolation):
    one = attempt()
    one.run(arg=[*SAY, *WORDS], env=ENV, isolation=isolation)
    assert one.log.split("\n")[:-1] == list(WORDS)


def test_no_variable_says_which_program_is_run(attempt, isolation):
    receipt = attempt().run(arg=["/bin/$(A)"], env=["A=true"], expand=1, isolation=isolation)
    assert receipt.outcome == "not-executable"
    assert "/bin/$(A)" in receipt.detail


def private(place, isolation: str) -> list[str]:
    """Return the folder for new files; without isolation all new files are the host's anyway."""
    return [] if isolation == "none" else [str(place)]


def test_the_folders_of_outputs_are_made_and_go_again(attempt, isolation, place):
    folder = place / "made" / "deep"
    tell = ["sh", "-c", f"printf x >{folder}/out"]
    one = attempt().run(
        arg=tell, output=f"out\0{folder}/out", make_folders=1, isolation=isolation, private=private(place, isolation)
    )
    assert {name: kept[0] for name, kept in one.outputs.items()} == {"out": "present"}
    assert not (place / "made").exists()
    one = attempt().run(arg=tell, output=f"out\0{folder}/out", isolation=isolation, private=private(place, isolation))
    assert (one.code, one.outputs["out"][0]) == (2, "missing"), "a script makes its folders itself"


def test_a_folder_that_cannot_be_made_is_left_to_the_program(attempt):
    one = attempt(user="nobody").run(arg=["true"], output="out\0/nowhere/of/mine", make_folders=1)
    assert (one.outcome, one.code, one.outputs["out"][0]) == ("exited", 0, "missing")


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a container's namespaces")
def test_in_a_pod_a_variable_may_come_from_anywhere(runner, place):
    one = Container.make(place / "root", runner)
    one.environment += ["FROM_POD=pod", "TOKEN=pod"]
    tell = 'printf "%s " "$@" >/made/deep/out'
    ended = one.run(
        arg=["sh", "-c", tell, "sh", "$(FROM_POD)", "$(TOKEN)", "$(OURS)"],
        env="OURS=order",
        secret_env="TOKEN\0" + one.secret("token", b"secret"),
        output="out\0/made/deep/out",
        expand=1,
        make_folders=1,
    )
    assert (ended.receipt.outcome, ended.contents) == ("exited", {"out": b"pod secret order "})


@pytest.mark.parametrize(("names", "outcome"), [(17, "refused"), (15, "not-executable")])
@pytest.mark.parametrize("words", [1, 5])
def test_expanded_words_are_limited_like_a_whole_order(attempt, names, words, outcome):
    """A name of four letters can expand to any size. The kernel refuses sizes between its limit and ours."""
    each = ["$(A)" * (names // words + (number < names % words)) for number in range(words)]
    receipt = attempt().run(arg=["true", *each], env="A=" + "x" * (1 << 20), expand=1)
    assert receipt.outcome == outcome
    assert ("more than 16777216 bytes: give long values as files" in receipt.detail) is (outcome == "refused")


def test_unbounded_expansion_takes_no_memory(runner, attempt):
    """A gibibyte, of an order of one mebibyte: before the kernel could say that this is too much."""
    one = attempt()
    one.prefix = ["prlimit", f"--as={256 << 20}"]
    receipt = one.run(arg=["true", "$(A)" * 4096], env="A=" + "x" * (256 << 10), expand=1)
    assert (receipt.outcome, "16777216" in receipt.detail) == ("refused", True)
