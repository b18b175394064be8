//! A unit of work: what an engine hands to a Ruby thread.

/// Why a unit was not run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shed {
    /// The queue's bound by count or bytes was reached.
    Full,
    /// It waited longer than the queue's bound by age.
    Old,
    /// The worker stops and will not run it.
    Stopped,
}

/// One unit of work, as the pool sees it.
pub trait Work: Send + 'static {
    /// What stays behind in the list of what is running while Ruby owns the
    /// unit; cheap to make (a shared pointer).
    type Label: Label;

    /// Bytes the unit holds while it waits, for the bound by bytes.
    fn bytes(&self) -> usize;

    /// The unit's label.
    fn label(&self) -> Self::Label;

    /// The unit will not be run: answer it (503), put it back (jobs).
    fn shed(self, why: Shed);
}

/// Names a running unit on request.
pub trait Label: Send + 'static {
    /// One line that a person recognises, as `GET /orders`.
    fn describe(&self) -> String;

    /// Number of the unit, unique within its engine.
    fn id(&self) -> u64;
}
