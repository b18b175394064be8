//! How a worker communicates with the supervisor, with sibling workers and with its
//! own support thread.

pub mod channel;
pub mod counters;
pub mod deaths;
pub mod events;
pub mod in_flight;
pub mod late_reports;
pub mod scoreboard;
pub mod supervisor_watch;
pub mod table;
pub mod times;
