"""Which tests take a second and a half of a processor, or more: of them a commit plays one in so many.

Measured in a whole run at `921c3474a323` on two slow processors, for all the parameters of a test together. Not here are
those that play a share of something by themselves, those that are marked `rotates` where they stand, and those by which
alone what is written down (a page, a type, a table) is held to be what the product does: who changes the one is to hear
of the other at once.
"""

from __future__ import annotations

PARTS = 5

# By file, seconds of a processor for each test.
_SECONDS: dict[str, dict[str, float]] = {
    "tests/cli/test_abandon.py": {
        "test_a_cleanup_that_fails_is_waited_for_explained_and_given_up": 1.9,
    },
    "tests/cli/test_apply.py": {
        "test_a_plugin_in_use_stays": 1.8,
    },
    "tests/cli/test_completion.py": {
        "test_files_and_names_complete_in_a_real_shell": 3.9,
    },
    "tests/cli/test_events_out.py": {
        "test_up_tells_of_its_sandboxes_and_after_a_restart_what_was_not_taken": 5.1,
    },
    "tests/cli/test_init.py": {
        "test_the_folder_passes_its_test_and_its_readme_can_be_followed": 3.1,
    },
    "tests/cli/test_installed.py": {
        "test_the_runner_is_in_it_for_either_architecture_and_the_page": 15.4,
        "test_it_lives_a_sandbox": 2.2,
        "test_a_plugin_can_begin_with_an_example": 1.5,
    },
    "tests/cli/test_lifecycle_hook.py": {
        "test_one_machine_refuses_it_before_it_changes_anything": 1.4,
    },
    "tests/cli/test_logs.py": {
        "test_lines_with_their_times_and_since_a_time": 3.2,
        "test_what_is_not_there_is_said_with_what_is": 1.9,
    },
    "tests/cli/test_many.py": {
        "test_keys_travel_by_tls_and_are_kept_for_their_owner_alone": 6.5,
    },
    "tests/cli/test_retry.py": {
        "test_what_waits_is_tried_again_at_once_and_nothing_else": 1.7,
    },
    "tests/cli/test_routing.py": {
        "test_a_killed_server_leaves_its_routes_and_the_next_one_goes_on_with_them": 3.5,
        "test_a_port_of_another_baseline_is_not_taken": 1.6,
    },
    "tests/cli/test_secrets.py": {
        "test_it_reaches_the_steps_and_nobody_else": 2.4,
    },
    "tests/cli/test_server.py": {
        "test_two_homes_are_strangers": 1.9,
        "test_a_server_that_was_killed_leaves_an_address_that_is_seen_through": 1.6,
    },
    "tests/cli/test_state.py": {
        "test_what_was_altered_or_has_lost_its_key_is_said": 1.6,
    },
    "tests/conformance/test_conformance.py": {
        "test_what_only_one_host_can_say_is_listed": 5.3,
        "test_the_embedded_host_tells_it_so": 3.1,
        "test_the_operator_tells_it_so": 2.6,
    },
    "tests/control/test_audit.py": {
        "test_each_change_has_an_entry_and_what_changes_nothing_has_none": 2.0,
    },
    "tests/control/test_confirmed.py": {
        "test_what_was_confirmed_of_sandboxes_and_groups_is_there_for_all_servers": 1.8,
    },
    "tests/control/test_connections.py": {
        "test_four_hundred_halves_do_not_stop_a_server_with_256_descriptors": 8.3,
    },
    "tests/control/test_crash.py": {
        "test_a_server_that_is_killed_at_any_moment_converges": 10.1,
        "test_an_end_is_noticed_whatever_dies": 3.9,
        "test_giving_up_is_carried_out_whatever_dies": 3.8,
        "test_a_deletion_is_carried_out_whatever_dies": 3.3,
        "test_a_sandbox_is_offered_once_whatever_dies": 3.1,
    },
    "tests/control/test_fuzz.py": {
        "test_a_wish_with_one_value_replaced": 6.2,
        "test_headers_of_anything": 2.8,
        "test_a_body_of_anything": 2.7,
        "test_a_name_of_anything": 1.8,
    },
    "tests/control/test_key_scopes.py": {
        "test_every_route_for_every_role_scope_and_organisation": 7.1,
    },
    "tests/control/test_replicas.py": {
        "test_a_key_that_one_gives_out_opens_the_other_until_one_revokes_it": 1.7,
        "test_requests_for_the_same_sandboxes_at_once_are_carried_out_one_after_the_other": 1.6,
    },
    "tests/control/test_rights.py": {
        "test_every_route_for_every_role_and_every_organisation": 4.4,
    },
    "tests/control/test_route_groups.py": {
        "TestExtending::test_what_is_refused": 1.6,
    },
    "tests/docs/test_client_page.py": {
        "test_its_programs_pass_strict_types": 4.9,
    },
    "tests/docs/test_kube_page.py": {
        "test_its_code_passes_strict_types": 7.0,
    },
    "tests/docs/test_pytest_page.py": {
        "test_its_examples_pass": 1.8,
    },
    "tests/docs/test_recording.py": {
        "test_the_same_is_printed_today": 1.5,
    },
    "tests/docs/test_routegroups_page.py": {
        "test_what_the_page_shows_is_what_one_gets": 3.8,
    },
    "tests/docs/test_sandboxes_page.py": {
        "test_what_the_page_shows_is_what_one_gets": 1.7,
    },
    "tests/embedded/test_containers.py": {
        "test_what_an_engine_has_begun_ends_though_it_was_killed_meanwhile": 1.6,
    },
    "tests/embedded/test_routes.py": {
        "test_requests_meet_the_right_one_while_sandboxes_come_and_go": 8.8,
    },
    "tests/embedded/test_steps.py": {
        "test_two_hundred_runs_at_once": 3.2,
    },
    "tests/examples/test_gallery.py": {
        "test_all_of_the_gallery_lives_together": 13.6,
    },
    "tests/examples/test_pages.py": {
        "test_the_demonstration_fails_where_the_database_stays": 3.2,
        "test_the_demonstration_runs_by_itself_and_leaves_nothing": 2.5,
    },
    "tests/examples/test_particulars.py": {
        "test_the_fork_is_told_where_the_catalogue_is": 2.0,
        "test_the_fork_reads_what_the_steps_have_made": 1.9,
        "test_json_goes_in_and_comes_out": 1.8,
        "test_a_folder_that_does_not_exist_is_named_and_deleting_works": 1.7,
    },
    "tests/examples/test_postgres.py": {
        "test_the_role_works_in_its_schema_and_nowhere_else": 3.4,
        "test_sessions_that_are_still_open_do_not_hold_the_schema": 1.7,
    },
    "tests/examples/test_soak.py": {
        "test_nothing_is_left_of_many_lives": 4.5,
    },
    "tests/examples/test_terraform.py": {
        "test_a_destroy_that_fails_keeps_the_state_until_it_succeeds": 3.0,
        "test_a_life_in_which_somebody_is_killed": 2.0,
    },
    "tests/examples/test_v1.py": {
        "test_its_programs_run_as_they_did": 2.4,
    },
    "tests/execute/test_fork_rights.py": {
        "TestChance::test_no_patch_takes_more": 2.2,
    },
    "tests/execute/test_istio_rules.py": {
        "test_with_a_key_a_call_goes_where_it_went_but_to_the_fork": 1.7,
    },
    "tests/object/test_read.py": {
        "test_whatever_somebody_writes_into_a_status_is_judged_in_few_words": 2.3,
    },
    "tests/object/test_render.py": {
        "test_a_note_that_was_edited_lets_nothing_else_happen": 2.2,
    },
    "tests/operator/test_agent.py": {
        "test_an_operator_that_stood_still_with_an_offer_begins_nothing_that_was_over_since": 7.0,
        "test_after_a_long_absence_of_the_control_plane_it_is_heard_within_seconds": 2.0,
        "test_a_bad_token_is_said_once_and_tried_with_patience": 1.9,
        "test_an_operators_clock_that_is_a_day_ahead_stops_nothing_or_it_is_said_here_too": 1.5,
    },
    "tests/operator/test_agent_groups.py": {
        "test_its_endpoints_address_leads_to_the_fork_that_its_key_leads_to": 2.2,
        "test_its_key_leads_to_the_forks_of_whom_it_has_now": 2.2,
        "test_its_time_to_live_ends_it_while_the_control_plane_is_away": 1.4,
    },
    "tests/operator/test_agent_offers.py": {
        "test_requests_that_are_not_its_own_are_not_led_to_it": 3.6,
    },
    "tests/operator/test_agent_routes.py": {
        "test_no_request_is_led_elsewhere_while_server_and_operator_begin_anew": 1.6,
        "test_what_is_not_led_is_said_by_a_sandbox_that_is_ready": 1.5,
    },
    "tests/operator/test_agent_told.py": {
        "test_a_cluster_that_has_less_than_it_confirmed_says_so_and_begins_nothing": 9.5,
        "test_ends_that_several_servers_note_at_the_same_time_are_let_go_once": 4.5,
    },
    "tests/operator/test_clocks.py": {
        "TestOperatorsMachine::test_once_the_clocks_are_right_what_is_too_old_by_then_is_made_anew": 1.8,
    },
    "tests/operator/test_fork_rights.py": {
        "TestRights::test_more_than_its_baseline_has": 4.2,
        "TestCosts::test_malformed_patches_are_the_authors_fault": 2.8,
    },
    "tests/operator/test_forks.py": {
        "TestEnd::test_another_of_the_same_name_takes_the_place_of_the_claimed_one": 2.0,
        "TestLife::test_nothing_is_written_while_nothing_happens": 1.9,
    },
    "tests/operator/test_good_operator.py": {
        "TestStaleCaches::test_each_unit_takes_the_same_steps_in_the_end": 3.6,
        "TestStatusIsNoInput::test_garbage_in_every_status_after_every_write_changes_nothing": 3.1,
        "TestEvents::test_a_life_has_one_for_each_change_of_the_condition": 1.7,
    },
    "tests/operator/test_hooks.py": {
        "test_many_at_once_share_the_places_of_their_namespace": 3.8,
    },
    "tests/operator/test_hostile_routes.py": {
        "TestMeshes::test_a_strangers_rule_with_a_name_like_ours_disturbs_nobody": 2.5,
        "TestGateways::test_each_fork_has_so_many_routes_and_no_more": 2.0,
    },
    "tests/operator/test_places.py": {
        "TestNeighbours::test_nobody_feels_a_noisy_neighbour": 4.0,
        "TestImages::test_steps_that_lack_their_image_hold_no_place": 2.9,
        "TestBound::test_so_many_steps_run_at_once_and_no_more": 1.8,
    },
    "tests/operator/test_previews.py": {
        "test_one_that_cannot_be_is_said_and_keeps_nothing_up": 2.0,
    },
    "tests/operator/test_sandbox_status.py": {
        "TestRestart::test_what_is_new_waits_for_nobody_who_rests": 7.5,
    },
    "tests/operator/test_schedules.py": {
        "test_same_seed_same_schedule_in_every_process": 6.1,
        "test_same_seed_same_schedule": 3.0,
    },
    "tests/operator/test_troubles.py": {
        "TestNames::test_same_name_again_and_again": 5.5,
        "test_unreachable_server_is_waited_for": 2.3,
        "TestPods::test_pod_forced_away_with_its_finalizer_is_unknown": 2.1,
    },
    "tests/page/test_browser.py": {
        "test_its_pure_parts_do_as_they_say": 15.5,
        "test_every_view_can_be_read_by_everybody": 2.9,
        "test_a_link_works_once_and_only_by_its_own_script": 1.5,
    },
    "tests/page/test_hostile.py": {
        "test_a_log_of_a_megabyte_does_no_harm": 4.6,
        "test_hostile_text_is_text_on_every_view": 1.6,
    },
    "tests/plan/test_total.py": {
        "test_every_world_has_an_answer_and_always_the_same": 3.4,
    },
    "tests/pytest_plugin/test_pytest_plugin.py": {
        "test_a_resource_for_a_test_a_module_and_a_session_on_several_workers": 5.3,
        "test_a_secret_reaches_its_step_and_no_report": 2.1,
        "test_a_home_of_somebody_else_is_refused": 1.7,
        "test_a_failed_step_is_in_the_report_with_its_log": 1.7,
    },
    "tests/runner/test_build.py": {
        "test_the_machines_own_compiler_builds_it_without_a_warning": 3.0,
    },
    "tests/runner/test_ending.py": {
        "test_a_launcher_killed_at_any_instant_leaves_nothing_and_runs_nothing_twice": 2.9,
        "test_restless_processes_are_caught": 1.7,
    },
    "tests/runner/test_parsers.py": {
        "test_the_kernels_figure_is_read_alike": 4.7,
        "test_damaged_orders_are_judged_alike_and_safely": 3.2,
        "test_what_python_writes_the_program_reads": 2.0,
    },
    "tests/simulator/test_machine.py": {
        "TestClusterDays::runTest": 2.8,
        "TestMachineDays::runTest": 2.5,
    },
    "tests/simulator/test_schedules.py": {
        "test_a_seed_replays_bit_for_bit": 1.6,
    },
    "tests/spec/test_documents.py": {
        "test_sandboxes_round_trip": 2.1,
        "test_whatever_comes_is_taken_or_refused": 2.0,
    },
    "tests/spec/test_frames.py": {
        "test_what_was_encoded_is_decoded": 2.1,
        "test_every_cut_is_noticed": 1.5,
    },
    "tests/spec/test_glob.py": {
        "test_each_answer_is_gos": 5.6,
    },
    "tests/test_idle.py": {
        "test_a_cluster_ends_when_its_worker_goes_on_to_tests_that_need_none": 3.1,
    },
    "tests/test_share.py": {
        "test_a_proof_goes_on_from_what_has_passed": 6.3,
        "test_a_find_is_told_with_what_plays_it_again": 5.4,
        "test_a_test_that_is_new_is_played_by_the_commits_that_follow": 3.6,
        "test_the_proof_is_played_on_request_alone": 2.7,
        "test_what_rotates_is_played_by_one_commit_in_so_many": 2.1,
    },
    "tests/webhook/test_faults.py": {
        "test_each_request_meets_each_fault": 1.8,
    },
}

LONG = {f"{file}::{name}": seconds for file, tests in _SECONDS.items() for name, seconds in tests.items()}


def seconds(test: str) -> float:
    """What a test takes of a processor, by its node id, with all its parameters; 0.0 for one that is not long."""
    return LONG.get(test.partition("[")[0], 0.0)
