//! Being written.
use super::{Arc, Kit, Result, StoreError, StoreOptions};
/// Being written.
///
/// # Errors
/// Always.
pub fn kit(_: &StoreOptions) -> Result<Arc<dyn Kit>> {
    Err(StoreError::refused("redis: being written"))
}
