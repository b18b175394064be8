//! Writing records that failed too often to their dead-letter topic.

use std::sync::Arc;

use chaton_core::calendar::iso_8601;

use super::super::assigned_partition::AssignedPartition;
use super::super::partition_state::PendingDeadLetter;
use super::Poller;
use crate::log::{self, Partition, Producer};
use crate::receipt::Receipt;
use crate::record::OwnedRecord;

impl Poller {
    pub(super) fn send_dead_letter(
        &mut self,
        partition: &Arc<AssignedPartition>,
        letter: Arc<PendingDeadLetter>,
    ) {
        let record = record_of(&letter, &self.group.settings.name, &partition.partition);
        let owner = partition.clone();
        let receipt = Arc::new(Receipt::with_callback(1, move |receipt: &Receipt| {
            let failure = receipt.failures().into_iter().next().map(|(_, error)| error.message);
            if failure.is_none() {
                owner.route.count_dead_letter();
            }
            owner.group.dead_letter_ended(&letter.topic, failure.as_deref());
            owner.dead_letter_ended(&letter, failure.is_none());
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
    let copied = record.headers().map(|(name, value)| (name.to_vec(), value.map(<[u8]>::to_vec)));
    let mut headers: Vec<_> = copied.collect();
    let added = [
        ("source_topic", partition.topic.to_string()),
        ("source_partition", partition.number.to_string()),
        ("source_offset", record.offset().to_string()),
        ("source_consumer_group", group.to_owned()),
        ("source_attempts", letter.attempts().to_string()),
        ("error_class", letter.class.clone()),
        ("error_message", letter.message.clone()),
        ("failed_at", iso_8601(letter.failed_at_ms)),
    ];
    headers.extend(added.map(|(name, value)| (name.into(), Some(value.into_bytes()))));
    OwnedRecord {
        topic: letter.topic.clone(),
        partition: None,
        key: record.key().map(<[u8]>::to_vec),
        value: record.value().map(<[u8]>::to_vec),
        headers,
        timestamp_ms: None,
    }
}
