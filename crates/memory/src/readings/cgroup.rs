//! The memory limit of this process's container, from control groups of version
//! [2][cgroup-v2] or [1][cgroup-v1/memory].
//!
//! `/proc/self/cgroup` names the group of this process, and `/proc/self/mountinfo`
//! the mount points and which group is mounted there: in a container its own group,
//! otherwise the machine's root group. The limits of all groups in between apply.
//!
//! [cgroup-v2]: https://docs.kernel.org/admin-guide/cgroup-v2.html
//! [cgroup-v1/memory]: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html

use std::fs;
use std::path::{Component, Path, PathBuf};

use super::machine;

/// Which files a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CgroupVersion {
    /// `memory.limit_in_bytes`, one tree per controller.
    V1,
    /// `memory.max`, one tree for all.
    V2,
}

impl CgroupVersion {
    /// 1 or 2.
    pub fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }

    fn current_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.usage_in_bytes",
            Self::V2 => "memory.current",
        }
    }

    /// The file cache, which the kernel reclaims before it kills a process.
    fn reclaimable(self) -> [&'static str; 2] {
        match self {
            Self::V1 => ["total_inactive_file", "total_active_file"],
            Self::V2 => ["inactive_file", "active_file"],
        }
    }
}

/// The control group with the smallest limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The version of control groups.
    pub version: CgroupVersion,
    /// The smallest limit (bytes) between the process's group and the root, if one is
    /// below the machine's memory.
    pub limit: Option<u64>,
    /// Bytes in use in the group with this limit (without a limit, in the process's
    /// own group), without the file cache.
    pub current: u64,
    /// Folder of that group.
    pub path: PathBuf,
}

impl Cgroup {
    /// The group of this process; `None` if no group accounts for memory.
    pub fn read(root: &Path) -> Option<Self> {
        let (version, dir, top) = own_group(root)?;
        // A limit above the machine's memory does not count; v1 has 2^63 rounded down to a page.
        let below = machine(root).unwrap_or(u64::MAX);
        let groups = || dir.ancestors().take_while(|one| one.starts_with(&top));
        let limited = groups()
            .filter_map(|one| Some((number(&one.join(version.limit_file()))?, one)))
            .filter(|(limit, _)| *limit < below)
            .min_by_key(|(limit, _)| *limit);
        if let Some((limit, path)) = limited {
            if let Some(current) = current(version, path) {
                return Some(Self { version, limit: Some(limit), current, path: path.to_owned() });
            }
        }
        // In version 2 the root group has no figures.
        let (current, path) = groups().find_map(|one| Some((current(version, one)?, one)))?;
        Some(Self { version, limit: None, current, path: path.to_owned() })
    }
}

/// The version, the folder of this process's group, and the mount point above it.
fn own_group(root: &Path) -> Option<(CgroupVersion, PathBuf, PathBuf)> {
    let memberships = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let (version, name) = membership(&memberships)?;
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let (shown, top) = mounts.lines().find_map(|line| mount(line, version))?;
    let top = root.join(top.strip_prefix("/").unwrap_or(&top));
    let below = Path::new(name).strip_prefix(&shown).ok().filter(|rest| plain(rest));
    let dir = below.map_or_else(|| top.clone(), |rest| top.join(rest));
    // In a container with the host's cgroup namespace, the group may not be mounted.
    let dir = if dir.is_dir() { dir } else { top.clone() };
    Some((version, dir, top))
}

/// Parses lines `ID:CONTROLLERS:PATH`; version 2 has no controllers. Both versions may
/// be present, with memory in only one of them.
fn membership(text: &str) -> Option<(CgroupVersion, &str)> {
    let parts = || text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let v1 = parts().find(|(controllers, _)| controllers.split(',').any(|one| one == "memory"));
    if let Some((_, name)) = v1 {
        return Some((CgroupVersion::V1, name));
    }
    parts()
        .find(|(controllers, _)| controllers.is_empty())
        .map(|(_, name)| (CgroupVersion::V2, name))
}

/// The group and its mount point, if this line of mountinfo mounts a memory tree of
/// this version: `36 35 98:0 /group /mount/point rw … - type source options`.
fn mount(line: &str, version: CgroupVersion) -> Option<(PathBuf, PathBuf)> {
    let (place, kind) = line.split_once(" - ")?;
    let mut kind = kind.split(' ');
    let fits = match (version, kind.next()?) {
        (CgroupVersion::V1, "cgroup") => kind.nth(1)?.split(',').any(|option| option == "memory"),
        (CgroupVersion::V2, "cgroup2") => true,
        _ => false,
    };
    let mut place = place.split(' ').skip(3);
    let (shown, top) = (place.next()?, place.next()?);
    fits.then(|| (PathBuf::from(unescaped(shown)), PathBuf::from(unescaped(top))))
}

/// mountinfo escapes blanks and backslashes, as in `\040`.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(char::from(code));
                plain.push_str(&part[3..]);
            }
            None => {
                plain.push('\\');
                plain.push_str(part);
            }
        }
    }
    plain
}

/// False for a group outside of our namespace, whose path has `..`.
fn plain(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

fn current(version: CgroupVersion, dir: &Path) -> Option<u64> {
    let used = number(&dir.join(version.current_file()))?;
    let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
    let field = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let cache: u64 = version.reclaimable().into_iter().map(field).sum();
    Some(used.saturating_sub(cache))
}

/// The file's number; `max` means that there is no limit.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests;
