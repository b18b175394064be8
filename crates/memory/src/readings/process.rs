//! Memory of one process.

use std::fs;
use std::path::Path;

use super::kilobytes;

/// Memory of a process in bytes, from its `smaps_rollup`.
///
/// The kernel walks every mapping for it (about a millisecond for 100 MB);
/// [`resident`] is cheaper.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessMemory {
    /// Resident pages.
    pub rss: u64,
    /// Resident pages, each shared page divided by the number of its users, so that the
    /// sum over a tree of processes is the tree's memory.
    pub pss: u64,
    /// Pages that no other process has.
    pub private: u64,
    /// Pages shared with other processes: code, and objects loaded before the fork.
    pub shared: u64,
    /// Swapped out.
    pub swap: u64,
}

impl ProcessMemory {
    /// Reads a process; `None` when it has ended or may not be read.
    pub fn read(root: &Path, pid: u32) -> Option<Self> {
        // The file of a zombie is empty.
        Self::parse(&fs::read_to_string(root.join(format!("proc/{pid}/smaps_rollup"))).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let of = |name| kilobytes(text, name);
        let both = |clean, dirty| Some(of(clean)? + of(dirty)?);
        Some(Self {
            rss: of("Rss")?,
            pss: of("Pss")?,
            private: both("Private_Clean", "Private_Dirty")?,
            shared: both("Shared_Clean", "Shared_Dirty")?,
            swap: of("Swap").unwrap_or(0),
        })
    }
}

/// Resident bytes of a process: an upper bound of [`ProcessMemory::pss`] that costs
/// microseconds. `None` when the process has ended.
pub fn resident(root: &Path, pid: u32) -> Option<u64> {
    let text = fs::read_to_string(root.join(format!("proc/{pid}/statm"))).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // A zombie has no memory.
    (pages > 0).then(|| pages.saturating_mul(page_bytes()))
}

/// Seconds since a process began; `None` when it has ended.
pub fn age_s(root: &Path, pid: u32) -> Option<f64> {
    let stat = fs::read_to_string(root.join(format!("proc/{pid}/stat"))).ok()?;
    // The second field is a name in brackets, which may contain anything; the 22nd is the time.
    let begun: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let uptime = fs::read_to_string(root.join("proc/uptime")).ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    // SAFETY: sysconf with a plain constant.
    let per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    (per_s > 0).then(|| (uptime - begun / per_s as f64).max(0.0))
}

/// Whether a signal, such as SIGSTOP, or a debugger has stopped a process; false when it has ended.
pub fn is_stopped(root: &Path, pid: u32) -> bool {
    let stat = fs::read_to_string(root.join(format!("proc/{pid}/stat"))).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    matches!(state, Some("T" | "t"))
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf with a plain constant.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).unwrap_or(4096)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readings::ROOT;

    const ROLLUP: &str = "\
55e73d610000-7fff8eb6a000 ---p 00000000 00:00 0                          [rollup]
Rss:                1624 kB
Pss:                 295 kB
Pss_Dirty:           112 kB
Shared_Clean:       1460 kB
Shared_Dirty:          4 kB
Private_Clean:        52 kB
Private_Dirty:       108 kB
Swap:                  8 kB
SwapPss:               3 kB
";

    fn tree(pid: u32, file: &str, text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let home = root.path().join(format!("proc/{pid}"));
        fs::create_dir_all(&home).expect("its folder");
        fs::write(home.join(file), text).expect("its file");
        root
    }

    #[test]
    fn clean_and_dirty_pages_are_added_up() {
        let root = tree(7, "smaps_rollup", ROLLUP);
        let usage = ProcessMemory::read(root.path(), 7).expect("a reading");
        let expected = ProcessMemory {
            rss: 1624 << 10,
            pss: 295 << 10,
            private: 160 << 10,
            shared: 1464 << 10,
            swap: 8 << 10,
        };
        assert_eq!(usage, expected);
    }

    #[test]
    fn a_kernel_without_swap_has_none_in_use() {
        let text = ROLLUP.replace("Swap:                  8 kB\n", "");
        assert_eq!(ProcessMemory::parse(&text).map(|usage| usage.swap), Some(0));
    }

    #[test]
    fn a_process_that_ended_or_is_a_zombie_has_no_figures() {
        let root = tree(7, "smaps_rollup", "");
        assert_eq!(ProcessMemory::read(root.path(), 7), None);
        assert_eq!(ProcessMemory::read(root.path(), 8), None);
        let root = tree(7, "statm", "0 0 0 0 0 0 0\n");
        assert_eq!(resident(root.path(), 7), None);
        assert_eq!(resident(root.path(), 8), None);
    }

    #[test]
    fn resident_is_the_second_number_in_pages() {
        let root = tree(7, "statm", "9000 120 80 1 0 300 0\n");
        assert_eq!(resident(root.path(), 7), Some(120 * page_bytes()));
    }

    #[test]
    fn the_figures_of_this_process_are_consistent() {
        let root = Path::new(ROOT);
        let pid = std::process::id();
        let resident = resident(root, pid).expect("statm");
        assert!(resident > 100_000, "{resident}");
        // Older kernels and some sandboxes have no smaps_rollup.
        if let Some(usage) = ProcessMemory::read(root, pid) {
            assert!(usage.pss <= usage.rss && usage.private <= usage.pss, "{usage:?}");
        }
    }
}
