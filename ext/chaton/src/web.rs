//! Ruby bindings of the web engine.

pub mod engine;
pub mod env_builder;
pub mod files;
pub mod header_keys;
pub mod pinned_strings;
pub mod request;
pub mod response;
pub mod streamed_body;
