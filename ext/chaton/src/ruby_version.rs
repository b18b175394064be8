//! Whether the running Ruby is the one whose headers this was compiled with. Another one has objects of another layout,
//! so nothing may be defined in it.

use magnus::{Error, Ruby};

/// Raises `LoadError` in another Ruby. Only the first two numbers of a version belong to its binary interface.
pub(crate) fn check(ruby: &Ruby) -> Result<(), Error> {
    let compiled = (rb_sys::RUBY_API_VERSION_MAJOR, rb_sys::RUBY_API_VERSION_MINOR);
    // SAFETY: a constant that every Ruby exports.
    let [major, minor, _] = unsafe { rb_sys::ruby_api_version };
    if compiled == (major as u32, minor as u32) {
        return Ok(());
    }
    let sentence = format!(
        "it was compiled for Ruby {}.{}, and this is {major}.{minor}",
        compiled.0, compiled.1
    );
    Err(Error::new(ruby.exception_load_error(), sentence))
}
