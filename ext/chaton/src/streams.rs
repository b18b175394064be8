//! Streams at the boundary to Ruby.

pub mod batch;
pub mod client;
mod detached_batch;
pub mod engine;
pub mod log_error;
pub mod new_record;
mod position;
pub mod reader;
pub mod receipt;
pub mod record;

use magnus::{Error, RModule, Ruby};

/// Defines the classes.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    record::define(ruby, native)?;
    batch::define(ruby, native)?;
    detached_batch::define(ruby, native)?;
    receipt::define(ruby, native)?;
    reader::define(ruby, native)?;
    client::define(ruby, native)?;
    engine::define(ruby, native)?;
    crate::settle::<record::RbRecord>(ruby);
    crate::settle::<batch::RbBatch>(ruby);
    crate::settle::<receipt::RbReceipt>(ruby);
    crate::settle::<reader::RbReader>(ruby);
    crate::settle::<client::RbStreamsClient>(ruby);
    crate::settle::<engine::RbStreams>(ruby);
    Ok(())
}
