//! Files that are foreign, damaged, locked, removed or full.

use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::*;

fn kind_of(result: Result<()>) -> (StoreErrorKind, String) {
    let error = result.unwrap_err();
    (error.kind, error.message)
}

fn open(path: &Path) -> Box<dyn Store> {
    let mut options = StoreOptions::for_tests(format!("sqlite://{}", path.display()));
    options.lock_timeout = Duration::from_millis(50);
    factory(&options).unwrap().store()
}

#[test]
fn a_file_of_another_program_is_refused() {
    let _alone = ALONE.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    Connection::open(&path).unwrap().execute_batch("CREATE TABLE users(id)").unwrap();
    let (kind, message) = kind_of(push(&mut *open(&path), "a"));
    assert_eq!(kind, StoreErrorKind::Refused);
    assert!(message.contains("app.db") && message.contains("another program"), "{message}");
    let journal: String = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(journal, "delete", "it was not touched");
}

#[test]
fn a_newer_file_is_refused() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    push(&mut *place.store(), "a").unwrap();
    let newer = Connection::open(place.path()).unwrap();
    newer.execute_batch("PRAGMA user_version=99").unwrap();
    drop(newer);
    let copy = place.folder.path().join("newer.db");
    Connection::open(place.path()).unwrap().execute("VACUUM INTO ?1", [copy.to_str()]).unwrap();
    let (kind, message) = kind_of(push(&mut *open(&copy), "b"));
    assert_eq!(kind, StoreErrorKind::Refused);
    assert!(message.contains("newer Chaton") && message.contains("99"), "{message}");
}

#[test]
fn a_missing_folder_is_created_and_a_bad_one_named() {
    let folder = tempfile::tempdir().unwrap();
    push(&mut *open(&folder.path().join("a/b/jobs.db")), "a").unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    let (kind, message) = kind_of(push(&mut *open(&folder.path().join("file/jobs.db")), "a"));
    assert_eq!(kind, StoreErrorKind::Refused);
    assert!(message.contains("file/jobs.db"), "{message}");
    std::fs::create_dir(folder.path().join("dir.db")).unwrap();
    let (kind, _) = kind_of(push(&mut *open(&folder.path().join("dir.db")), "a"));
    assert_eq!(kind, StoreErrorKind::Refused);
}

#[test]
fn a_damaged_file_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jobs.db");
    std::fs::write(&path, vec![b'x'; 8192]).unwrap();
    let (kind, message) = kind_of(push(&mut *open(&path), "a"));
    assert_eq!(kind, StoreErrorKind::Corrupt);
    assert!(message.contains("jobs.db") && message.contains("backup"), "{message}");
}

#[test]
fn a_lock_of_another_program_is_waited_for_and_reported() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|options| options.lock_timeout = Duration::from_millis(50));
    let mut store = place.store();
    push(&mut *store, "a").unwrap();
    let other = Connection::open(place.path()).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (kind, message) = kind_of(push(&mut *store, "b"));
    assert_eq!(kind, StoreErrorKind::Busy);
    assert!(message.contains("jobs.db"), "{message}");
    assert_eq!(store.stats().unwrap().enqueued, 1, "looking is allowed");
    other.execute_batch("ROLLBACK").unwrap();
    push(&mut *store, "b").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 2);
}

#[test]
fn a_removed_file_is_reported_once() {
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    push(&mut *store, "a").unwrap();
    let mut watch = place.watch();
    watch.arm(&["q".into()]).unwrap();
    while watch.wait(Duration::ZERO).unwrap() != StoreEvent::Timeout {}
    for end in ["", "-wal", "-shm"] {
        std::fs::remove_file(chaton_embedded::with_suffix(&place.path(), end)).unwrap();
    }
    let event = watch.wait(Duration::from_secs(20)).unwrap();
    assert!(matches!(event, StoreEvent::Changed { .. }), "{event:?}");
    let (kind, message) = kind_of(push(&mut *store, "b"));
    assert_eq!(kind, StoreErrorKind::Unavailable);
    assert!(message.contains("removed") && message.contains("jobs.db"), "{message}");
    push(&mut *store, "c").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 1);
    assert!(watch.arm(&["q".into()]).unwrap().ready);
    push(&mut *store, "d").unwrap();
    assert!(matches!(watch.wait(Duration::from_secs(20)).unwrap(), StoreEvent::Changed { .. }));
}

/// Puts a directory behind the descriptors of a file: it cannot be read or written through them.
fn break_descriptors(path: &Path) {
    let folder = std::fs::File::open("/").unwrap();
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        let fd: i32 = entry.file_name().to_str().unwrap().parse().unwrap();
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            // SAFETY: both are open; SQLite only gets errors by the second one.
            assert_eq!(unsafe { libc::dup2(folder.as_raw_fd(), fd) }, fd);
        }
    }
}

#[test]
fn a_file_is_opened_again_after_its_disk_has_failed() {
    let _alone = ALONE.lock();
    let place = TemporaryStore::new(|_| {});
    let mut store = place.store();
    push(&mut *store, "a").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 1);
    for end in ["", "-wal"] {
        break_descriptors(&chaton_embedded::with_suffix(&place.path(), end));
    }
    let (kind, message) = kind_of(push(&mut *store, "b"));
    assert_eq!(kind, StoreErrorKind::Unavailable);
    assert!(message.contains("its disk failed"), "{message}");
    push(&mut *store, "b").unwrap();
    assert_eq!(store.stats().unwrap().enqueued, 2);
}

/// A small file system in memory, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// `None` where this process may not mount.
    fn new(size: &std::ffi::CStr) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let path = std::ffi::CString::new(folder.path().as_os_str().as_bytes()).unwrap();
        let kind = c"tmpfs".as_ptr();
        // SAFETY: strings with their NUL.
        let code = unsafe { libc::mount(kind, path.as_ptr(), kind, 0, size.as_ptr().cast()) };
        (code == 0).then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let path = std::ffi::CString::new(self.0.path().as_os_str().as_bytes()).unwrap();
        // SAFETY: a string with its NUL; mounted by `new`.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
fn a_full_disk_is_reported_and_loses_nothing() {
    let Some(disk) = SmallDisk::new(c"size=2m") else {
        eprintln!("a_full_disk: may not mount a small disk here");
        return;
    };
    let ballast = disk.0.path().join("ballast");
    std::fs::write(&ballast, vec![b'x'; 1_300_000]).unwrap();
    let mut store = open(&disk.0.path().join("jobs.db"));
    let payload = "x".repeat(10_000);
    let mut stored = 0;
    let error = loop {
        match push(&mut *store, &payload) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1000, "the disk never got full");
    };
    assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
    assert!(error.message.contains("jobs.db") && error.message.contains("full"), "{error}");
    assert_eq!(store.stats().unwrap().enqueued, stored, "what was acknowledged is there");
    assert_eq!(push(&mut *store, &payload).unwrap_err().kind, StoreErrorKind::Full);
    std::fs::remove_file(ballast).unwrap();
    let jobs = claim(&mut *store, "o", 1, 1000);
    assert_eq!(jobs.len() as u64, stored);
    let ends: Vec<_> = jobs.iter().map(|job| done(job.ticket)).collect();
    assert_eq!(store.ack("o", &ends).unwrap(), 0);
    push(&mut *store, &payload).unwrap();
}
