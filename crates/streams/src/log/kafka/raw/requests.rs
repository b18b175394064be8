//! Requests to the brokers. Each names the queue for its answer, which is read
//! while its event lives.

mod groups;
mod metadata;
mod options;
mod topics;

pub use groups::{
    committed, describe_groups, list_groups, read_committed, read_groups, read_names,
    read_set_committed, set_committed,
};
pub use metadata::{is_answered, metadata, TopicLayout};
pub use options::EventType;
pub use topics::{
    configure, create, delete, grow, offsets, read_done, read_offsets, read_settings, settings,
};
