//! The folder of a log:
//!
//! ```text
//! topics/NAME/meta.json          partitions and settings
//! topics/NAME/0/                 a partition: segments, indexes, head, writer.lock
//! groups/NAME/                   a consumer group: state.json, offsets, members/
//! transactions/                  prepared transactions
//! ```

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use chaton_core::local_disk;
use parking_lot::Mutex;

use super::{errors, files};
use crate::log::{ErrorKind, LogError, Partition, Result};
use crate::settings::LogSettings;

/// Names longer than this are refused, as by Kafka.
const NAME_BYTES_MAX: usize = 249;
/// The content of the file `format`.
const FORMAT: &str = "chaton log, format 1\n";

#[derive(Debug)]
pub(super) struct LogDir {
    pub root: PathBuf,
    pub settings: LogSettings,
    /// It was there, or was created here: it is not created again.
    was_there: Mutex<bool>,
}

impl LogDir {
    /// Names the folder, which is created when something is written.
    pub fn open(settings: &LogSettings) -> Result<Self> {
        let root = Self::check_path(settings)?;
        let was_there = Mutex::new(root.is_dir());
        let dir = Self { root, settings: settings.clone(), was_there };
        dir.check_format().map(|_| dir)
    }

    /// The folder of these settings, which must be on a local disk.
    pub fn check_path(settings: &LogSettings) -> Result<PathBuf> {
        let path = settings.broker.strip_prefix("log://").unwrap_or_default();
        if !path.starts_with('/') {
            return Err(LogError::new(
                ErrorKind::Refused,
                format!("broker {:?} must be log:// and an absolute path", settings.broker),
            ));
        }
        let path = PathBuf::from(path);
        local_disk::check(&path)
            .map_err(|error| errors::io(&path, "checking the disk of", &error))?;
        Ok(path)
    }

    /// Creates what is missing in the folder, and the folder itself unless it was there before:
    /// records that are written to a new one would not be in that which is restored.
    pub fn create(&self) -> Result<()> {
        let failed = |folder: &Path, error| errors::io(folder, "creating the folder", &error);
        let mut was_there = self.was_there.lock();
        if !*was_there {
            fs::create_dir_all(&self.root).map_err(|error| failed(&self.root, error))?;
            *was_there = true;
        }
        drop(was_there);
        self.id()?;
        for folder in [self.topics(), self.groups(), self.transactions()] {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(&folder, error));
                }
                _ => {}
            }
        }
        if self.check_format()? {
            return Ok(());
        }
        let path = self.root.join("format");
        files::replace(&path, FORMAT.as_bytes(), self.settings.durable)
            .map_err(|error| errors::io(&path, "writing", &error))
    }

    /// Device and inode of the folder, which change when it is replaced.
    ///
    /// # Errors
    /// `Unreachable` while there is none.
    pub fn id(&self) -> Result<(u64, u64)> {
        files::inode(&self.root).ok_or_else(|| errors::removed(&self.root))
    }

    /// Whether the folder says which format it has, and it is this one.
    fn check_format(&self) -> Result<bool> {
        let path = self.root.join("format");
        match fs::read_to_string(&path) {
            Ok(text) if text == FORMAT => Ok(true),
            Ok(text) => Err(LogError::new(
                ErrorKind::Refused,
                format!(
                    "{} says {:?}, and this version writes {:?}; use another folder",
                    path.display(),
                    text.trim(),
                    FORMAT.trim()
                ),
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(errors::io(&path, "reading", &error)),
        }
    }

    pub fn topics(&self) -> PathBuf {
        self.root.join("topics")
    }

    pub fn topic(&self, name: &str) -> PathBuf {
        self.topics().join(name)
    }

    pub fn topic_metadata(&self, topic: &str) -> PathBuf {
        self.topic(topic).join("meta.json")
    }

    pub fn partition(&self, topic: &str, number: i32) -> PathBuf {
        self.topic(topic).join(number.to_string())
    }

    pub fn groups(&self) -> PathBuf {
        self.root.join("groups")
    }

    pub fn group(&self, name: &str) -> PathBuf {
        self.groups().join(escaped(name))
    }

    pub fn transactions(&self) -> PathBuf {
        self.root.join("transactions")
    }

    /// The longest wait for a lock by a call that waits.
    pub fn answer_timeout(&self) -> Duration {
        Duration::from_millis(self.settings.answer_timeout_ms)
    }
}

/// Checks a topic's name by Kafka's rules.
pub(super) fn check_name(name: &str) -> Result<()> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name == "." || name == ".." {
        return Err(errors::invalid(format!(
            "a topic's name has 1 to {NAME_BYTES_MAX} letters and is not . or ..: {name:?}"
        )));
    }
    if !name.chars().all(legal) {
        return Err(errors::invalid(format!(
            "a topic's name is made of letters, digits, dots, hyphens and underscores: {name:?}"
        )));
    }
    Ok(())
}

/// The name of a partition in a group's state: `topic/number`.
pub(super) fn partition_key(topic: &str, number: i32) -> String {
    format!("{topic}/{number}")
}

/// The partition that [`partition_key`] has named.
pub(super) fn parse_partition_key(key: &str) -> Option<Partition> {
    let (topic, number) = key.rsplit_once('/')?;
    Some(Partition { topic: topic.into(), number: number.parse().ok()? })
}

/// Any text as a file name.
pub(super) fn escaped(name: &str) -> String {
    let mut out = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-' {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02x}"));
        }
    }
    out
}

/// The text of an [`escaped`] name; `None` if it is none.
pub(super) fn unescaped(name: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = name.as_bytes();
    while let Some((first, more)) = rest.split_first() {
        rest = more;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// The sorted names of all folders in a folder; none if it does not exist.
pub(super) fn folders(path: &Path) -> Result<Vec<String>> {
    let failed = |error| errors::io(path, "listing", &error);
    let mut names = Vec::new();
    let entries = match fs::read_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        entries => entries.map_err(failed)?,
    };
    for entry in entries {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.extend(entry.file_name().into_string());
        }
    }
    names.sort_unstable();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topic_names_follow_kafkas_rules() {
        for good in ["events", "a.b_c-D9", ".x", &"x".repeat(249)] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "~x", "ä", "a b", &"x".repeat(250)] {
            assert_eq!(check_name(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn escaped_names_are_file_names_and_reversible() {
        for name in ["app", "../x", "a b%", "Größe", "."] {
            let file = escaped(name);
            assert!(file.bytes().all(|b| b.is_ascii_alphanumeric() || b"%_-".contains(&b)));
            assert_eq!(unescaped(&file).as_deref(), Some(name));
        }
        assert_eq!(unescaped("%4"), None);
    }

    #[test]
    fn another_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings::for_tests(&format!("log://{}", folder.path().display()));
        LogDir::open(&settings).unwrap().create().unwrap();
        fs::write(folder.path().join("format"), "chaton log, format 2\n").unwrap();
        let error = LogDir::open(&settings).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Refused);
        assert!(error.message.contains("format 2"), "{error}");
        let error = LogDir::open(&LogSettings::for_tests("log://here")).unwrap_err();
        assert!(error.message.contains("absolute"), "{error}");
    }

    #[test]
    fn a_format_that_cannot_be_read_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let settings = LogSettings::for_tests(&format!("log://{}", folder.path().display()));
        let path = folder.path().join("format");
        fs::write(&path, b"\xff").unwrap();
        let error = LogDir::open(&settings).unwrap_err();
        assert!(error.message.contains("format"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"\xff");
    }
}
