//! The words every engine shares, and the hand-over between them and Ruby.
//!
//! An engine pushes units of [`work::Work`] into a [`hub::Hub`]. Ruby threads
//! each hold a [`seat::Seat`], take units and run them. The [`sentinel`] looks
//! at the pool from outside and lets [`policy`] decide how many threads may be
//! awake. Nothing here knows Ruby: what the Ruby VM has to do (yield, log) is
//! passed in as [`sentinel::Hooks`].
//!
//! ```
//! use chaton_core::{board::Board, hub::{Hub, Options}, lanes::LaneLimits, seat::Take};
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
//! let lane = LaneLimits { count_max: 1024, bytes_max: 1 << 20, age_max_ms: 5_000 };
//! let hub = Hub::new(Options {
//!     threads_min: 1, threads_max: 4, lanes: vec![lane],
//!     stall_ns: 200_000, preempt_ns: 5_000_000, thread_idle_ns: 10_000_000_000,
//!     board: std::sync::Arc::new(Board::new(1).unwrap()), slot: 0,
//! }).unwrap();
//! let seat = hub.enter();
//! assert!(hub.push(0, Unit(7)).is_ok());
//! assert!(matches!(seat.take(), Take::Work(Unit(7))));
//! assert!(matches!(seat.take(), Take::Wait)); // the first is finished, nothing waits
//! ```

pub mod board;
pub mod clock;
pub mod executor;
pub mod eye;
pub mod file_lock;
pub mod growth;
pub mod guard;
pub mod hub;
pub mod lanes;
pub mod leash;
pub mod ledger;
mod pace;
mod patience;
pub mod policy;
pub mod random;
pub mod seat;
pub mod sentinel;
pub mod thread;
pub mod wake;
pub mod work;
