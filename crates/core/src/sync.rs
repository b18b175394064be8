//! The locks, atomics and parkers of the pool.
//!
//! A build with `--cfg loom` takes `loom/sync.rs` in place of this file: the models in
//! `loom/` then run with every order of the threads' steps (`bin/check-memory loom`).

pub use crossbeam_utils::sync::{Parker, Unparker};
pub use parking_lot::{Condvar, Mutex};
pub use std::sync::atomic;
