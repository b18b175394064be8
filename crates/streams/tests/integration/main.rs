//! The streams engine on logs in memory, on SQLite and on a real broker, a module for each subject.

mod engine_ends;
mod engine_faults;
mod engine_flow;
mod engine_local;
mod engine_model;
mod engine_support;
mod engine_threads;
mod kafka_conformance;
mod kafka_credentials;
mod kafka_groups;
mod kafka_memory;
mod kafka_records;
mod kafka_settings;
mod kafka_support;
mod kafka_transactions;
mod kafka_trouble;
mod local_processes;
