//! Loom's locks and atomics with the interface of those in `src/sync.rs`.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

pub use crossbeam_utils::sync::{Parker, Unparker};

/// As `parking_lot::Mutex`: taking the lock gives no `Result`.
#[derive(Default)]
pub struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(Some(self.0.lock().unwrap()))
    }
}

/// Without its content while its thread waits for a [`Condvar`].
pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.0.as_ref().unwrap()
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().unwrap()
    }
}

/// As `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar(loom::sync::Condvar);

impl Condvar {
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().unwrap();
        guard.0 = Some(self.0.wait(held).unwrap());
    }

    /// The deadline never comes: a notification that is lost ends the model.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) {
        self.wait(guard);
    }
}

/// Loom's atomics. Loom takes `SeqCst` for `AcqRel`, but knows the fence of that order,
/// so each access with that order has a fence beside it, as on a CPU.
pub mod atomic {
    use loom::sync::atomic::fence;
    pub use std::sync::atomic::Ordering;
    use Ordering::SeqCst;

    fn fence_if_seq_cst(order: Ordering) {
        if order == SeqCst {
            fence(SeqCst);
        }
    }

    macro_rules! atomics {
        ($($name:ident: $value:ty),*) => { $(
            #[derive(Debug, Default)]
            pub struct $name(loom::sync::atomic::$name);

            // Not each of them is used with each type.
            #[allow(dead_code)]
            impl $name {
                pub fn new(value: $value) -> Self {
                    Self(loom::sync::atomic::$name::new(value))
                }

                pub fn load(&self, order: Ordering) -> $value {
                    fence_if_seq_cst(order);
                    self.0.load(order)
                }

                pub fn store(&self, value: $value, order: Ordering) {
                    self.0.store(value, order);
                    fence_if_seq_cst(order);
                }

                pub fn swap(&self, value: $value, order: Ordering) -> $value {
                    fence_if_seq_cst(order);
                    let before = self.0.swap(value, order);
                    fence_if_seq_cst(order);
                    before
                }

                pub fn compare_exchange(
                    &self,
                    from: $value,
                    to: $value,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$value, $value> {
                    fence_if_seq_cst(success);
                    let before = self.0.compare_exchange(from, to, success, failure);
                    fence_if_seq_cst(success);
                    before
                }
            }
        )* };
    }

    macro_rules! counters {
        ($($name:ident: $value:ty),*) => { $(
            #[allow(dead_code)]
            impl $name {
                pub fn fetch_add(&self, more: $value, order: Ordering) -> $value {
                    fence_if_seq_cst(order);
                    let before = self.0.fetch_add(more, order);
                    fence_if_seq_cst(order);
                    before
                }

                pub fn fetch_sub(&self, fewer: $value, order: Ordering) -> $value {
                    self.fetch_add(fewer.wrapping_neg(), order)
                }

                pub fn fetch_update(
                    &self,
                    success: Ordering,
                    failure: Ordering,
                    update: impl FnMut($value) -> Option<$value>,
                ) -> Result<$value, $value> {
                    fence_if_seq_cst(success);
                    let before = self.0.fetch_update(success, failure, update);
                    fence_if_seq_cst(success);
                    before
                }
            }
        )* };
    }

    atomics!(AtomicBool: bool, AtomicU8: u8, AtomicU64: u64, AtomicUsize: usize);
    counters!(AtomicU64: u64, AtomicUsize: usize);
}
