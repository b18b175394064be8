//! Handles that know which process made them.
//!
//! A fork copies a handle but not the threads behind it, and it copies locks that may
//! be held. So in a forked child a handle raises an error when it is used and is
//! leaked instead of dropped.

use std::mem::ManuallyDrop;

pub use chaton_core::forks::count as generation;
use magnus::Error;

use crate::error;

/// A value that is valid only in the process that made it.
pub struct Handle<T> {
    made_in: u32,
    value: ManuallyDrop<T>,
}

impl<T> Handle<T> {
    /// Wraps a value made in this process.
    pub fn new(value: T) -> Self {
        Self { made_in: generation(), value: ManuallyDrop::new(value) }
    }

    /// Whether this process made it.
    pub fn is_ours(&self) -> bool {
        self.made_in == generation()
    }

    /// The value.
    ///
    /// # Errors
    /// `Chaton::ForkedError` in a forked child.
    pub fn get(&self) -> Result<&T, Error> {
        if self.is_ours() {
            return Ok(&self.value);
        }
        Err(error::forked())
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here, and not used after.
            unsafe { ManuallyDrop::drop(&mut self.value) };
        }
    }
}
