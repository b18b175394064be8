//! What every store must do: the same cases for all of them.
//!
//! A store's tests write `conformance!(fresh)`, where `fresh` is a function
//! without arguments that opens an empty place with default options.

pub(crate) mod batches;
pub(crate) mod bench;
pub(crate) mod claims;
pub(crate) mod crowd;
pub(crate) mod due;
pub(crate) mod entries;
pub(crate) mod limits;
pub(crate) mod locks;
pub(crate) mod nests;
pub(crate) mod payloads;
pub(crate) mod peers;
pub(crate) mod places;
pub(crate) mod settles;
pub(crate) mod small;
pub(crate) mod waits;

/// One `#[test]` for each case.
macro_rules! conformance {
    ($fresh:expr) => {
        $crate::store::conformance::conformance! { @cases $fresh =>
            claims: first_in_is_first_out, queues_are_emptied_in_the_order_asked,
                a_claim_takes_no_more_than_asked, drained_means_that_nothing_is_left,
                a_paused_queue_gives_nothing_until_it_is_resumed,
                what_is_in_flight_is_listed_by_owner_and_ticket,
                one_push_goes_to_several_queues_and_the_schedule;
            settles: each_outcome_goes_to_its_place, back_is_the_front_in_the_old_order,
                back_goes_to_the_queue_it_came_from, a_settle_comes_before_the_claim,
                what_is_gone_is_counted_and_left_alone, a_settle_for_another_owner_does_nothing,
                a_fenced_settle_sets_nothing_free;
            payloads: any_bytes_survive_every_step, a_megabyte_survives_every_step,
                any_name_will_do_for_a_queue;
            due: due_jobs_move_in_the_order_of_their_times, no_more_move_than_asked,
                nothing_due_tells_when_something_is, the_stamp_leaves_all_else_as_it_was,
                what_is_no_job_goes_to_the_dead_set_whole, due_jobs_are_claimed_as_they_are,
                a_claim_of_due_jobs_buries_what_is_no_job,
                a_claimed_due_job_goes_back_to_its_queue, a_key_pushes_once,
                a_key_pushes_again_when_its_time_is_over;
            locks: a_held_lock_keeps_only_its_own_job_out, a_lock_works_within_one_push,
                only_its_holder_gives_a_lock_up, a_settle_gives_a_lock_up,
                a_lock_ends_by_itself, a_job_is_not_held_up_by_its_own_lock,
                a_scheduled_job_holds_its_lock;
            limits: no_limits_no_waiting, so_many_run_at_once_and_no_more,
                a_slot_belongs_to_owner_and_ticket, recovering_an_owner_frees_its_slots,
                a_slot_is_not_held_for_ever, a_window_slides, a_bucket_refills_evenly,
                limits_are_granted_together_or_not_at_all, the_latest_of_known_times_counts,
                keys_do_not_meet;
            batches: a_batch_counts_and_calls_back_once, nothing_fires_before_it_is_closed,
                an_empty_batch_is_over_at_once, complete_comes_before_success,
                the_first_death_is_told_once, what_died_may_still_succeed,
                an_unknown_batch_is_no_matter, callbacks_can_be_replaced,
                a_batch_is_forgotten, only_stored_jobs_count;
            nests: a_parent_waits_for_its_child, a_failed_child_completes_its_parent,
                success_climbs_up;
            places: a_place_is_listed_by_pages, a_job_is_found_wherever_it_is,
                places_are_cleared, clearing_frees_locks, the_dead_set_has_a_size,
                the_dead_set_forgets, sizes_are_counted, queues_are_described;
            entries: an_entry_is_removed_once, removing_frees_the_lock_and_tells_the_batch,
                killing_frees_the_lock_and_tells_the_batch, requeueing_frees_nothing,
                an_entry_is_requeued_once, a_retry_is_requeued_with_one_try_less,
                what_is_gone_cannot_be_requeued, an_entry_is_killed_once,
                of_equal_jobs_one_goes;
            peers: a_first_beat_is_new, silence_has_a_length, a_process_is_described, beats_add_up,
                an_owner_with_jobs_is_not_forgotten, whoever_claims_is_known,
                signals_wait_for_their_process;
            small: a_cancel_is_remembered, a_small_hash_is_kept, a_small_hash_ends;
            waits: arm_says_what_is_there, a_push_ends_the_wait,
                a_push_between_arm_and_wait_counts, the_schedule_ends_the_wait,
                a_cancel_ends_the_wait, a_resumed_queue_ends_the_wait,
                what_goes_back_ends_the_wait, an_interrupt_ends_the_wait,
                an_interrupt_is_kept_for_the_next_wait, time_ends_the_wait;
            crowd: eight_claim_each_job_once, a_push_is_seen_whole,
                pushers_and_claimers_at_once, two_that_recover_settle_once,
                due_jobs_are_moved_once, a_tick_is_pushed_by_one, a_lock_has_one_holder, a_batch_ends_once,
                limits_hold_in_a_crowd;
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
