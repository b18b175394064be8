//! Records that an application has stored in a transaction of its own database, on their way to a log. Who reads them
//! there and who writes them to the log know each other only by this.

/// A record to be written to a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxRecord {
    /// Its topic.
    pub topic: String,
    /// Its partition; `None`: by its key.
    pub partition: Option<i32>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Milliseconds since 1970; `None`: when the log writes it.
    pub timestamp_ms: Option<i64>,
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
    fn send(&mut self, record: OutboxRecord, done: OnDelivery);

    /// Gives up what is not written yet, as far as that is possible.
    fn reset(&mut self);

    /// What the log has complained about last, since this was called the last time.
    fn complaint(&mut self) -> Option<String>;

    /// The log, for people.
    fn address(&self) -> String;
}
