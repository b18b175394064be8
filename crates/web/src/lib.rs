//! Chaton's web engine: HTTP/1.x on one IO thread, outside Ruby's lock.
//!
//! An [`Engine`] owns inherited listening sockets and every client connection.
//! It reads a request to its last byte, hands it over as an [`Exchange`]
//! through a [`Feed`](chaton_core::engine::Feed), and sends the response that another thread gives to
//! that exchange, at whatever speed the client reads.
//!
//! * [`Config`], [`Limits`], [`Timeouts`]: the settings of an engine.
//! * [`RequestHead`]: a request line and its headers, checked strictly, as
//!   spans of one buffer ([`parse`]).
//! * [`Exchange`]: one request and its response.
//! * [`ResponseHead`]: writes a response head and decides its [`ResponseFraming`].
//! * [`BodyPart`]: a part of a response body in the form that is cheapest to send.
//! * [`TlsSettings`]: how the connections of a listening socket are encrypted.
//! * [`StaticSettings`]: files that are served without the application.
//!
//! A slow client never holds a Ruby thread: request bodies are complete before
//! the hand-over (but for the paths of `stream_bodies`), responses wait in memory and then in a temporary file.

mod accept;
mod accept_policy;
mod access_log;
mod body_part;
mod budget;
pub mod byte_range;
pub mod chunked;
mod compression;
mod config;
mod connection;
mod connection_registry;
pub mod content_coding;
pub mod date;
mod disk;
mod engine;
mod error;
mod error_response;
mod exchange;
mod feeder;
mod file_answer;
mod forwarded;
pub mod head;
pub mod limits;
mod line_gate;
mod media_type;
mod path_patterns;
mod pending_response;
mod preconditions;
pub mod proxy_protocol;
mod read_buffer;
mod ready_queue;
mod relays;
mod request_body;
mod request_start;
pub mod response_head;
mod resumer;
mod send_buffer;
mod server_state;
mod server_timing;
mod socket;
mod static_files;
mod static_settings;
mod stats;
pub mod status;
mod streamed_body;
mod tls;

pub use access_log::AccessLog;
pub use body_part::BodyPart;
pub use budget::BudgetShare;
pub use chunked::{ChunkError, ChunkedDecoder};
pub use compression::CompressionSettings;
pub use config::{Config, Listener, ListenerKind, ProxyBind};
pub use engine::Engine;
pub use error::Error;
pub use exchange::{own_request_id, Exchange};
pub use feeder::{FeedStep, Feeder};
pub use file_answer::FileAnswer;
pub use forwarded::{
    Forwarded, ForwardedHeader, ForwardedSettings, Network, Peer, Trust, UnlistedPeers,
};
pub use head::{parse, BodyFraming, HeadError, Parsed, RequestHead, Span, Version};
pub use limits::{BudgetLimits, Limits, Timeouts};
pub use pending_response::{Capacity, ClientGone};
pub use request_body::RequestBody;
pub use response_head::{
    BodySize, CompressionOffer, EncodedHead, ResponseContext, ResponseError, ResponseFraming,
    ResponseHead,
};
pub use resumer::{Resumed, Resumer};
pub use server_timing::ServerTiming;
pub use static_files::open_below;
pub use static_settings::StaticSettings;
pub use stats::Stats;
pub use streamed_body::{BodyCut, BodyRead, StreamedBody};
pub use tls::{CertificateFiles, OldestVersion, TlsPeer, TlsSettings, VerifyMode};
