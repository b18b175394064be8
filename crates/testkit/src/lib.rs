//! An open-loop load generator for tests and benchmarks.
//!
//! A closed-loop generator sends the next request after the response to the previous
//! one. While the server is stopped nothing is sent, so the requests
//! that would have been delayed are never counted ("coordinated omission").
//! Here every request has its time on a [`schedule::Schedule`], independent of//! responses, and its latency counts from then, also while it waits
//! for a free connection.
//!
//! [`load_run::LoadRun`] runs one constant rate against one server on this machine and
//! returns a [`load_report::LoadReport`]; `open-loop` is its program.
//!
//! ```
//! use chaton_testkit::schedule::Schedule;
//! let schedule = Schedule::new(500.0, 2.0).unwrap();
//! assert_eq!(schedule.count(), 1000);
//! assert_eq!(schedule.due_ns(500), 1_000_000_000);
//! ```

pub mod client_connection;
pub mod epoll;
pub mod load_options;
pub mod load_report;
pub mod load_run;
pub mod response_parser;
pub mod schedule;
pub mod server_address;
