//! Chaton's web engine: HTTP/1.x on one IO thread, outside Ruby's lock.
//!
//! An [`Engine`] owns inherited listening sockets and every client connection.
//! It reads requests to their last byte, hands each one over as an
//! [`Exchange`] through a [`Sink`], and sends the answer that another thread
//! gives to that exchange, at whatever speed the client reads.
//!
//! * [`Config`], [`Limits`], [`Timeouts`]: what an engine is started with.
//! * [`RequestHead`]: a request line and its headers, checked strictly, as
//!   spans of one buffer ([`parse`]).
//! * [`Exchange`]: one request and the place for its answer.
//! * [`ReplyHead`]: writes an answer's head and decides its [`ReplyFraming`].
//! * [`Piece`]: a part of an answer's body that is sent from where it lies.
//!
//! A slow client never holds a producing thread: request bodies are complete
//! before the hand-over, answers wait in memory and then in a temporary file.

mod accept;
mod accept_policy;
mod access_log;
mod answer;
pub mod chunked;
mod completions;
mod config;
mod connection;
pub mod date;
mod engine;
mod error;
mod exchange;
pub mod head;
pub mod limits;
mod outbox;
mod piece;
mod registry;
pub mod reply_head;
mod request_body;
mod shared;
mod sink;
mod socket;
mod stats;
pub mod status;
pub mod target;
mod unread;
mod wire_text;

pub use answer::{Gone, Room};
pub use chunked::{ChunkError, ChunkedDecoder};
pub use config::{AccessLog, Config, Listener, ListenerKind};
pub use engine::Engine;
pub use error::Error;
pub use exchange::Exchange;
pub use head::{parse, BodyFraming, HeadError, Parsed, RequestHead, Span, Version};
pub use limits::{Limits, Timeouts};
pub use piece::Piece;
pub use reply_head::{BodySize, Finished, ReplyError, ReplyFraming, ReplyHead, RequestFacts};
pub use request_body::RequestBody;
pub use sink::Sink;
pub use stats::Stats;
