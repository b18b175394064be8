//! Traces: spans of the requests, jobs and batches that a worker runs, and of the jobs and records that it
//! writes, sent to a collector over OTLP/HTTP.
//!
//! A span is begun and ended on the Ruby thread that runs the work ([`tracing::Tracing`]), goes into a bounded
//! queue ([`span_queue::SpanQueue`]), and one thread sends what has gathered ([`exporter::Exporter`]). A full
//! queue drops spans and counts them; nobody ever waits for the collector.

mod collector_client;
mod config;
pub mod exporter;
pub mod otlp;
pub mod span_context;
pub mod span_queue;
pub mod tracing;
pub mod work_span;

pub use config::Config;
