//! `Chaton::Native::InFlightTable`: which jobs or batches the workers' threads have started, and
//! `Chaton::Native::DeathTable`: which batches ran when workers died.

use std::sync::Arc;

use chaton_core::clock;
use chaton_core::process::deaths::DeathTable;
use chaton_core::process::in_flight::InFlightTable;
use magnus::{function, method, prelude::*, Error, RArray, RModule, Ruby};

use crate::error;

/// The in-flight table as a Ruby object. Forked children use it too, so it is no
/// [`crate::handle::Handle`].
#[magnus::wrap(class = "Chaton::Native::InFlightTable", free_immediately, size)]
pub struct RbInFlightTable(pub Arc<InFlightTable>);

impl RbInFlightTable {
    fn new(slots: usize, threads: usize) -> Result<Self, Error> {
        let in_flight = InFlightTable::new(slots, threads)
            .map_err(|e| error::system("the shared in-flight table", &e))?;
        Ok(Self(Arc::new(in_flight)))
    }

    fn open(fd: i32, threads: usize) -> Result<Self, Error> {
        let in_flight = InFlightTable::open(fd, threads)
            .map_err(|e| error::system("the inherited in-flight table", &e))?;
        Ok(Self(Arc::new(in_flight)))
    }

    fn fileno(&self) -> i32 {
        self.0.fd()
    }

    fn size(&self) -> usize {
        self.0.slots()
    }

    /// The slot's number, when there is such a slot.
    pub fn check(&self, ruby: &Ruby, slot: usize) -> Result<usize, Error> {
        if slot < self.0.slots() {
            return Ok(slot);
        }
        let message = format!("the in-flight table has {} slots, asked for {slot}", self.0.slots());
        Err(Error::new(ruby.exception_index_error(), message))
    }

    fn identity(ruby: &Ruby, rb_self: &Self, slot: usize) -> Result<Option<String>, Error> {
        Ok(rb_self.0.identity(rb_self.check(ruby, slot)?))
    }

    /// `[[ticket, jid, started_at_ms], …]`.
    fn started(ruby: &Ruby, rb_self: &Self, slot: usize) -> Result<RArray, Error> {
        let list = ruby.ary_new();
        for one in rb_self.0.started(rb_self.check(ruby, slot)?) {
            list.push((one.ticket, one.jid, one.started_at_ms))?;
        }
        Ok(list)
    }

    fn keep(ruby: &Ruby, rb_self: &Self, slot: usize) -> Result<(), Error> {
        rb_self.0.keep(rb_self.check(ruby, slot)?);
        Ok(())
    }

    fn is_kept(ruby: &Ruby, rb_self: &Self, slot: usize) -> Result<bool, Error> {
        Ok(rb_self.0.is_kept(rb_self.check(ruby, slot)?))
    }

    fn clear(ruby: &Ruby, rb_self: &Self, slot: usize) -> Result<(), Error> {
        rb_self.0.clear(rb_self.check(ruby, slot)?);
        Ok(())
    }
}

/// The table of deaths as a Ruby object, which forked children use, too.
#[magnus::wrap(class = "Chaton::Native::DeathTable", free_immediately, size)]
pub struct RbDeathTable(pub Arc<DeathTable>);

impl RbDeathTable {
    fn new() -> Result<Self, Error> {
        let deaths =
            DeathTable::new().map_err(|e| error::system("the shared table of deaths", &e))?;
        Ok(Self(Arc::new(deaths)))
    }

    fn open(fd: i32) -> Result<Self, Error> {
        let deaths =
            DeathTable::open(fd).map_err(|e| error::system("the inherited table of deaths", &e))?;
        Ok(Self(Arc::new(deaths)))
    }

    fn fileno(&self) -> i32 {
        self.0.fd()
    }

    fn add(&self, work: String, cause: String) {
        self.0.add(&work, &cause, (clock::wall_s() * 1e3) as u64);
    }
}

/// Defines the classes.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("InFlightTable", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbInFlightTable::new, 2))?;
    class.define_singleton_method("open", function!(RbInFlightTable::open, 2))?;
    class.define_method("fileno", method!(RbInFlightTable::fileno, 0))?;
    class.define_method("size", method!(RbInFlightTable::size, 0))?;
    class.define_method("identity", method!(RbInFlightTable::identity, 1))?;
    class.define_method("started", method!(RbInFlightTable::started, 1))?;
    class.define_method("keep", method!(RbInFlightTable::keep, 1))?;
    class.define_method("kept?", method!(RbInFlightTable::is_kept, 1))?;
    class.define_method("clear", method!(RbInFlightTable::clear, 1))?;
    let class = native.define_class("DeathTable", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbDeathTable::new, 0))?;
    class.define_singleton_method("open", function!(RbDeathTable::open, 1))?;
    class.define_method("fileno", method!(RbDeathTable::fileno, 0))?;
    class.define_method("add", method!(RbDeathTable::add, 2))?;
    Ok(())
}
