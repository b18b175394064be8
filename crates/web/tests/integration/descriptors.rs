//! Out of descriptors. In a file of its own: the limit is the process's.

use std::fs::File;
use std::sync::{mpsc, Arc, Mutex};

use crate::support::{echo, eventually, Server, PATIENCE};
use chaton_web::{Exchange, StaticSettings};

fn limit_descriptors(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, count);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    before
}

/// Opens files until no descriptor is left but one.
fn leave_one_descriptor() -> Vec<File> {
    let mut files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    files.pop();
    files
}

#[test]
fn without_descriptors_idle_connections_make_room_and_no_file_counts_as_missing() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "static").unwrap();
    let files = StaticSettings::for_tests(root.path());
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let app = move |exchange: Arc<Exchange>| {
        if exchange.head().get(exchange.head().path) == b"/busy" {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        echo(exchange);
    };
    let server = Server::with(|config| config.static_files = Some(files), app);
    let (mut busy, mut idle) = (server.connect(), server.connect());
    assert_eq!(idle.get("/early").reply().status, 200);
    busy.get("/busy");
    eventually("it is handed over", || server.engine.stats().requests_total == 2);

    let before = limit_descriptors(64);
    let full = leave_one_descriptor();
    let mut late = server.connect();
    assert_eq!(late.get("/late").reply().text(), "GET /late ");
    assert!(idle.is_ended());
    assert_eq!(late.get("/a.txt").reply().status, 503);
    eventually("it is closed", || server.engine.stats().connections == 1);

    // None idles now.
    let fuller = leave_one_descriptor();
    let mut last = server.connect();
    last.get("/last");
    eventually("accepting fails", || server.engine.stats().accept_failures_total >= 3);
    drop((full, fuller));
    assert_eq!(last.reply().text(), "GET /last ");
    assert_eq!(last.get("/a.txt").reply().text(), "static");
    go.send(()).unwrap();
    assert_eq!(busy.reply().text(), "GET /busy ");
    limit_descriptors(before);
    let warnings = server.threads.warnings.lock().unwrap().clone();
    let begins = [
        "closed 1 idle connections to make room for new ones: Too many open files",
        "can't accept connections on tcp://",
    ];
    let all = warnings.iter().zip(begins).all(|(line, begin)| line.starts_with(begin));
    assert!(all && warnings.len() == 2, "{warnings:?}");
}
