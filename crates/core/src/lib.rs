//! What every engine shares: the contract between an engine and its worker, the
//! pool of Ruby threads with its work queue, and what processes share.
//!
//! An engine puts units of [`work::Work`] into the queue of a [`pool::Pool`]. Ruby
//! threads each hold a [`pool::thread::PoolThread`], take work and run it. The
//! [`pool::scheduler`] watches the pool from outside; [`pool::policy`] decides how
//! many threads may be awake. Nothing here knows Ruby.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use chaton_core::pool::{queue::QueueLimits, thread::Take, Pool, PoolSettings};
//! use chaton_core::process::scoreboard::Scoreboard;
//! use chaton_core::work::{Role, Work};
//!
//! struct Request(u64);
//! impl Work for Request {
//!     fn role(&self) -> Role { Role::Web }
//!     fn id(&self) -> u64 { self.0 }
//!     fn describe(&self) -> String { format!("request {}", self.0) }
//!     fn log_context(&self) -> Vec<(&'static str, String)> { vec![] }
//!     fn bytes(&self) -> usize { 8 }
//!     fn release(self: Arc<Self>) {}
//!     fn abandon(self: Arc<Self>) {}
//! }
//!
//! let settings = PoolSettings {
//!     threads_min: 1, threads_max: 4,
//!     blocked: Duration::from_micros(100), stall: Duration::from_micros(200), quantum_min: Duration::from_millis(5),
//!     preempt: true, background_share: 10,
//!     thread_idle: Duration::from_secs(10),
//!     gvl_wait: false, cpu_affinity: false, slot: 0, orphan_exit: Duration::from_secs(30),
//! };
//! let pool = Pool::new(settings, Arc::new(Scoreboard::new(1).unwrap()), false).unwrap();
//! let limits = QueueLimits { count_max: 1024, bytes_max: 1 << 20, age_max: Duration::from_secs(5) };
//! pool.register(Role::Web, limits);
//! let thread = pool.enter();
//! assert!(pool.enqueue(Arc::new(Request(7))).is_ok());
//! pool.wake_thread();
//! assert!(matches!(thread.take(), Take::Work(work) if work.id() == 7));
//! assert!(matches!(thread.take(), Take::Wait)); // the first is finished, nothing waits
//! ```

mod atomic_text;
pub mod backoff;
pub mod calendar;
#[cfg_attr(loom, path = "../loom/clock.rs")]
pub mod clock;
pub mod engine;
#[cfg_attr(loom, path = "../loom/event_fd.rs")]
pub mod event_fd;
pub mod file_lock;
pub mod forks;
pub mod idle_wait;
pub mod local_disk;
pub mod log;
#[cfg(all(test, loom))]
#[path = "../loom/models.rs"]
mod models;
pub mod outbox;
pub mod pool;
pub mod process;
pub mod settings;
mod shared_mapping;
#[cfg_attr(loom, path = "../loom/sync.rs")]
mod sync;
pub mod thread;
pub mod thread_probe;
pub mod work;
