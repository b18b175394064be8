//! The memory of a process, as far as it needs Ruby: the collector and when it
//! runs, the allocator, and the tracer of allocations.

pub mod allocator;
pub mod collection_summary;
pub mod collector;
pub mod eden;
pub mod gc_api;
pub mod gc_monitor;
pub mod gc_stat;
pub mod gvl_timer;
pub mod main_stack;
pub mod readings;
pub mod render;
#[cfg_attr(not(target_os = "linux"), allow(dead_code, unused_imports))]
pub mod thread_memory;
pub mod tracer;
pub mod tracer_hooks;
pub mod tracer_state;
pub mod tracer_tags;

use magnus::{function, prelude::*, Error, RModule, Ruby};

/// Defines `Chaton::Native::Memory`, `Collector` and `Tracer`.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let memory = native.define_module("Memory")?;
    memory.define_singleton_method("allocator", function!(allocator::figures, 0))?;
    memory.define_singleton_method("purge", function!(allocator::purge, 0))?;
    memory.define_singleton_method("release_main_stack", function!(main_stack::release, 0))?;
    memory.define_singleton_method("background", function!(allocator::background, 1))?;
    readings::define(ruby, memory)?;
    collector::define(ruby, native)?;
    tracer::define(ruby, native)?;
    render::define(native)
}
