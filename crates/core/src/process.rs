//! What a worker shares with the other processes of its tree, and the events it
//! hands to its own support thread.

pub mod channel;
pub mod events;
pub mod in_flight;
pub mod scoreboard;
