//! The conformance suite that every log passes.
//!
//! A log's tests write `conformance!(fixture)`, where `fixture` is a function that returns a
//! [`fixture::LogFixture`]. The cases run concurrently on one log, each with its own topics and
//! groups. They only assume that offsets rise, because a log may leave some out.

pub mod admin;
pub mod fixture;
pub mod groups;
pub mod produce;
pub mod read;
pub mod sharing;
pub mod transact;

/// One `#[test]` for each case.
#[macro_export]
macro_rules! conformance {
    ($fixture:expr) => {
        $crate::conformance! { @cases $fixture =>
            produce: records_come_back_as_they_were_sent, a_receipt_tells_partition_and_offset,
                keys_go_to_the_same_partitions_as_in_kafka, order_is_kept, a_partition_can_be_named,
                an_unknown_partition_is_refused, a_record_too_large_is_refused,
                a_full_buffer_is_reported, a_flush_empties_the_buffer, many_threads_produce,
                a_receipt_is_not_needed;
            read: reading_begins_at_the_given_position, reading_begins_at_a_time, limits_hold,
                a_wait_ends_with_a_record, a_wait_is_interrupted, a_wait_ends_in_time,
                an_unknown_partition_is_not_read, a_large_record_is_read_whole;
            groups: one_member_reads_all, a_group_continues_at_its_commits, metadata_is_kept_with_the_commit,
                a_group_can_begin_at_the_end, a_group_that_began_at_the_end_goes_on_from_there,
                groups_are_independent, a_notifier_ends_a_wait, a_record_ends_a_wait, a_seek_moves_the_position, the_end_of_a_partition_is_reported,
                the_end_offset_is_known, several_topics_are_read;
            sharing: two_members_share, the_partitions_of_a_leaving_member_are_reassigned, a_partition_moves_after_its_release,
                members_come_and_go;
            transact: a_transaction_is_visible_as_a_whole, a_transaction_goes_to_several_partitions,
                a_member_that_left_is_fenced, commits_alone_are_a_transaction;
            admin: a_topic_is_described, a_topic_is_created_once, a_topic_grows,
                settings_are_kept, a_deleted_topic_is_gone, unknown_topics_are_reported,
                wrong_arguments_are_reported, groups_are_described, offsets_are_set;
        }
    };
    (@cases $fixture:expr => $($theme:ident: $($case:ident),+;)+) => {
        $($(
            #[test]
            fn $case() {
                $crate::log::conformance::$theme::$case(&$fixture());
            }
        )+)+
    };
}
