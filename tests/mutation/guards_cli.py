"""As `guards`, for what the command line and the library do with what is their person's: rights, and answers."""

from __future__ import annotations

from mutation.guard import Guard, guard

MADE, TEST = "cli/testing_made.py", "cli/test_plugin_test_made.py::test_"

CLI: tuple[Guard, ...] = (
    guard(
        "a test of a plugin deletes whoever has its sandbox's name",
        MADE,
        "await client.delete(_SANDBOXES, box.name, here, uid=box.uid)",
        "await client.delete(_SANDBOXES, box.name, here)",
        TEST + "another_sandbox_of_that_name_is_not_touched",
    ),
    guard(
        "a test of a plugin gives up whoever has its sandbox's name",
        MADE,
        '{"metadata": {"uid": box.uid, "annotations": {ABANDON_ANNOTATION: why}}}',
        '{"metadata": {"annotations": {ABANDON_ANNOTATION: why}}}',
        TEST + "another_sandbox_of_that_name_is_not_touched",
    ),
    guard(
        "a test of a plugin removes whatever version bears its label",
        MADE,
        'ours = f".{testing_wishes.VERSION}" in each.metadata.name',
        "ours = True",
        TEST + "only_versions_of_tests_that_are_long_over_are_forgotten",
    ),
    guard(
        "a test of a plugin meddles with what somebody has planted",
        "cli/testing_hands.py",
        'if meta["name"] != made or marks != ([run], of.unit):',
        "if marks != ([run], of.unit):",
        "cli/test_testing_hands.py::TestMeddling::test_one_with_all_the_marks_and_another_name_was_planted_and_is_let_be",
    ),
    guard(
        "what stands behind an answer is read as that of the next request",
        "client/connection.py",
        "if idle and not self._h11.trailing_data[0]:",
        "if idle:",
        "client/test_connection.py::test_what_stands_behind_an_answer_is_not_that_of_the_next_request",
    ),
    guard(
        "what came over an idle connection is read as the answer to the next request",
        "client/loop_io.py",
        "self._reader.unread or ",
        "",
        "client/test_connection.py::test_on_an_event_loop_what_nobody_asked_for_is_noticed_before_the_next_request",
    ),
    guard(
        "what was answered in part is sent again",
        "client/connection.py",
        "if begun or self._h11.trailing_data[0]:",
        "if False:",
        "client/test_connection.py::"
        "test_an_answer_that_is_reset_in_its_middle_is_none_of_an_idle_connection_that_has_ended",
    ),
    guard(
        "a process reads the answers to those that it has forked",
        "client/speaker.py",
        "        self._leave_those_of_a_parent()\n",
        "",
        "client/test_retry.py::test_a_process_and_its_copy_have_connections_of_their_own",
    ),
    guard(
        "of two logins at once one is lost",
        "client/servers.py",
        "            fcntl.flock(folder, fcntl.LOCK_EX)\n",
        "            pass\n",
        "client/test_servers.py::test_two_logins_at_once_are_both_kept",
    ),
    guard(
        "the key of a home goes to whomever the environment names",
        "client/address.py",
        ' if _may_have_the_key_of(home, url) else "")',
        ")",
        "client/test_servers.py::test_the_key_of_a_home_goes_to_no_server_elsewhere[elsewhere]",
    ),
)
