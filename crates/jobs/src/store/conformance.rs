//! The conformance suite: the same cases for every store.
//!
//! A store's tests write `conformance!(fresh)`, where `fresh` is a function
//! without arguments that opens an empty store with default options.

pub(crate) mod acks;
pub(crate) mod batches;
pub(crate) mod claims;
pub(crate) mod concurrency;
pub(crate) mod due;
pub(crate) mod entries;
pub(crate) mod expiring;
pub(crate) mod harness;
pub(crate) mod limits;
pub(crate) mod lines;
pub(crate) mod lists;
pub(crate) mod locks;
pub(crate) mod nested_batches;
pub(crate) mod payloads;
pub(crate) mod priorities;
pub(crate) mod processes;
pub(crate) mod waits;

/// One `#[test]` for each case.
macro_rules! conformance {
    ($fresh:expr) => {
        $crate::store::conformance::conformance! { @cases $fresh =>
            claims: first_in_is_first_out, queues_are_emptied_in_the_requested_order,
                a_claim_takes_no_more_than_requested, drained_means_that_nothing_is_left,
                a_paused_queue_gives_nothing_until_it_is_resumed,
                jobs_in_flight_are_listed_by_owner_and_ticket,
                one_push_goes_to_several_queues_and_the_schedule;
            acks: each_outcome_stores_the_job_in_its_list, requeued_jobs_are_first_in_their_old_order,
                a_requeued_job_returns_to_its_queue, acks_come_before_the_claim,
                acks_of_missing_entries_are_counted_as_fenced, an_ack_for_another_owner_does_nothing,
                a_fenced_ack_releases_nothing;
            payloads: any_bytes_survive_every_step, a_megabyte_survives_every_step,
                any_name_is_allowed_for_a_queue;
            priorities: smaller_priorities_are_claimed_first, one_claim_goes_through_priorities_before_queues,
                a_queue_of_priorities_is_one_queue, every_way_into_a_queue_keeps_the_order,
                jobs_of_any_priority_are_removed_killed_and_found, a_called_job_goes_to_the_front_of_its_priority,
                jobs_of_any_priority_end_the_wait;
            due: due_jobs_move_in_the_order_of_their_times, no_more_than_max_are_moved,
                the_next_due_time_is_returned, moving_changes_only_enqueued_at,
                malformed_documents_go_to_the_dead_set_unchanged, due_jobs_are_claimed_unchanged,
                claiming_due_jobs_moves_malformed_ones_to_the_dead_set,
                a_claimed_due_job_is_requeued_to_its_queue, a_key_pushes_once,
                a_key_pushes_again_after_its_expiry;
            locks: a_held_lock_rejects_only_its_own_job, a_lock_works_within_one_push,
                only_its_holder_releases_a_lock, an_ack_releases_a_lock,
                a_lock_expires, a_job_is_not_rejected_by_its_own_lock,
                a_scheduled_job_holds_its_lock;
            limits: a_job_without_limits_is_granted, a_concurrency_limit_holds,
                a_slot_belongs_to_owner_and_ticket, recovering_an_owner_releases_its_slots,
                a_slot_expires, a_window_slides, a_bucket_refills_evenly,
                limits_are_granted_together_or_not_at_all, the_latest_of_known_times_counts,
                keys_are_independent;
            lines: jobs_are_called_in_the_order_of_their_places, a_called_job_has_its_slot,
                a_called_job_that_does_not_come_loses_its_slot, entries_that_are_gone_are_skipped,
                a_paused_queue_holds_no_line_up, a_raised_limit_calls_more, a_hold_that_ends_calls_the_next,
                the_death_of_an_owner_calls_the_next, an_expired_job_passes_its_slot_on,
                a_job_keeps_its_place_behind_another_limit, the_first_jobs_get_the_times_of_tokens,
                an_uncalled_job_asks_again_with_its_place, a_long_line_is_called_one_by_one,
                a_clock_that_is_set_back_holds_no_rate_up;
            batches: a_batch_counts_and_calls_back_once, no_callback_fires_before_the_batch_is_closed,
                an_empty_batch_succeeds_at_once, complete_comes_before_success,
                the_death_callback_fires_once, a_dead_job_may_still_succeed,
                an_unknown_batch_is_ignored, callbacks_can_be_replaced,
                callbacks_come_in_the_order_of_the_jobs_ends,
                a_batch_expires, only_stored_jobs_count, copies_of_a_job_count_once,
                a_job_pushed_twice_is_one_job, an_open_batch_is_removed,
                batches_of_owners_that_are_gone_are_removed;
            nested_batches: a_parent_waits_for_its_child, a_failed_child_completes_its_parent,
                success_reaches_all_parents, a_parent_waits_for_closed_children_only;
            lists: jobs_are_listed_by_pages, a_job_is_found_wherever_it_is,
                queues_and_sets_are_cleared, clearing_releases_locks, the_dead_set_is_limited_in_size,
                the_dead_set_is_limited_in_age, sizes_are_counted, queues_are_described;
            entries: an_entry_is_removed_once, removing_releases_the_lock_and_updates_the_batch,
                killing_releases_the_lock_and_updates_the_batch, requeueing_releases_nothing,
                an_entry_is_requeued_once, a_retry_is_requeued_with_one_try_less,
                a_missing_entry_cannot_be_requeued, an_entry_is_killed_once,
                one_of_equal_jobs_is_removed, an_entry_is_added_to_a_set,
                an_added_entry_limits_the_dead_set, an_entry_gets_another_time;
            processes: a_first_heartbeat_is_new, the_age_of_a_heartbeat_is_known, a_process_is_described, heartbeats_add_up_their_counts,
                a_counter_is_reset,
                an_owner_with_jobs_is_not_forgotten, a_claiming_owner_is_known,
                signals_are_delivered_at_a_heartbeat;
            expiring: a_cancel_is_kept, a_small_hash_is_kept, a_small_hash_expires;
            waits: arm_returns_what_is_available, a_push_ends_the_wait,
                a_push_between_arm_and_wait_counts, the_schedule_ends_the_wait,
                a_cancel_ends_the_wait, a_resumed_queue_ends_the_wait,
                a_requeued_job_ends_the_wait, an_interrupt_ends_the_wait,
                an_interrupt_is_kept_for_the_next_wait, the_timeout_ends_the_wait;
            concurrency: eight_claim_each_job_once, a_push_is_atomic,
                pushers_and_claimers_at_once, concurrent_recoveries_requeue_each_job_once,
                due_jobs_are_moved_once, a_tick_is_pushed_by_one, a_lock_has_one_holder, a_batch_ends_once,
                limits_hold_under_concurrency;
        }
    };
    (@cases $fresh:expr => $($theme:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::store::conformance::$theme::$case(&$fresh);
            }
        )+)+
    };
}
pub(crate) use conformance;
