//! Memory figures of processes and containers ([`readings`]), the decisions when to
//! collect ([`collect`]) and how much may be allocated until then ([`eden`]), and profiles of allocations by code ([`profile`]). Decisions
//! and bookkeeping only: this crate calls no collector and knows no Ruby.

pub mod collect;
pub mod eden;
pub mod profile;
pub mod readings;
