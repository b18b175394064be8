//! Errors on their way to Ruby: classes of `Chaton`, looked up when raised.

use magnus::{prelude::*, Error, ExceptionClass, RModule, Ruby, TryConvert};

/// An error of class `Chaton::NAME` (`RuntimeError` should it be missing).
pub fn named(name: &str, message: impl Into<String>) -> Error {
    let Ok(ruby) = Ruby::get() else {
        unreachable!("errors are only made by threads that hold the GVL")
    };
    of(chaton(name).unwrap_or_else(|| ruby.exception_runtime_error()), message)
}

/// `Chaton::NAME`, if it is there.
pub fn chaton<T: TryConvert>(name: &str) -> Option<T> {
    let module: RModule = Ruby::get().ok()?.class_object().const_get("Chaton").ok()?;
    module.const_get(name).ok()
}

/// An error of this class. The exception object is made at once: a thread that is being
/// killed ends while Ruby makes it, and if magnus made it while raising, magnus would
/// treat the end of the thread as a bug and abort the process.
pub fn of(class: ExceptionClass, message: impl Into<String>) -> Error {
    match class.new_instance((message.into(),)) {
        Ok(exception) => exception.into(),
        Err(error) => error,
    }
}

/// The handle belongs to the parent process.
pub fn forked() -> Error {
    named(
        "ForkedError",
        "this handle was made before the fork; its threads live in the parent only. \
         Make a new one in this process",
    )
}

/// The request already has its response.
pub fn closed() -> Error {
    named("ClosedError", "this request was already answered; a unit of work is finished once")
}

/// The job has already ended.
pub fn job_ended() -> Error {
    named("ClosedError", "this job has ended already; a unit of work is finished once")
}

/// The batch has already ended.
pub fn batch_ended() -> Error {
    named("ClosedError", "this batch has ended already; a unit of work is finished once")
}

/// An error of the job store; the class says what the caller can do.
pub fn store(error: &chaton_jobs::store::StoreError) -> Error {
    use chaton_jobs::store::StoreErrorKind;
    let name = match error.kind {
        StoreErrorKind::Unavailable => "StoreUnavailable",
        StoreErrorKind::Full => "StoreFull",
        StoreErrorKind::Busy => "StoreBusy",
        StoreErrorKind::Corrupt => "StoreCorrupt",
        StoreErrorKind::Refused => "StoreRefused",
    };
    named(name, error.message.as_str())
}

/// An error of a file that processes share; the class says what the caller can do.
pub fn embedded(error: &chaton_live::Error) -> Error {
    use chaton_live::ErrorKind;
    let name = match error.kind {
        ErrorKind::Unavailable => "StoreUnavailable",
        ErrorKind::Full => "StoreFull",
        ErrorKind::Busy => "StoreBusy",
        ErrorKind::Corrupt => "StoreCorrupt",
        ErrorKind::Refused => "StoreRefused",
    };
    named(name, error.message.as_str())
}

/// An argument is wrong.
pub fn argument(message: impl Into<String>) -> Error {
    let Ok(ruby) = Ruby::get() else {
        unreachable!("errors are only made by threads that hold the GVL")
    };
    of(ruby.exception_arg_error(), message)
}

/// The client went away.
pub fn client_gone() -> Error {
    named("ClientGone", "the client closed its connection before the answer was complete")
}

/// The operating system refused something.
pub fn system(what: &str, error: &std::io::Error) -> Error {
    named("Error", format!("{what}: {error}"))
}
