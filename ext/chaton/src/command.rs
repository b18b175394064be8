//! Starts the commands of `service` lines, which end when this process ends.

use std::collections::HashMap;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use magnus::Error;
use serde::Deserialize;

use crate::error;

/// What to run, and where.
#[derive(Deserialize)]
struct Settings {
    /// The program and its arguments.
    command: Vec<String>,
    directory: String,
    /// The whole environment.
    environment: HashMap<String, String>,
    /// The soft and the hard limit; this process may have raised its own.
    open_files: (u64, u64),
}

/// Starts a command in a process group of its own. The kernel sends it SIGTERM when the thread
/// that called this has ended, so call it on the main thread.
///
/// Returns its pid, or the negative error number for which it could not be started.
///
/// # Errors
/// `ArgumentError` for settings that cannot be read.
pub fn spawn(settings: String, input: i32, output: i32) -> Result<i64, Error> {
    let settings: Settings =
        serde_json::from_str(&settings).map_err(|e| error::argument(e.to_string()))?;
    let (program, arguments) =
        settings.command.split_first().ok_or_else(|| error::argument("no command"))?;
    let parent = std::process::id();
    let (soft, hard) = settings.open_files;
    let files = libc::rlimit { rlim_cur: soft, rlim_max: hard };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&settings.directory)
        .env_clear()
        .envs(&settings.environment);
    command.process_group(0);
    // SAFETY: only system calls that may be made after a fork.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM, 0, 0, 0) != 0 {
                return Err(io::Error::last_os_error());
            }
            if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const files) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the first call.
            if libc::getppid().unsigned_abs() == parent {
                Ok(())
            } else {
                Err(io::Error::from_raw_os_error(libc::ESRCH))
            }
        });
    }
    let started = io_of(input).and_then(|stdin| {
        command.stdin(stdin).stdout(io_of(output)?).stderr(io_of(output)?).spawn()
    });
    Ok(match started {
        // Ruby reaps it.
        Ok(child) => i64::from(child.id()),
        Err(e) => -i64::from(e.raw_os_error().unwrap_or(libc::EIO)),
    })
}

/// A copy of a descriptor that the caller keeps open.
fn io_of(descriptor: i32) -> io::Result<Stdio> {
    // SAFETY: open during the call.
    let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(borrowed.try_clone_to_owned()?.into())
}
