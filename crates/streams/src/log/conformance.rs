//! What every log must do: the same cases for all of them.
//!
//! A log's tests write `conformance!(fixture)`, where `fixture` is a function
//! without arguments that gives something that is a [`fixture::LogFixture`]. The
//! cases run at the same time on one log: each makes topics and groups of its
//! own. They take nothing for granted about offsets but that they rise: a
//! log may leave some out.

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
            produce: records_come_back_as_they_were_sent, a_receipt_tells_where,
                keys_go_where_kafka_puts_them, order_is_kept, a_partition_can_be_named,
                a_partition_that_is_none_is_refused, a_record_too_large_is_refused,
                a_full_buffer_says_so, a_flush_leaves_nothing, many_threads_produce,
                a_receipt_is_not_needed;
            read: reading_begins_where_told, reading_begins_at_a_time, limits_hold,
                a_wait_ends_with_a_record, a_wait_is_interrupted, a_wait_ends_in_time,
                what_is_not_there_is_not_read, a_large_record_comes_whole;
            groups: one_member_reads_all, a_group_goes_on_where_it_was, metadata_comes_back,
                a_group_may_begin_at_the_end, groups_do_not_meet, a_bell_ends_a_wait,
                a_record_ends_a_wait, reading_goes_on_elsewhere, the_end_is_told,
                the_end_offset_is_known, several_topics_are_read;
            sharing: two_members_share, who_leaves_is_replaced, a_partition_is_released_first,
                members_come_and_go;
            transact: a_transaction_is_seen_whole, a_transaction_goes_to_several_partitions,
                who_left_is_fenced, commits_alone_are_a_transaction;
            admin: a_topic_is_described, a_topic_is_made_once, a_topic_grows,
                settings_are_kept, a_deleted_topic_is_gone, what_is_unknown_is_said,
                what_is_wrong_is_said, groups_are_described, offsets_are_set;
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
