//! Errors on their way to Ruby: classes of `Chaton`, looked up when raised.

use magnus::{prelude::*, Error, ExceptionClass, RModule, Ruby};

/// An error of class `Chaton::NAME` (`RuntimeError` should it be missing).
pub fn named(name: &str, message: impl Into<String>) -> Error {
    let message = message.into();
    let Ok(ruby) = Ruby::get() else {
        unreachable!("errors are only made by threads that hold the GVL")
    };
    let class = ruby
        .class_object()
        .const_get::<_, RModule>("Chaton")
        .and_then(|chaton| chaton.const_get::<_, ExceptionClass>(name))
        .unwrap_or_else(|_| ruby.exception_runtime_error());
    Error::new(class, message)
}

/// The handle belongs to the parent process.
pub fn forked() -> Error {
    named(
        "ForkedError",
        "this handle was made before the fork; its threads live in the parent only. \
         Make a new one in this process",
    )
}

/// The unit was finished before.
pub fn closed() -> Error {
    named("ClosedError", "this request was already answered; a unit of work is finished once")
}

/// The client went away.
pub fn client_gone() -> Error {
    named("ClientGone", "the client closed its connection before the answer was complete")
}

/// The operating system refused something.
pub fn system(what: &str, error: &std::io::Error) -> Error {
    named("Error", format!("{what}: {error}"))
}
