"""As `guards`, for the secrets that come with runs: who may have them, where they may lie, and how long."""

from __future__ import annotations

from mutation.guard import Guard, guard

LEDGER, VAULT, FILES = "embedded/ledger.py", "control/vault.py", "cli/secret_files.py"
RUNS = "embedded/test_run_secrets.py::test_"
WISHES = "control/test_vault.py::test_"
WITH, FILE = "cli/test_secrets.py::test_", "cli/test_secret_files.py::test_"

SECRETS: tuple[Guard, ...] = (
    # --- how long they stay ---
    guard(
        "a run's secrets outlive it",
        LEDGER,
        "        self.drop_secrets(run.uid)\n",
        "",
        RUNS + "steps_read_them_and_nothing_has_them_after_the_end",
    ),
    guard(
        "secrets that were dropped stay in the file of writes to come",
        LEDGER,
        """(uid,)).rowcount:
            self.remains = True
""",
        """(uid,)).rowcount:
            pass
""",
        RUNS + "they_go_with_a_run_that_never_begins",
    ),
    guard(
        "secrets of a wish that was refused stay",
        VAULT,
        "await vault.drop(record.uid)",
        "pass",
        WISHES + "a_wish_that_the_host_refuses_leaves_none",
    ),
    guard(
        "secrets of a wish that was written are dropped",
        VAULT,
        "if written is None or written.uid != record.uid:",
        "if True:",
        WISHES + "one_whose_answer_alone_failed_keeps_them",
    ),
    guard(
        "what a server that was killed has left stays",
        "control/app.py",
        "    await vaults.drop_unwished()\n",
        "",
        WISHES + "they_are_with_the_host_and_in_nothing_that_is_told",
    ),
    guard(
        "a server that begins drops the secrets of living runs",
        LEDGER,
        "{*wished, *self.uids()}",
        "{*wished}",
        RUNS + "those_that_nobody_wishes_for_go_and_living_runs_keep_theirs",
    ),
    # --- who may have them ---
    guard(
        "a run is born without its secrets",
        "embedded/host.py",
        "        self.secrets.refuse_missing(documents)\n",
        "",
        RUNS + "without_them_there_is_no_birth",
    ),
    guard(
        "a host that cannot be given secrets takes a run that wants some",
        "execute/executor.py",
        "if not self._secrets and (",
        "if False and (",
        RUNS + "a_host_that_is_not_this_machine_refuses_them",
    ),
    guard(
        "a server that others reach takes secrets",
        "control/app.py",
        "vaults if loopback else {}",
        "vaults",
        WISHES + "a_server_that_others_reach_takes_none",
    ),
    guard(
        "a living sandbox is taken for one with other secrets",
        "control/sandboxes.py",
        "            self._vaults.refuse_others(record, given)\n",
        "",
        WISHES + "the_same_wish_again_is_taken_and_other_secrets_are_not",
    ),
    guard(
        "a document holds a secret",
        "compile/resources.py",
        "        _check_secret(instance)\n",
        "",
        WISHES + "a_document_never_holds_one",
    ),
    guard(
        "a secret stands in the log",
        "plan/sealed.py",
        "found = {item.name for item in unit.inputs if item.secret}",
        "found: set[str] = set()",
        RUNS + "steps_read_them_and_nothing_has_them_after_the_end",
    ),
    guard(
        "a Sandbox object in a cluster waits for a secret for ever",
        "operator/front/sandboxes.py",
        "if problem := words.no_secrets(document.secrets()):",
        "if problem := words.no_secrets(()):",
        "operator/test_front_alone.py::TestRefusing::test_a_secret_that_no_resource_makes_is_refused_with_its_place",
    ),
    # --- the file ---
    guard(
        "a pipe is opened as a file of secrets",
        FILES,
        "if not stat.S_ISREG(seen.st_mode):",
        "if False:",
        FILE + "a_file_that_is_none_is_refused_without_what_is_in_it",
    ),
    guard(
        "another user's file is taken",
        FILES,
        "if seen.st_uid != os.geteuid():",
        "if False:",
        FILE + "a_link_to_anothers_file_is_refused",
    ),
    guard(
        "a file of secrets lies open",
        FILES,
        "if seen.st_mode & 0o077:",
        "if seen.st_mode & 0o007:",
        FILE + "a_file_that_others_may_read_or_change_is_refused",
    ),
    guard(
        "a secret that no log could be kept clean of is taken",
        FILES,
        "elif why := secret_values.unfit(found[key]):",
        'elif why := "":',
        FILE + "what_could_not_be_masked_is_no_secret",
    ),
    guard(
        "a secret goes to a server elsewhere",
        "client/secret_values.py",
        "if urlsplit(url).hostname not in LOOPBACK:",
        "if False:",
        WITH + "a_server_elsewhere_is_given_none",
    ),
    guard(
        "a program's secret goes to a server elsewhere",
        "client/secret_values.py",
        'refuse_elsewhere(url, "secrets=")',
        "pass",
        "client/test_secrets.py::test_a_server_elsewhere_is_given_none",
    ),
    guard(
        "another secret finds the sandbox of the one before",
        "cli/borrowing.py",
        'wish = {**self.body, "secrets": secrets} if secrets else self.body',
        "wish = self.body",
        WITH + "another_secret_is_another_name_to_use_again",
    ),
    guard(
        "a traceback shows a program's secrets",
        "client/speaker.py",
        "Unshown(json.dumps(body).encode())",
        "json.dumps(body).encode()",
        "client/test_secrets.py::test_no_traceback_shows_a_secret_an_output_or_the_key",
    ),
    guard(
        "a traceback shows outputs",
        "client/connection.py",
        "Unshown(body))",
        "bytes(body))",
        "client/test_secrets.py::test_no_traceback_shows_a_secret_an_output_or_the_key",
    ),
)
