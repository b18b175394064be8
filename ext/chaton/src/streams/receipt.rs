//! `Chaton::Native::Receipt`: whether produced records are durable.

use std::sync::Arc;
use std::time::Instant;

use chaton_streams::receipt::Receipt;
use magnus::{method, prelude::*, Error, RArray, RModule, Ruby};

use super::log_error;
use crate::convert::seconds;
use crate::gvl::{check_interrupts, without_gvl};
use crate::handle::Handle;

/// A receipt as a Ruby object.
#[magnus::wrap(class = "Chaton::Native::Receipt", free_immediately, size)]
pub struct RbReceipt(Handle<Arc<Receipt>>);

impl RbReceipt {
    /// Around a receipt.
    pub fn new(receipt: Arc<Receipt>) -> Self {
        Self(Handle::new(receipt))
    }

    /// Waits, without the GVL, until every record is durable; false when time
    /// is up. Raises the first failure.
    fn wait(&self, timeout_s: f64) -> Result<bool, Error> {
        let receipt = self.0.get()?;
        if !receipt.is_done() {
            wait_for(receipt, timeout_s)?;
        }
        if !receipt.is_done() {
            return Ok(false);
        }
        match receipt.failures().first() {
            Some((_, failed)) => Err(log_error::raised(failed)),
            None => Ok(true),
        }
    }

    fn is_done(&self) -> Result<bool, Error> {
        Ok(self.0.get()?.is_done())
    }

    fn failed(&self) -> Result<usize, Error> {
        Ok(self.0.get()?.failed())
    }

    /// `[[index, class name, message], …]` of the first failures.
    fn errors(ruby: &Ruby, rb_self: &Self) -> Result<RArray, Error> {
        let list = ruby.ary_new();
        for (index, failed) in rb_self.0.get()?.failures() {
            list.push((index, log_error::class_name(failed.kind), failed.message))?;
        }
        Ok(list)
    }

    fn partition(&self) -> Result<Option<i32>, Error> {
        Ok(self.0.get()?.metadata().map(|placed| placed.partition))
    }

    fn offset(&self) -> Result<Option<i64>, Error> {
        Ok(self.0.get()?.metadata().map(|placed| placed.offset))
    }
}

fn wait_for(receipt: &Arc<Receipt>, timeout_s: f64) -> Result<(), Error> {
    let until = Instant::now() + seconds("timeout_s", timeout_s)?;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        without_gvl(|| receipt.wait(left), &|| receipt.interrupt());
        check_interrupts()?;
        if receipt.is_done() || Instant::now() >= until {
            return Ok(());
        }
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Receipt", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("wait", method!(RbReceipt::wait, 1))?;
    class.define_method("done?", method!(RbReceipt::is_done, 0))?;
    class.define_method("failed", method!(RbReceipt::failed, 0))?;
    class.define_method("errors", method!(RbReceipt::errors, 0))?;
    class.define_method("partition", method!(RbReceipt::partition, 0))?;
    class.define_method("offset", method!(RbReceipt::offset, 0))?;
    Ok(())
}
