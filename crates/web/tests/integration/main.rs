//! The web engine over real sockets, a module for each subject.

mod budget;
mod descriptors;
mod forwarded;
mod http2;
mod http2_client;
mod http2_frames;
mod life;
mod proxy_protocol;
mod requests;
mod responses;
mod scoreboard;
mod static_files;
mod support;
mod timeouts;
