//! `Chaton::Native::StreamedBody`: the native part of the `rack.input` of a request whose body is
//! streamed (`lib/chaton/web/streamed_body.rb`).

use std::sync::Arc;
use std::time::Duration;

use chaton_web::{BodyCut, BodyRead, StreamedBody};
use magnus::{method, prelude::*, Error, RModule, RString, Ruby, Value};

use crate::gvl::{check_interrupts, without_gvl};
use crate::{error, handle};

/// Length of one wait; the engine's body timeout ends all of them.
const READ_WAIT: Duration = Duration::from_secs(60);

/// A body that still arrives.
#[magnus::wrap(class = "Chaton::Native::StreamedBody", free_immediately, size)]
pub struct RbStreamedBody {
    made_in: u32,
    body: Arc<StreamedBody>,
}

impl RbStreamedBody {
    /// The Ruby object of a body.
    pub fn wrap(ruby: &Ruby, body: Arc<StreamedBody>) -> Value {
        ruby.obj_wrap(Self { made_in: handle::generation(), body }).as_value()
    }

    fn open(&self) -> Result<&StreamedBody, Error> {
        let ours = self.made_in == handle::generation();
        ours.then_some(&*self.body).ok_or_else(error::forked)
    }

    /// The next bytes, at most so many; waits for them without the GVL. Nil at the end.
    fn take(ruby: &Ruby, rb_self: &Self, len_max: usize) -> Result<Option<RString>, Error> {
        let body = rb_self.open()?;
        loop {
            let read = without_gvl(|| body.read(len_max, READ_WAIT), &|| body.interrupt());
            // Bytes that were taken already must not be lost to an interrupt.
            match read {
                Some(Ok(BodyRead::Bytes(bytes))) => return Ok(Some(ruby.str_from_slice(&bytes))),
                Some(Ok(BodyRead::End)) => return Ok(None),
                Some(Err(BodyCut(why))) => return Err(error::named("RequestBodyError", why)),
                Some(Ok(BodyRead::Nothing)) | None => check_interrupts()?,
            }
        }
    }

    fn discard(&self) -> Result<(), Error> {
        self.open()?.close();
        Ok(())
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("StreamedBody", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_private_method("take", method!(RbStreamedBody::take, 1))?;
    class.define_private_method("discard", method!(RbStreamedBody::discard, 0))?;
    Ok(())
}
