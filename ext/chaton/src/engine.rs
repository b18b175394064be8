//! The methods that the Ruby objects of all engines share.

use chaton_core::engine::Engine;
use magnus::{Error, RArray, Ruby, TypedData, Value};

use crate::convert::{from_json, seconds};
use crate::gvl::{run_whole, wait_for};

/// A Ruby object with an engine behind it.
pub trait EngineObject: TypedData {
    /// The engine.
    ///
    /// # Errors
    /// `Chaton::ForkedError` in a forked child.
    fn engine(&self) -> Result<&dyn Engine, Error>;
}

/// Defines the methods that every engine has.
macro_rules! define_engine {
    ($class:expr, $type:ty) => {{
        $class.undef_default_alloc_func();
        $class.define_method("quiet", method!(crate::engine::quiet::<$type>, 0))?;
        $class.define_method("wait_idle", method!(crate::engine::wait_idle::<$type>, 1))?;
        $class.define_method("give_up", method!(crate::engine::give_up::<$type>, 0))?;
        $class.define_method("stop", method!(crate::engine::stop::<$type>, 0))?;
        $class.define_method("stats", method!(crate::engine::stats::<$type>, 0))?;
    }};
}
pub(crate) use define_engine;

/// `quiet`: stops taking in work; returns how many units of work went back.
///
/// # Errors
/// `Chaton::ForkedError`, like all of these methods.
pub fn quiet<T: EngineObject>(rb_self: &T) -> Result<usize, Error> {
    Ok(rb_self.engine()?.quiet())
}

/// `wait_idle`: waits without the GVL; false when the time is up.
///
/// # Errors
/// What Ruby raises in the thread meanwhile.
pub fn wait_idle<T: EngineObject>(rb_self: &T, timeout_s: f64) -> Result<bool, Error> {
    let engine = rb_self.engine()?;
    let timeout = seconds("timeout_s", timeout_s)?;
    wait_for(timeout, |left| engine.wait_idle(left), &|| engine.interrupt_wait())
}

/// `give_up`: how many units of work had not begun, and the ids of those that run.
pub fn give_up<T: EngineObject>(ruby: &Ruby, rb_self: &T) -> Result<RArray, Error> {
    let released = rb_self.engine()?.give_up();
    let answer = ruby.ary_new_capa(2);
    answer.push(released.waiting)?;
    answer.push(ruby.ary_from_iter(released.running))?;
    Ok(answer)
}

/// `stop`: ends the engine's threads.
///
/// # Errors
/// What Ruby raises before it has begun.
pub fn stop<T: EngineObject>(rb_self: &T) -> Result<(), Error> {
    let engine = rb_self.engine()?;
    run_whole(|| engine.stop())
}

/// `stats`: a Hash.
pub fn stats<T: EngineObject>(ruby: &Ruby, rb_self: &T) -> Result<Value, Error> {
    from_json(ruby, &rb_self.engine()?.stats_json())
}
