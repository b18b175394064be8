//! `Chaton::Native::Tracer`: which code allocates, and what of it survives.
//!
//! It samples in short windows only (`window_ms`), whose share of the time is `duty`
//! however long Ruby takes to open and close one. Whether sampled objects are still
//! alive is checked at the end of each collection's marking, at all times.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_core::clock;
use chaton_core::settings::nullable;
use chaton_memory::profile::{Frame, Limits, SourceInfo};
use magnus::rb_sys::{protect, AsRawValue, FromRawValue};
use magnus::{
    function, gc, method, prelude::*, DataTypeFunctions, Error, RHash, RModule, RString, Ruby,
    TypedData, Value,
};
use rb_sys::VALUE;
use serde::Deserialize;

use super::tracer_state::TracerState;
use super::{gvl_timer, tracer_hooks, tracer_state};
use crate::document_sections::parse;
use crate::error;
use crate::gvl::{check_interrupts, without_gvl};

/// Each but `worker` has an option `trace_…` in `memory { … }`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TracerSettings {
    every: u32,
    duty: f64,
    window_ms: f64,
    samples_max: usize,
    stacks_max: usize,
    depth_max: usize,
    #[serde(deserialize_with = "nullable")]
    worker: Option<u32>,
}

/// One profile, being taken or finished.
#[derive(TypedData)]
#[magnus(class = "Chaton::Native::Tracer", free_immediately, mark, compact, size)]
pub struct RbTracer {
    tracing: Box<TracerState>,
    allocated: VALUE,
    marked: VALUE,
    worker: Option<u32>,
    duty: f64,
    window: Duration,
    pause_ns: AtomicU64,
    windows: AtomicU64,
    open_ns: AtomicU64,
    started_ns: AtomicU64,
    stopped_ns: AtomicU64,
    started_unix_ms: AtomicU64,
    ever: AtomicBool,
}

// SAFETY: the two tracepoints are marked by `mark`; the rest is shared by locks and atomics.
unsafe impl Send for RbTracer {}
// SAFETY: as above.
unsafe impl Sync for RbTracer {}

impl DataTypeFunctions for RbTracer {
    fn mark(&self, marker: &gc::Marker) {
        // SAFETY: made in `new`, and alive because they are marked here.
        unsafe {
            marker.mark(Value::from_raw(self.allocated));
            marker.mark(Value::from_raw(self.marked));
        }
        if self.tracing.is_ours() {
            self.tracing.profile.lock().roots(|id| {
                // SAFETY: alive since it was noted, because it is marked here.
                marker.mark(unsafe { Value::from_raw(id as VALUE) });
            });
        }
    }

    fn compact(&self, compactor: &gc::Compactor) {
        if !self.tracing.is_ours() {
            return;
        }
        if tracer_hooks::loses_moved_objects() {
            self.tracing.profile.lock().forget();
        } else {
            self.tracing.profile.lock().relocate(|id| {
                // SAFETY: the object was alive at the end of this collection's marking.
                compactor.location(unsafe { Value::from_raw(id as VALUE) }).as_raw() as usize
            });
        }
    }
}

impl Drop for RbTracer {
    fn drop(&mut self) {
        tracer_state::deactivate(&self.tracing);
    }
}

impl RbTracer {
    /// `Tracer.new(settings)`: JSON of [`TracerSettings`].
    fn new(ruby: &Ruby, settings: String) -> Result<Self, Error> {
        let TracerSettings { every, duty, window_ms, samples_max, stacks_max, depth_max, worker } =
            parse("tracer", &settings)?;
        let limits = Limits { samples_max, stacks_max, depth_max };
        if every == 0 || !(duty > 0.0 && duty <= 1.0) || !(window_ms > 0.0 && window_ms <= 60e3) {
            let message = "every must be 1 or more, duty above 0 and at most 1, \
                           window_ms above 0 and at most 60,000";
            return Err(Error::new(ruby.exception_arg_error(), message));
        }
        let points = tracer_hooks::points(ruby)
            .map_err(|why| error::named("Error", format!("the tracer cannot run here: {why}")))?;
        Ok(Self {
            tracing: Box::new(TracerState::new(ruby, limits, every, f64::from(every) / duty)),
            allocated: points.allocated,
            marked: points.marked,
            worker,
            duty,
            window: Duration::from_nanos((window_ms * 1e6) as u64),
            pause_ns: AtomicU64::new(0),
            windows: AtomicU64::new(0),
            open_ns: AtomicU64::new(0),
            started_ns: AtomicU64::new(0),
            stopped_ns: AtomicU64::new(0),
            started_unix_ms: AtomicU64::new(0),
            ever: AtomicBool::new(false),
        })
    }

    fn ours(&self) -> Result<&TracerState, Error> {
        if self.tracing.is_ours() {
            Ok(&self.tracing)
        } else {
            Err(error::forked())
        }
    }

    fn start(&self) -> Result<(), Error> {
        let tracing = self.ours()?;
        if self.ever.swap(true, Relaxed) {
            return Err(error::named("Error", "a tracer is started once; make another one"));
        }
        if !tracer_state::activate(tracing) {
            return Err(error::named("Error", "another tracer is running in this process"));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.started_unix_ms.store(unix.as_millis() as u64, Relaxed);
        self.started_ns.store(clock::now_ns(), Relaxed);
        tracing.set_running(true);
        gvl_timer::measure(true);
        self.watch_marks(true)
    }

    fn watch_marks(&self, on: bool) -> Result<(), Error> {
        if tracer_hooks::loses_moved_objects() {
            return Ok(());
        }
        tracer_hooks::switch(self.marked, on)
    }

    fn stop(&self) -> Result<(), Error> {
        let tracing = self.ours()?;
        if !tracing.is_running() {
            return Ok(());
        }
        self.stopped_ns.store(clock::now_ns(), Relaxed);
        tracing.set_running(false);
        tracer_state::deactivate(tracing);
        gvl_timer::measure(false);
        tracer_hooks::switch(self.allocated, false)?;
        self.watch_marks(false)
    }

    /// Waits for the next window, opens it, waits for its end and closes it.
    /// Returns false once the tracer has stopped.
    fn window(&self) -> Result<bool, Error> {
        let tracing = self.ours()?;
        let pause = Duration::from_nanos(self.pause_ns.load(Relaxed));
        if !pause.is_zero() {
            without_gvl(|| tracing.wait(pause), &|| tracing.wake());
        }
        check_interrupts()?;
        if !tracing.is_running() {
            return Ok(false);
        }
        let opened = clock::now_ns();
        tracer_hooks::switch(self.allocated, true)?;
        without_gvl(|| tracing.wait(self.window), &|| tracing.wake());
        if !tracing.is_running() {
            return Ok(false);
        }
        let now = clock::now_ns();
        let open = now.saturating_sub(opened);
        // A computing thread may delay either end of a window by holding the GVL:
        // the pause makes up for both.
        let elapsed = now.saturating_sub(self.started_ns.load(Relaxed)) as f64;
        let open_total = (self.open_ns.load(Relaxed) + open) as f64;
        let pause = (open_total / self.duty - elapsed).max(0.0) as u64;
        self.pause_ns.store(pause, Relaxed);
        if pause > 0 {
            tracer_hooks::switch(self.allocated, false)?;
        }
        tracer_hooks::after_window();
        self.windows.fetch_add(1, Relaxed);
        self.open_ns.fetch_add(open, Relaxed);
        check_interrupts()?;
        Ok(tracing.is_running())
    }

    fn is_running(&self) -> Result<bool, Error> {
        Ok(self.ours()?.is_running())
    }

    fn seconds(&self) -> f64 {
        let started = self.started_ns.load(Relaxed);
        if started == 0 {
            return 0.0;
        }
        let until =
            if self.tracing.is_running() { clock::now_ns() } else { self.stopped_ns.load(Relaxed) };
        until.saturating_sub(started) as f64 / 1e9
    }

    fn status(ruby: &Ruby, rb_self: &Self) -> Result<RHash, Error> {
        let tracing = rb_self.ours()?;
        let profile = tracing.profile.lock();
        let (samples, followed, bytes) =
            (profile.samples(), profile.followed(), profile.memory_bytes());
        drop(profile);
        let hash = ruby.hash_new();
        hash.aset(ruby.to_symbol("running"), tracing.is_running())?;
        hash.aset(ruby.to_symbol("seconds"), (rb_self.seconds() * 10.0).round() / 10.0)?;
        hash.aset(ruby.to_symbol("windows"), rb_self.windows.load(Relaxed))?;
        hash.aset(ruby.to_symbol("open_seconds"), rb_self.open_ns.load(Relaxed) as f64 / 1e9)?;
        hash.aset(ruby.to_symbol("sampled"), samples)?;
        hash.aset(ruby.to_symbol("live_samples"), followed)?;
        hash.aset(ruby.to_symbol("profile_bytes"), bytes)?;
        Ok(hash)
    }

    /// The report as JSON.
    fn report(ruby: &Ruby, rb_self: &Self) -> Result<String, Error> {
        let tracing = rb_self.ours()?;
        tracer_hooks::after_collections();
        name_all(tracing)?;
        let waits = gvl_timer::is_available().then(|| tracing.gvl_times.lock().waits());
        let note = waits
            .is_none()
            .then(|| "Waiting for the global lock cannot be measured before Ruby 3.2.".into());
        let about = SourceInfo {
            pid: std::process::id(),
            worker: rb_self.worker,
            ruby: ruby.eval("RUBY_VERSION")?,
            started_unix_s: rb_self.started_unix_ms.load(Relaxed) as f64 / 1e3,
            seconds: rb_self.seconds(),
            every: tracing.every,
            duty: rb_self.duty,
            gvl: waits,
            note,
        };
        let report = tracing.profile.lock().report(about);
        // If an interrupt is pending, the work is not begun without the GVL and is done with it.
        let json = without_gvl(|| serde_json::to_string(&report), &|| {})
            .unwrap_or_else(|| serde_json::to_string(&report));
        json.map_err(|why| error::named("Error", format!("the report: {why}")))
    }
}

/// Names all unnamed frames and classes. Ruby is called without the profile's lock.
fn name_all(tracing: &TracerState) -> Result<(), Error> {
    let (frames, classes) = {
        let profile = tracing.profile.lock();
        (profile.unnamed_frames(), profile.unnamed_classes())
    };
    for id in frames {
        let frame = frame_name(id as VALUE)?;
        tracing.profile.lock().name_frame(id, frame);
    }
    for id in classes {
        if let Some(name) = class_name(id as VALUE)? {
            tracing.profile.lock().name_class(id, name);
        }
    }
    Ok(())
}

fn frame_name(frame: VALUE) -> Result<Frame, Error> {
    // SAFETY: a frame that `rb_profile_frames` gave, kept alive by `mark`.
    let label = text(protect(|| unsafe { rb_sys::rb_profile_frame_full_label(frame) })?);
    // SAFETY: as above.
    let path = text(protect(|| unsafe { rb_sys::rb_profile_frame_absolute_path(frame) })?);
    let path = match path {
        Some(path) if path != "<cfunc>" => path,
        Some(_) => String::new(),
        // SAFETY: as above.
        None => text(protect(|| unsafe { rb_sys::rb_profile_frame_path(frame) })?)
            .filter(|path| path != "<cfunc>")
            .unwrap_or_default(),
    };
    // SAFETY: as above.
    let line = protect(|| unsafe { rb_sys::rb_profile_frame_first_lineno(frame) })?;
    // SAFETY: a live value that Ruby has just returned.
    let line = unsafe { Value::from_raw(line) };
    let line = magnus::Integer::from_value(line).and_then(|line| line.to_u32().ok()).unwrap_or(0);
    Ok(Frame { label: label.unwrap_or_default(), path, line })
}

/// The name of the class, also for an object with a singleton class.
fn class_name(class: VALUE) -> Result<Option<String>, Error> {
    // SAFETY: a class that is kept alive by `mark`.
    let path = protect(|| unsafe { rb_sys::rb_class_path(rb_sys::rb_class_real(class)) })?;
    Ok(text(path))
}

fn text(value: VALUE) -> Option<String> {
    // SAFETY: a live value that Ruby has just returned.
    let string = RString::from_value(unsafe { Value::from_raw(value) })?;
    // SAFETY: copied before Ruby is called again.
    Some(String::from_utf8_lossy(unsafe { string.as_slice() }).into_owned())
}

/// Defines the class.
pub fn define(ruby: &Ruby, native: RModule) -> Result<(), Error> {
    let class = native.define_class("Tracer", ruby.class_object())?;
    class.undef_default_alloc_func();
    class.define_singleton_method("new", function!(RbTracer::new, 1))?;
    class.define_method("start", method!(RbTracer::start, 0))?;
    class.define_method("stop", method!(RbTracer::stop, 0))?;
    class.define_method("window", method!(RbTracer::window, 0))?;
    class.define_method("running?", method!(RbTracer::is_running, 0))?;
    class.define_method("status", method!(RbTracer::status, 0))?;
    class.define_method("report", method!(RbTracer::report, 0))?;
    Ok(())
}
