//! Who an engine is, and how another one on the same machine sees that it died.

use std::fs;
use std::io::Read;

/// The name of an owner and the place where it lives.
#[derive(Clone, Debug)]
pub struct Identity {
    /// `HOST:PID:NONCE`, as Sidekiq's.
    pub name: String,
    /// Name of the machine (`DYNO` where it is set).
    pub host: String,
    /// Boot id, pid namespace, pid and start time, separated by spaces.
    pub place: String,
}

impl Identity {
    /// This process's, with a new nonce.
    pub fn new() -> Self {
        let host = std::env::var("DYNO").ok().filter(|dyno| !dyno.is_empty());
        let host = host.unwrap_or_else(hostname);
        let pid = std::process::id();
        let name = format!("{host}:{pid}:{}", nonce());
        let place = format!(
            "{} {} {pid} {}",
            boot_id(),
            pid_namespace(),
            start_time(pid).unwrap_or_default()
        );
        Self { name, host, place }
    }
}

impl Default for Identity {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether the process at `place` is certainly dead. `local`: the store can
/// only be used from this machine, so another boot is a dead one.
pub fn is_dead(place: &str, local: bool) -> bool {
    let parts: Vec<&str> = place.split(' ').collect();
    let [boot, namespace, pid, started] = parts[..] else { return false };
    if boot != boot_id() {
        return local;
    }
    let Ok(pid) = pid.parse::<u32>() else { return false };
    namespace == pid_namespace() && start_time(pid).as_deref() != Some(started)
}

/// When a process began, in ticks since boot; `None` when there is none (or
/// only its zombie is left).
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold spaces: what follows it is counted.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    fields.get(19).map(|ticks| (*ticks).to_string())
}

fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_string()
}

fn pid_namespace() -> String {
    let link = fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    link.to_string_lossy().into_owned()
}

fn hostname() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() {
        "localhost".into()
    } else {
        name.into()
    }
}

/// 12 hexadecimal digits that no other process has.
fn nonce() -> String {
    let mut bytes = [0u8; 6];
    let read = fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        bytes.copy_from_slice(&chaton_core::clock::now_ns().to_le_bytes()[..6]);
    }
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_living_from_the_dead() {
        let me = Identity::new();
        assert_eq!(me.name.split(':').count(), 3);
        assert!(!is_dead(&me.place, true));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let place = format!(
            "{} {} {} {}",
            boot_id(),
            pid_namespace(),
            child.id(),
            start_time(child.id()).unwrap()
        );
        assert!(!is_dead(&place, false));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_dead(&place, false));
    }

    #[test]
    fn another_boot_is_dead_only_for_a_local_store() {
        let place = "0-0 pid:[1] 1 1";
        assert!(is_dead(place, true));
        assert!(!is_dead(place, false));
        assert!(!is_dead("", true), "nothing is known of it");
    }
}
