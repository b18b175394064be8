//! Memory figures of processes and containers ([`readings`]), the decision when to
//! collect ([`collect`]), and profiles of allocations by code ([`profile`]). Decisions
//! and bookkeeping only: this crate calls no collector and knows no Ruby.

pub mod collect;
pub mod profile;
pub mod readings;
