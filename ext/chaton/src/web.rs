//! The web engine's side of the boundary.

pub mod engine;
pub mod env;
pub mod header_keys;
pub mod pins;
pub mod reply;
pub mod request;
