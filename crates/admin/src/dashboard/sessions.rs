//! Who has opened the page: one-time links, and the sessions that they began.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use crate::access::same_token;

/// Links, and sessions, that are valid at once; a further one ends the oldest.
const KEPT_MAX: usize = 16;
/// Random bytes of a session's key.
const KEY_BYTES: usize = 32;

/// The keys that are valid. Times are those of the monotonic clock (ns).
#[derive(Default)]
pub(crate) struct Sessions {
    links: Vec<Key>,
    sessions: Vec<Key>,
}

struct Key {
    text: String,
    until_ns: u64,
}

impl Sessions {
    /// Makes a link valid, once.
    pub fn add_link(&mut self, key: String, valid: Duration, now_ns: u64) {
        keep(&mut self.links, key, valid, now_ns);
    }

    /// Uses a link up; false: it is unknown, used, or too old.
    pub fn use_link(&mut self, key: &str, now_ns: u64) -> bool {
        let found = find(&self.links, key, now_ns);
        found.map(|index| self.links.remove(index)).is_some()
    }

    /// Begins a session.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn begin(&mut self, valid: Duration, now_ns: u64) -> io::Result<String> {
        let mut bytes = [0; KEY_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        let key = bytes.iter().fold(String::new(), |mut key, byte| {
            // A String takes all that is written.
            let _ = write!(key, "{byte:02x}");
            key
        });
        keep(&mut self.sessions, key.clone(), valid, now_ns);
        Ok(key)
    }

    /// Whether a session is valid.
    pub fn is_valid(&self, key: &str, now_ns: u64) -> bool {
        find(&self.sessions, key, now_ns).is_some()
    }
}

fn keep(keys: &mut Vec<Key>, text: String, valid: Duration, now_ns: u64) {
    keys.retain(|key| key.until_ns > now_ns);
    if keys.len() == KEPT_MAX {
        keys.remove(0);
    }
    let until_ns = now_ns.saturating_add(u64::try_from(valid.as_nanos()).unwrap_or(u64::MAX));
    keys.push(Key { text, until_ns });
}

/// Compares with all of them, so that the time does not depend on which one it is.
fn find(keys: &[Key], given: &str, now_ns: u64) -> Option<usize> {
    keys.iter().enumerate().fold(None, |found, (index, key)| {
        let same = same_token(given, &key.text) && key.until_ns > now_ns;
        if same {
            Some(index)
        } else {
            found
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const MINUTE_NS: u64 = 60_000_000_000;

    #[test]
    fn a_link_is_valid_once_and_for_a_limited_time() {
        let mut sessions = Sessions::default();
        sessions.add_link("first".to_owned(), MINUTE, 0);
        sessions.add_link("second".to_owned(), MINUTE, 0);
        assert!(!sessions.use_link("", 1) && !sessions.use_link("firs", 1));
        assert!(sessions.use_link("first", 1));
        assert!(!sessions.use_link("first", 1), "it is used up");
        assert!(!sessions.use_link("second", MINUTE_NS), "it is too old");
    }

    #[test]
    fn a_session_ends_in_time_or_when_there_are_too_many() {
        let mut sessions = Sessions::default();
        let first = sessions.begin(MINUTE, 0).unwrap();
        let second = sessions.begin(MINUTE, 0).unwrap();
        assert_eq!((first.len(), first == second), (64, false));
        assert!(sessions.is_valid(&first, MINUTE_NS - 1) && !sessions.is_valid(&first, MINUTE_NS));
        assert!(!sessions.is_valid("", 1) && !sessions.use_link(&first, 1));
        (0..KEPT_MAX - 1).for_each(|_| drop(sessions.begin(MINUTE, 0).unwrap()));
        assert!(!sessions.is_valid(&first, 1) && sessions.is_valid(&second, 1));
    }
}
