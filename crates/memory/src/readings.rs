//! The kernel's figures about the memory of processes and their containers.
//!
//! Each function takes the root of `/proc` and `/sys`, which is [`ROOT`] outside of
//! tests. It returns `None` when the figure cannot be read: the process has ended, or
//! the kernel is too old for the file or denies it.

mod cgroup;
mod process;

use std::path::Path;

pub use cgroup::{Cgroup, CgroupVersion};
pub use process::{age_s, is_stopped, resident, ProcessMemory};

/// The root of `/proc` and `/sys`.
pub const ROOT: &str = "/";

/// The machine's memory in bytes.
pub fn machine(root: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(root.join("proc/meminfo")).ok()?;
    kilobytes(&text, "MemTotal")
}

/// Bytes of the line `NAME: 12 kB`, as `/proc` writes it.
fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let number = line.trim().strip_suffix("kB")?.trim_end();
    number.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_found_by_its_whole_name() {
        let text = "MemTotalish:  7 kB\nMemTotal:       24683232 kB\nMemFree: 1 kB\n";
        assert_eq!(kilobytes(text, "MemTotal"), Some(24_683_232 * 1024));
        assert_eq!(kilobytes(text, "Mem"), None);
    }

    #[test]
    fn a_number_without_its_unit_or_too_large_is_ignored() {
        assert_eq!(kilobytes("MemTotal: 12\n", "MemTotal"), None);
        assert_eq!(kilobytes("MemTotal: 18446744073709551615 kB\n", "MemTotal"), None);
    }

    #[test]
    fn this_machine_has_memory() {
        assert!(machine(Path::new(ROOT)).is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(machine(Path::new("/nowhere")), None);
    }
}
