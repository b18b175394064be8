//! Who may ask.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

use crate::config::AdminListener;

/// Wrong tokens wait for each other, each this long.
pub(crate) const WRONG_TOKEN: Duration = Duration::from_millis(100);

/// Whether a request with this `Host` may come in. A web page that has its own name resolve to this
/// machine (DNS rebinding) makes the browser send that name; an address as the host cannot be
/// forged so, and is what probes send. No web page reaches a Unix socket.
pub(crate) fn allows_host(host: &str, listener: &AdminListener, hosts: &[String]) -> bool {
    if listener.unix {
        return true;
    }
    let name = without_port(host);
    let known = |one: &str| !one.is_empty() && one.eq_ignore_ascii_case(name);
    is_address(name)
        || known("localhost")
        || known(&listener.host)
        || hosts.iter().any(|one| known(one))
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host.split_once(']').map_or(host, |(name, _)| &name[1..]);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn is_address(name: &str) -> bool {
    name.parse::<IpAddr>().is_ok() || name.parse::<Ipv6Addr>().is_ok()
}

/// Compares a token in a time that does not depend on where it differs.
pub(crate) fn same_token(given: &str, token: &str) -> bool {
    let (given, token) = (given.as_bytes(), token.as_bytes());
    let differ = token.iter().enumerate().fold(given.len() ^ token.len(), |differ, (at, byte)| {
        differ | usize::from(given.get(at).copied().unwrap_or(0) ^ byte)
    });
    std::hint::black_box(differ) == 0
}

/// Browsers send a host's cookies to all of its ports, so that each port has a name of its own.
pub(crate) fn cookie_name(host: Option<&str>) -> String {
    let port = host.and_then(|host| host.rsplit_once(':')).map_or("80", |(_, port)| port);
    let port: String = port.chars().filter(char::is_ascii_digit).collect();
    format!("chaton_dashboard_{port}")
}

/// Makes wrong tokens and wrong keys of links wait for each other.
pub(crate) struct GuessGate {
    turn: Mutex<()>,
    places: Semaphore,
}

impl GuessGate {
    /// Guesses may wait on half of the places, so that other requests are answered meanwhile.
    pub fn new(connections_max: usize) -> Self {
        Self { turn: Mutex::default(), places: Semaphore::new(connections_max.div_ceil(2)) }
    }

    /// Waits for its turn; `None` when too many wait.
    pub async fn enter(&self) -> Option<(SemaphorePermit<'_>, MutexGuard<'_, ()>)> {
        let place = self.places.try_acquire().ok()?;
        Some((place, self.turn.lock().await))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_no_address_must_be_known() {
        let tcp = AdminListener { fd: 0, unix: false, host: "box.internal".into(), open: false };
        let hosts = ["status.example.com".to_owned()];
        let allowed = |host: &str| allows_host(host, &tcp, &hosts);
        for host in ["127.0.0.1:9394", "10.1.2.3", "[::1]:9394", "localhost:9394", "LOCALHOST"] {
            assert!(allowed(host), "{host}");
        }
        assert!(allowed("box.internal:9394") && allowed("Status.Example.com"));
        for host in
            ["evil.example", "evil.example:9394", "127.0.0.1.evil.example", "", ":1", "[evil]"]
        {
            assert!(!allowed(host), "{host}");
        }
        assert!(allows_host("evil.example", &AdminListener { unix: true, ..tcp }, &[]));
    }

    #[test]
    fn only_the_whole_token_is_the_same() {
        assert!(same_token("0123456789abcdef", "0123456789abcdef"));
        for other in ["", "0123456789abcde", "0123456789abcdeF", "0123456789abcdef0", "\0"] {
            assert!(!same_token(other, "0123456789abcdef"), "{other:?}");
        }
    }
}
