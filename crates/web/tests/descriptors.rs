//! Out of descriptors. In a file of its own: the limit is the process's.

mod support;

use std::os::fd::AsRawFd;

use support::{echo, eventually, Server};

fn limit_descriptors(count: libc::rlim_t) -> libc::rlim_t {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live structure.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) }, 0);
    let before = std::mem::replace(&mut limit.rlim_cur, count);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
    before
}

#[test]
fn connections_wait_until_there_are_descriptors_again() {
    let server = Server::start(echo);
    let mut early = server.connect();
    assert_eq!(early.get("/early").reply().status, 200);
    // The lowest free number: room for the client's side of one more connection.
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd();
    let before = limit_descriptors(free as libc::rlim_t + 1);
    let mut late = server.connect();
    late.get("/late");
    eventually("accepting fails", || server.engine.stats().accept_failures_total >= 3);
    assert_eq!(early.get("/meanwhile").reply().text(), "GET /meanwhile ");
    let warnings = server.threads.warnings.lock().unwrap().clone();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("can't accept connections on tcp://"), "{warnings:?}");
    limit_descriptors(before);
    assert_eq!(late.reply().text(), "GET /late ");
}
