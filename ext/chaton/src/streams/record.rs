//! `Chaton::Native::Record`: one record of a batch, made when user code uses it. Its key, value and
//! headers become Ruby objects when they are read.

use std::cell::Cell;
use std::sync::Arc;

use chaton_streams::batch::Batch;
use chaton_streams::record::Record;
use magnus::gc::Marker;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{
    method, prelude::*, DataTypeFunctions, Error, RArray, RHash, RModule, Ruby, TypedData, Value,
};
use rb_sys::VALUE;

use crate::convert::text;
use crate::names;

/// One record.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Record", mark, free_immediately, size)]
pub struct RbRecord {
    batch: Arc<Batch>,
    index: u32,
    deserializer: VALUE,
    value: Cell<VALUE>,
}

// SAFETY: only used and dropped by threads that hold the GVL.
unsafe impl Send for RbRecord {}
// SAFETY: as above.
unsafe impl Sync for RbRecord {}

impl DataTypeFunctions for RbRecord {
    fn mark(&self, marker: &Marker) {
        // SAFETY: nil, or what `deserializer=` of the batch was given.
        marker.mark(unsafe { Value::from_raw(self.deserializer) });
        // SAFETY: undefined (a special constant), or what `value` made.
        marker.mark(unsafe { Value::from_raw(self.value.get()) });
    }
}

/// Bytes as a Ruby String without an encoding.
pub fn binary(bytes: &[u8]) -> Value {
    // SAFETY: copies the bytes; only used with the GVL held.
    unsafe { Value::from_raw(rb_sys::rb_str_new(bytes.as_ptr().cast(), bytes.len() as _)) }
}

impl RbRecord {
    /// The record at this index of the batch's chunk, as a Ruby object.
    pub fn wrap(ruby: &Ruby, batch: Arc<Batch>, index: u32, deserializer: VALUE) -> Value {
        let value = Cell::new(rb_sys::Qundef as VALUE);
        ruby.obj_wrap(Self { batch, index, deserializer, value }).as_value()
    }

    fn record(&self) -> Record<'_> {
        self.batch.chunk().record(self.index as usize)
    }

    /// The value as the deserializer of the route makes it, once.
    fn value(ruby: &Ruby, rb_self: magnus::typed_data::Obj<Self>) -> Result<Value, Error> {
        let cached = rb_self.value.get();
        if cached != rb_sys::Qundef as VALUE {
            // SAFETY: made before, and kept alive by `mark`.
            return Ok(unsafe { Value::from_raw(cached) });
        }
        // SAFETY: nil, or what `deserializer=` was given; kept alive by `mark`.
        let deserializer = unsafe { Value::from_raw(rb_self.deserializer) };
        let value = if deserializer.is_nil() {
            rb_self.record().value().map_or_else(|| ruby.qnil().as_value(), binary)
        } else {
            deserializer.funcall("call", (rb_self,))?
        };
        rb_self.value.set(value.as_raw());
        Ok(value)
    }

    fn raw(&self) -> Option<Value> {
        self.record().value().map(binary)
    }

    fn key(&self) -> Option<Value> {
        self.record().key().map(binary)
    }

    fn has_key(&self) -> bool {
        self.record().key().is_some()
    }

    /// Names and values; the value of a name that comes several times is an Array.
    fn headers(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let hash = ruby.hash_new();
        for (name, value) in rb_self.record().headers() {
            let name = text(name);
            let value = value.map_or_else(|| ruby.qnil().as_value(), binary);
            let Some(before) = hash.get(name) else {
                hash.aset(name, value)?;
                continue;
            };
            match RArray::from_value(before) {
                Some(several) => several.push(value)?,
                None => hash.aset(name, ruby.ary_new_from_values(&[before, value]))?,
            }
        }
        Ok(hash)
    }

    fn timestamp_ms(&self) -> i64 {
        self.record().timestamp_ms()
    }

    fn offset(&self) -> i64 {
        self.record().offset()
    }

    fn topic(&self) -> Value {
        names::name(&self.batch.partition().topic)
    }

    fn partition(&self) -> i32 {
        self.batch.partition().number
    }
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Record", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_method("value", method!(RbRecord::value, 0))?;
    class.define_method("raw", method!(RbRecord::raw, 0))?;
    class.define_method("key", method!(RbRecord::key, 0))?;
    class.define_method("key?", method!(RbRecord::has_key, 0))?;
    class.define_method("headers", method!(RbRecord::headers, 0))?;
    class.define_method("timestamp_ms", method!(RbRecord::timestamp_ms, 0))?;
    class.define_method("offset", method!(RbRecord::offset, 0))?;
    class.define_method("topic", method!(RbRecord::topic, 0))?;
    class.define_method("partition", method!(RbRecord::partition, 0))?;
    Ok(())
}
