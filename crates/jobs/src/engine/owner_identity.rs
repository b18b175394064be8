//! The name of an engine as an owner of jobs, and how another engine on the
//! same machine finds out that it died.

use std::fs;
use std::io::Read;

use chaton_core::clock::boot_id;

/// The end of the place of a process that was asked to stop.
const STOPPING: &str = " stopping";

/// The name of an owner.
#[derive(Clone, Debug)]
pub struct OwnerIdentity {
    /// `HOST:PID:NONCE`, as Sidekiq's.
    pub name: String,
    /// Name of the machine (`DYNO` where it is set).
    pub host: String,
    pub(super) supervised: bool,
}

impl OwnerIdentity {
    /// Of this process, with a new nonce. `supervised`: see `Config::supervised`.
    pub fn new(supervised: bool) -> Self {
        let host = std::env::var("DYNO").ok().filter(|dyno| !dyno.is_empty());
        let host = host.unwrap_or_else(hostname);
        let pid = std::process::id();
        let name = format!("{host}:{pid}:{}", nonce());
        Self { name, host, supervised }
    }

    /// Where the process is: boot id, pid namespace, pid and start time, then pid and start time of
    /// the supervisor (`0 0` without one), and `stopping` once it was asked to stop, separated by
    /// spaces. Read anew for each heartbeat: a worker that a preloader forked becomes the supervisor's
    /// child a moment after it began.
    pub fn place(&self, stops: bool) -> String {
        let pid = std::process::id();
        let parent = if self.supervised { std::os::unix::process::parent_id() } else { 0 };
        format!(
            "{} {} {pid} {} {parent} {}{}",
            boot_id(),
            pid_namespace(),
            start_time(pid).unwrap_or_default(),
            start_time(parent).unwrap_or_else(|| "0".into()),
            if stops { STOPPING } else { "" }
        )
    }
}

/// Whether the process at `place` is certainly dead. A worker whose supervisor is alive does not
/// count as dead here: the supervisor reports its death, and the jobs that were running. `local`:
/// the store can only be used from this machine, so a process of another boot is dead. `ended`: the store says that
/// the process has ended, which counts where its pid says nothing.
pub fn is_dead(place: &str, local: bool, ended: bool) -> bool {
    is_dead_seen_from((boot_id(), &pid_namespace()), place, local, ended)
}

/// Whether the process at `place` has crashed: it is gone with its supervisor, its machine has not been
/// restarted, and it was not asked to stop. `gone`: the store says that it has ended, or its lease has run out. In
/// another container that is all that can be known, since the kernel kills a container that takes too much memory as
/// a whole.
pub fn has_crashed(place: &str, gone: bool) -> bool {
    let is_gone =
        is_dead(place, false, false) || gone && is_elsewhere(boot_id(), &pid_namespace(), place);
    is_gone && !place.ends_with(STOPPING)
}

/// Whether `place` is in another pid namespace of this boot of this machine.
fn is_elsewhere(own_boot: &str, own_namespace: &str, place: &str) -> bool {
    let mut parts = place.split(' ');
    let (boot, namespace) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    !own_boot.is_empty() && boot == own_boot && ![own_namespace, ""].contains(&namespace)
}

/// The same as [`is_dead`] for a process with this boot id and pid namespace. What could not be read (`/proc` may
/// not be mounted) is empty, and says nothing.
fn is_dead_seen_from(
    (own_boot, own_namespace): (&str, &str),
    place: &str,
    local: bool,
    ended: bool,
) -> bool {
    let place = place.strip_suffix(STOPPING).unwrap_or(place);
    let parts: Vec<&str> = place.split(' ').collect();
    let [boot, namespace, pid, started, parent, parent_started] = parts[..] else { return false };
    if [own_boot, boot].contains(&"") {
        return local && ended;
    }
    if boot != own_boot {
        return local && (ended || ![own_namespace, namespace, started].contains(&""));
    }
    if namespace != own_namespace || [namespace, started].contains(&"") {
        return ended;
    }
    !is_alive(pid, started) && !is_alive(parent, parent_started)
}

fn is_alive(pid: &str, started: &str) -> bool {
    pid.parse().ok().and_then(start_time).as_deref() == Some(started)
}

/// When a process began, in ticks since boot; `None` when it is gone or a zombie.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain spaces, so fields are counted after it.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    if matches!(fields.first(), Some(&("Z" | "X"))) {
        return None;
    }
    fields.get(19).map(|ticks| (*ticks).to_string())
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

/// 12 random hexadecimal digits.
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
    fn a_process_is_dead_when_it_and_its_supervisor_are_gone() {
        let me = OwnerIdentity::new(false);
        assert_eq!(me.name.split(':').count(), 3);
        assert!(!is_dead(&me.place(false), true, false));
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let begin = start_time(child.id()).unwrap();
        let place = format!("{} {} {} {begin}", boot_id(), pid_namespace(), child.id());
        let (alone, ours) = (format!("{place} 0 0"), std::process::id());
        let supervised = format!("{place} {ours} {}", start_time(ours).unwrap());
        assert!(!is_dead(&alone, false, false) && !has_crashed(&alone, true), "it lives");
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(is_dead(&alone, false, false) && has_crashed(&alone, false));
        let stopping = format!("{alone}{STOPPING}");
        assert!(me.place(true).ends_with(STOPPING));
        assert!(is_dead(&stopping, false, false) && !has_crashed(&stopping, true));
        assert!(
            is_dead(&format!("{place} {ours} 1"), false, false),
            "another process has that pid now"
        );
        assert!(!is_dead(&supervised, false, false), "its supervisor is alive and will report it");
    }

    #[test]
    fn a_process_is_not_dead_when_its_place_is_not_known() {
        let place = |boot, namespace, started| format!("{boot} {namespace} 1 {started} 0 0");
        assert!(is_dead_seen_from(("b", "n"), &place("b", "n", "7"), false, false));
        for local in [true, false] {
            for (own, other) in [
                (("", "n"), place("", "n", "7")),
                (("b", ""), place("b", "", "7")),
                (("", "n"), place("b", "n", "7")),
                (("b", "n"), place("", "n", "7")),
                (("b", "n"), place("b", "n", "")),
            ] {
                assert!(!is_dead_seen_from(own, &other, local, false), "{own:?} {other:?}");
            }
        }
    }

    #[test]
    fn another_container_has_crashed_when_its_lease_ran_out() {
        let place = format!("{} pid:[1] 1 7 0 0", boot_id());
        assert!(has_crashed(&place, true), "the whole container is gone, or cut off");
        assert!(!has_crashed(&place, false) && !is_dead(&place, true, false), "it may live");
        assert!(!has_crashed(&format!("{place}{STOPPING}"), true), "it was asked to stop");
        assert!(!has_crashed(&place.replace("pid:[1]", ""), true), "nothing is known of it");
    }

    #[test]
    fn what_the_store_knows_counts_where_a_pid_says_nothing() {
        let own = ("b", "n");
        let dead = |place: &str, local, ended| is_dead_seen_from(own, place, local, ended);
        let (container, unread) = ("b other 1 7 0 0", "b n 1  0 0");
        for place in [container, unread, "b other 1 7 0 0 stopping"] {
            assert!(dead(place, false, true) && !dead(place, true, false), "{place}");
        }
        // The supervisor of a process in this namespace is asked first.
        let (ours, begin) = (std::process::id(), start_time(std::process::id()).unwrap());
        assert!(!dead(&format!("b n 999999999 7 {ours} {begin}"), true, true));
        // The machine was restarted: that is no crash.
        assert!(dead("old n 1 7 0 0", true, true) && !dead("old n 1 7 0 0", false, true));
        assert!(dead(" n 1 7 0 0", true, true) && !dead(" n 1 7 0 0", false, true));
    }

    #[test]
    fn another_boot_is_dead_only_for_a_local_store() {
        let place = "0-0 pid:[1] 1 1 0 0";
        assert!(is_dead(place, true, false) && !has_crashed(place, true));
        assert!(!is_dead(place, false, false));
        assert!(!is_dead("", true, false), "nothing is known of it");
    }
}
