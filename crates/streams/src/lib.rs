//! Streams: records of topics, written by producers and read in batches by the members of consumer
//! groups.
//!
//! A [`log::RecordLog`] stores records: [`log::sqlite`] on this machine, or `log::kafka` with the
//! feature `kafka`. The [`engine`] reads a log for Ruby: one thread per consumer group polls its
//! [`log::GroupMember`] and hands [`batch::Batch`]es to an [`Feed`](chaton_core::engine::Feed). Nothing here
//! knows Ruby.
//!
//! ```
//! use chaton_streams::record::ChunkBuilder;
//! let mut builder = ChunkBuilder::default();
//! builder.push(7, 1_700_000_000_000, Some(b"k"), Some(b"value"), []);
//! let chunk = builder.finish();
//! assert_eq!(chunk.len(), 1);
//! assert_eq!(chunk.record(0).value(), Some(&b"value"[..]));
//! ```

pub mod admin_call;
pub mod batch;
pub mod commit_notes;
pub mod delivery_errors;
pub mod engine;
pub mod error;
pub mod log;
mod poll;
pub mod receipt;
pub mod record;
mod record_set;
pub mod settings;
pub mod shared_producer;
