//! The boundary between Ruby and the engines.
//!
//! The only crate that knows both. The rules are in `ext/chaton/README.md`: Rust threads never call
//! Ruby, the GVL is released in one place (`gvl`), no owned Rust value lives in a frame that Ruby
//! may jump over, and handles know which process made them (`handle`).

// The function that `magnus::init` exports is generated without documentation.
#![allow(missing_docs)]

mod admin;
mod command;
mod convert;
mod document_sections;
mod engine;
mod error;
mod gvl;
mod gvl_events;
mod gvl_tracker;
mod handle;
mod in_flight;
mod jobs;
mod live;
mod memory;
mod names;
mod outbox;
mod pool;
mod preempt;
mod ruby_version;
mod scoreboard;
mod stack;
mod streams;
mod symbol;
mod traces;
mod transaction;
mod web;

use chaton_core::log::{self, Output};
use magnus::{function, prelude::*, Error, RString, Ruby, TypedData};

/// Makes this process the parent of descendants whose own parent died (Linux).
fn become_subreaper() -> bool {
    // SAFETY: prctl with a plain flag.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0 }
}

/// Writes lines of the log to standard output, or to standard error. Only a file's disk is waited
/// for, without the GVL.
fn write_log(lines: RString, to_stderr: bool) {
    // SAFETY: copied before any Ruby code runs.
    let lines = unsafe { lines.as_slice() }.to_vec();
    let output = if to_stderr { Output::Stderr } else { Output::Stdout };
    if gvl::without_gvl_to_the_end(|| log::write(output, &lines)).is_none() {
        // An interrupt is pending; the line is not lost for that.
        log::write(output, &lines);
    }
}

/// Looks up a wrapped type's class while there is only one thread. Two threads that
/// look it up at the same time could deadlock: the lookup calls Ruby, which may switch
/// to the other thread, and that one would wait for the lookup and hold the GVL.
fn settle<T: TypedData>(ruby: &Ruby) {
    T::class(ruby);
}

/// Called by Ruby when the shared object is loaded.
#[magnus::init(name = "chaton_native")]
fn init(ruby: &Ruby) -> Result<(), Error> {
    ruby_version::check(ruby)?;
    chaton_core::forks::watch();
    let chaton = ruby.define_module("Chaton")?;
    let native = chaton.define_module("Native")?;
    native.define_singleton_method("become_subreaper", function!(become_subreaper, 0))?;
    native.define_singleton_method("write_log", function!(write_log, 2))?;
    native.define_singleton_method("log_json=", function!(log::set_json, 1))?;
    native.define_singleton_method("spawn", function!(command::spawn, 3))?;
    scoreboard::define(ruby, native)?;
    admin::define(ruby, native)?;
    in_flight::define(ruby, native)?;
    pool::define(ruby, native)?;
    traces::native::define(native)?;
    memory::define(ruby, native)?;
    web::pinned_strings::define(ruby, native)?;
    web::request::define(ruby, native)?;
    web::streamed_body::define(ruby, native)?;
    web::engine::define(ruby, native)?;
    live::define(ruby, native)?;
    settle::<scoreboard::RbScoreboard>(ruby);
    settle::<admin::RbAdmin>(ruby);
    settle::<in_flight::RbInFlightTable>(ruby);
    settle::<in_flight::RbDeathTable>(ruby);
    settle::<pool::RbPool>(ruby);
    settle::<memory::collector::RbCollector>(ruby);
    settle::<memory::gc_monitor::GcStartMarker>(ruby);
    settle::<memory::tracer::RbTracer>(ruby);
    settle::<pool::RbPoolThread>(ruby);
    settle::<web::pinned_strings::PinnedStringsMarker>(ruby);
    settle::<web::request::Request>(ruby);
    settle::<web::engine::RbWeb>(ruby);
    settle::<live::RbLive>(ruby);
    {
        jobs::define(ruby, native)?;
        settle::<jobs::client::RbJobsClient>(ruby);
        settle::<jobs::job::RbJob>(ruby);
        settle::<jobs::engine::RbJobs>(ruby);
    }
    streams::define(ruby, native)?;
    {
        transaction::define(native)?;
        outbox::define(ruby, native)?;
    }
    Ok(())
}
