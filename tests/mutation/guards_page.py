"""Guards of the page: who a browser is, what other sites may have it do, and what is shown to whom."""

from __future__ import annotations

from mutation.guard import Guard, guard

SESSIONS, AUTH, EXCHANGE = "control/page_sessions.py", "control/auth.py", "control/exchange.py"
TESTS = "control/test_page_sessions.py::test_"
OVERVIEW = "control/test_overview.py::test_"

PAGE: tuple[Guard, ...] = (
    guard(
        "another README brings along another plugin",
        "control/plugins.py",
        "published is None or published.spec != plugin.spec:",
        "published is None:",
        "control/test_plugins.py::TestReadme::test_it_alone_may_be_put_again[sqlite]",
    ),
    guard(
        "a link beside a plugin publishes whatever it leads to",
        "client/files.py",
        "if not beside.is_file() or not beside.resolve().is_relative_to(beside.parent.resolve()):",
        "if not beside.is_file():",
        "cli/test_apply.py::test_a_readme_is_that_of_the_one_plugin_of_its_folder_and_lies_in_it",
    ),
    guard(
        "a link signs in as often as it is used",
        SESSIONS,
        "table.c.id == row.id, table.c.code == row.code, table.c.expires_at > now",
        "table.c.id == row.id",
        TESTS + "a_link_works_once_also_for_two_who_are_equally_quick[sqlite]",
    ),
    guard(
        "a code is good as a cookie",
        SESSIONS,
        """getattr(row, column)):
            return None
""",
        """row.code or row.digest):
            return None
""",
        TESTS + "a_code_is_no_cookie_and_a_cookie_no_code[sqlite]",
    ),
    guard(
        "a link or session never ends",
        SESSIONS,
        "return row if row.expires_at > _now() else None",
        "return row",
        TESTS + "a_link_ends_after_a_minute_and_a_session_after_half_a_day[sqlite]",
    ),
    guard(
        "a key that has expired is good for a session",
        "control/keys.py",
        "return None if row is None or (row.expires_at is not None and row.expires_at <= _now()) else row",
        "return row",
        TESTS + "a_key_that_ends_by_itself_ends_its_sessions[sqlite]",
    ),
    guard(
        "another site changes things by the cookie",
        EXCHANGE,
        "(trouble := auth.stranger(request.headers)):",
        '(trouble := ""):',
        TESTS + "another_site_can_change_nothing_by_the_cookie_and_sign_nobody_in[sqlite-wrong0]",
    ),
    guard(
        "any origin is our own",
        AUTH,
        "or not host or origin.lower() != host.lower()",
        "or not host",
        TESTS + "another_site_can_change_nothing_by_the_cookie_and_sign_nobody_in[sqlite-wrong3]",
    ),
    guard(
        "a session makes keys that outlive it",
        EXCHANGE,
        "if self._path in _NOT_BY_PAGE and",
        "if not self._path and",
        TESTS + "by_the_cookie_nobody_makes_keys_tokens_or_links[sqlite]",
    ),
    guard(
        "scripts read the cookie",
        "control/page_cookie.py",
        "httponly=True",
        "httponly=False",
        TESTS + "a_link_becomes_a_cookie_that_no_script_reads_and_no_site_sends[sqlite]",
    ),
    guard(
        "a stream goes on after its session",
        EXCHANGE,
        'if await self._caller(Request(scope)) != scope["caller"]:',
        "if False:",
        TESTS + "a_stream_ends_soon_after_its_session[sqlite]",
    ),
    guard(
        "masked outputs are not",
        "control/reports.py",
        'b"" if masked and value.sensitive else value.value',
        "value.value",
        OVERVIEW + "sensitive_outputs_are_masked_until_somebody_asks_which_is_recorded[sqlite]",
    ),
    guard(
        "a look at a sensitive output leaves no trace",
        "control/overview.py",
        """        await self._store.of(record.org).write(lambda rows: audit.note(rows, audit.who(request), "reveal", what))
""",
        "",
        OVERVIEW + "sensitive_outputs_are_masked_until_somebody_asks_which_is_recorded[sqlite]",
    ),
    guard(
        "the page may run what is not ours",
        "page/files.py",
        "script-src 'self'",
        "script-src 'self' 'unsafe-inline'",
        "page/test_files.py::test_nothing_but_its_own_files_may_run_and_nobody_may_frame_it",
    ),
    guard(
        "of one name the living one is told of, whoever is asked about",
        "control/reports.py",
        'if record is not None and uid not in ("", record.uid):',
        "if False:",
        OVERVIEW + "of_one_name_each_that_has_ended_is_told_of_by_its_uid[sqlite]",
    ),
    guard(
        "what was given up is forgotten when others end",
        "control/overview.py",
        "rows.execute(last_first.where(table.c.given_up.is_(True)))",
        "rows.execute(last_first.limit(LOOKED_AT)) if row.given_up",
        OVERVIEW + "what_was_given_up_is_told_for_as_long_as_it_is_kept_however_many_end_after_it[sqlite]",
    ),
    guard(
        "what an older server has archived is taken to be clean",
        "control/overview.py",
        "table.c.given_up.is_(None)",
        "table.c.given_up.is_(False)",
        OVERVIEW + "of_what_nobody_noted_to_be_given_up_it_is_looked_at_how_it_ended[sqlite]",
    ),
    guard(
        "a wish that its host refuses goes on being pending",
        "control/lives.py",
        "waits = Reason.REFUSED if refused else Reason.RESOURCES_PENDING",
        "waits = Reason.RESOURCES_PENDING",
        OVERVIEW + "a_wish_that_its_host_refuses_has_failed_and_needs_somebody[sqlite]",
    ),
)
