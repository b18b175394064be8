//! Records to be written to a log, and the way of those that an application has stored in a transaction of its own
//! database: who reads them there and who writes them to the log know each other only by this.

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Its topic.
    pub topic: &'a str,
    /// Its partition; `None`: by the hash of its key like Kafka's Java clients (murmur2), without a
    /// key in turn.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<&'a [u8]>,
    /// Its value; `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Its headers.
    pub headers: &'a [(&'a [u8], Option<&'a [u8]>)],
    /// Milliseconds since 1970; `None`: now.
    pub timestamp_ms: Option<i64>,
}

/// A record to be written, with its own copy of the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnedRecord {
    /// Its topic.
    pub topic: String,
    /// Its partition; `None`: by its key.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value; `None` is a tombstone.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; `None`: now.
    pub timestamp_ms: Option<i64>,
}

impl OwnedRecord {
    /// Calls `then` with the borrowed record.
    pub fn with<R>(&self, then: impl FnOnce(&NewRecord<'_>) -> R) -> R {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (&name[..], value.as_deref())).collect();
        then(&NewRecord {
            topic: &self.topic,
            partition: self.partition,
            key: self.key.as_deref(),
            value: self.value.as_deref(),
            headers: &headers,
            timestamp_ms: self.timestamp_ms,
        })
    }
}

/// Records that wait for a log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutboxStatus {
    /// Age of the oldest one (s), 0 when there is none.
    pub lag_s: f64,
    /// How many wait.
    pub waiting: u64,
    /// How many the log has refused.
    pub refused: u64,
}

/// What became of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It is durable in the log.
    Written,
    /// The log will never take this record.
    Refused(String),
    /// It was not written, or that is not known; another try may help.
    Failed(String),
}

/// Told what became of a record, on any thread. Must not block.
pub type OnDelivery = Box<dyn FnOnce(Delivery) + Send>;

/// Where the records go. Used by one thread.
pub trait Outlet: Send {
    /// Hands a record over, behind those of its key that were handed over before. Does not wait for the log.
    fn send(&mut self, record: OwnedRecord, done: OnDelivery);

    /// Gives up what is not written yet, as far as that is possible.
    fn reset(&mut self);

    /// What the log has complained about last, since this was called the last time.
    fn complaint(&mut self) -> Option<String>;

    /// The log, for people.
    fn address(&self) -> String;
}
