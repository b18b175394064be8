//! Functions that only some versions of Ruby have.

use std::ffi::{c_void, CStr};

/// The address of a function of this Ruby, if it has it.
pub fn symbol(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a C string; the process itself is searched.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}
