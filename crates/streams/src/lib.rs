//! Streams: records of topics, read in batches by the members of consumer
//! groups and written by producers.
//!
//! A [`log::RecordLog`] is where records live: [`log::local`] on this machine, or
//! `log::kafka` with the feature `kafka`. The [`engine`] reads one for Ruby:
//! one thread per consumer group polls its [`log::GroupMember`] for ever, whatever
//! user code does, and hands [`engine::Turn`]s to a [`engine::Sink`]. Nothing
//! here knows Ruby.
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
pub mod engine;
pub mod error;
pub mod log;
pub mod receipt;
pub mod record;
pub mod settings;
