//! The streams engine on logs in memory, on SQLite and on a real broker, a module for each subject.

mod engine_ends;
mod engine_faults;
mod engine_flow;
mod engine_local;
mod engine_model;
mod engine_support;
mod engine_threads;
#[cfg(feature = "kafka")]
mod kafka_conformance;
#[cfg(feature = "kafka")]
mod kafka_credentials;
#[cfg(feature = "kafka")]
mod kafka_groups;
#[cfg(feature = "kafka")]
mod kafka_memory;
#[cfg(feature = "kafka")]
mod kafka_records;
#[cfg(feature = "kafka")]
mod kafka_settings;
#[cfg(feature = "kafka")]
mod kafka_support;
#[cfg(feature = "kafka")]
mod kafka_transactions;
#[cfg(feature = "kafka")]
mod kafka_trouble;
mod local_processes;
