//! Memory under control: what a process and its container use ([`readings`]),
//! when to collect ([`collect`]), and which code allocated what survived
//! ([`profile`]). Decisions and bookkeeping only: it calls no collector, and
//! knows no Ruby.

pub mod collect;
pub mod profile;
pub mod readings;
