//! Tools of the tests and benchmarks: an open-loop load generator.
//!
//! A closed-loop generator sends the next request when the response to the last
//! one has come. While a server stands still nothing is sent, so the requests
//! that would have met the pause are never counted ("coordinated omission").
//! Here every request has its moment on a [`schedule::Schedule`], whatever the//! answers do, and its latency counts from that moment, also while it waits
//! for a free connection.
//!
//! [`load_run::LoadRun`] runs one constant rate against one server on this machine and
//! gives a [`load_report::LoadReport`]; `open-loop` is the program around it.
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
