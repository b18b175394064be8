//! The words every engine shares, and the hand-over between them and Ruby.
//!
//! An engine pushes units of [`work::Work`] into a [`pool::Pool`]. Ruby threads
//! each hold a [`thread::PoolThread`], take units and run them. The [`scheduler`] looks
//! at the pool from outside and lets [`policy`] decide how many threads may be
//! awake. Nothing here knows Ruby: what the Ruby VM has to do (yield, log) is
//! passed in as [`scheduler::SchedulerHooks`].
//!
//! ```
//! use chaton_core::pool::{queue::QueueLimits, thread::Take, Pool, PoolConfig};
//! use chaton_core::process::scoreboard::Scoreboard;
//! # use chaton_core::work::{Label, Shed, Work};
//! # struct Unit(u64);
//! # struct Name(u64);
//! # impl Label for Name {
//! #     fn describe(&self) -> String { format!("unit {}", self.0) }
//! #     fn id(&self) -> u64 { self.0 }
//! # }
//! # impl Work for Unit {
//! #     type Label = Name;
//! #     fn bytes(&self) -> usize { 8 }
//! #     fn label(&self) -> Name { Name(self.0) }
//! #     fn shed(self, _: Shed) {}
//! # }
//! let class = QueueLimits { count_max: 1024, bytes_max: 1 << 20, age_max_ms: 5_000 };
//! let pool = Pool::new(PoolConfig {
//!     threads_min: 1, threads_max: 4, queue: vec![class],
//!     stall_ns: 200_000, preempt_ns: 5_000_000, thread_idle_ns: 10_000_000_000,
//!     scoreboard: std::sync::Arc::new(Scoreboard::new(1).unwrap()), slot: 0,
//! }).unwrap();
//! let thread = pool.enter();
//! assert!(pool.push(0, Unit(7)).is_ok());
//! assert!(matches!(thread.take(), Take::Work(Unit(7))));
//! assert!(matches!(thread.take(), Take::Wait)); // the first is finished, nothing waits
//! ```

pub mod clock;
pub mod event_fd;
pub mod file_lock;
pub mod pool;
pub mod process;
pub mod random;
pub mod thread;
pub mod work;
