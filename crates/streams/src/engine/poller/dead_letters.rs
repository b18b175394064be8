//! Writing records that failed too often to their dead-letter topic.

use std::sync::Arc;

use chaton_core::calendar::iso_8601;

use super::super::assigned_partition::AssignedPartition;
use super::super::partition_state::{LetterEnd, LetterSize, PendingDeadLetter};
use super::Poller;
use crate::log::{self, ErrorKind, Partition, Producer};
use crate::receipt::Receipt;
use crate::record::OwnedRecord;

/// How much of the error message is written when the whole letter is too large: one line of a list.
const MESSAGE_CHARS_SHORT: usize = 200;

/// The longest key that is written when the record is too large: others are what is too large.
const KEY_BYTES_KEPT: usize = 1_024;

impl Poller {
    pub(super) fn send_dead_letter(
        &mut self,
        partition: &Arc<AssignedPartition>,
        letter: Arc<PendingDeadLetter>,
    ) {
        let record = record_of(&letter, &self.group.settings.name, &partition.partition);
        let owner = partition.clone();
        let receipt = Arc::new(Receipt::with_callback(1, move |receipt: &Receipt| {
            let failure = receipt.failures().into_iter().next().map(|(_, error)| error);
            let is_invalid = failure.as_ref().is_some_and(|error| error.kind == ErrorKind::Invalid);
            let shrinks = is_invalid && letter.smaller().is_some();
            owner.group.dead_letter_ended(&letter.topic, failure.as_ref(), shrinks);
            let end = match failure {
                None => LetterEnd::Durable,
                Some(_) if is_invalid => LetterEnd::Invalid,
                Some(_) => LetterEnd::Failed,
            };
            if end == LetterEnd::Durable {
                owner.route.count_dead_letter();
            }
            owner.dead_letter_ended(&letter, end);
        }));
        let sent = self
            .producer()
            .and_then(|producer| record.with(|record| producer.send(record, Some((&receipt, 0)))));
        if let Err(error) = sent {
            // A record that the producer refuses does not settle its receipt.
            receipt.complete(0, Err(error));
        }
    }

    fn producer(&self) -> log::Result<Arc<dyn Producer>> {
        self.producer.get(|| (self.context.producer)())
    }
}

/// The dead letter: key, value and headers of the record, and headers that say what happened.
fn record_of(letter: &PendingDeadLetter, group: &str, partition: &Partition) -> OwnedRecord {
    let record = letter.record();
    let is_whole = letter.size == LetterSize::Whole;
    let has_value = letter.size != LetterSize::NoValue;
    let copied = record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
    let mut headers: Vec<_> = copied.take_while(|_| has_value).collect();
    let message: String = letter
        .message
        .chars()
        .take(if is_whole { usize::MAX } else { MESSAGE_CHARS_SHORT })
        .collect();
    let added = [
        ("source_topic", partition.topic.to_string()),
        ("source_partition", partition.number.to_string()),
        ("source_offset", record.offset().to_string()),
        ("source_consumer_group", group.to_owned()),
        ("source_attempts", letter.attempts().to_string()),
        ("error_class", letter.class.clone()),
        ("error_message", message),
        ("failed_at", iso_8601(letter.failed_at_ms)),
    ];
    let omitted = record.value().filter(|_| !has_value).map(|value| value.len().to_string());
    let omitted = omitted.map(|bytes| ("source_value_bytes", bytes));
    let added = added.into_iter().chain(omitted);
    headers.extend(added.map(|(name, value)| (name.into(), Some(value.into_bytes()))));
    let key = record.key().filter(|key| has_value || key.len() <= KEY_BYTES_KEPT);
    OwnedRecord {
        topic: letter.topic.clone(),
        partition: None,
        key: key.map(<[u8]>::to_vec),
        value: record.value().filter(|_| has_value).map(<[u8]>::to_vec),
        headers,
        timestamp_ms: None,
    }
}
