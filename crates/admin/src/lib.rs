//! The admin endpoint: a small HTTP server that tells load balancers and people how a server is.
//!
//! It runs in a process of its own, which loads no application ([`server::run_process`]), or on a
//! thread of a server without workers ([`server::AdminThread`]). What it answers comes from the
//! scoreboard, which workers write, and from the reports of the process that supervises them
//! ([`tree::TreeReport`]). No worker is asked, so that a busy or hung one hides nothing.

mod access;
mod answer;
mod config;
mod connection;
pub mod dashboard;
pub mod health;
pub mod metrics;
mod process_reader;
pub mod queues;
mod request_head;
mod routes;
pub mod server;
pub mod state;
mod statsd;
pub mod tree;
mod waiting_clients;

pub use answer::HEADERS;
pub use config::{AdminListener, Config, StatsdConfig};
