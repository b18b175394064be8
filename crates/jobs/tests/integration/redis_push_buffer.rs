//! `reliable_push`: pushes wait in memory while the server is away, and are sent in their order when it is back.

use std::sync::Arc;
use std::time::Duration;

use crate::redis_server::{job, wait_for, TestRedis};
use chaton_jobs::push_buffer::{PushBuffer, UnsentJobs};
use chaton_jobs::store::{
    open, JobLocation, NewJob, NewLock, PushResult, Result, Store, StoreErrorKind, StoreFactory,
    StoreOptions,
};

const PUSHES: usize = 500;

/// A client of a server that is reached by its socket file, so that no other process can take its place.
struct Client {
    options: StoreOptions,
    factory: Arc<dyn StoreFactory>,
    store: Box<dyn Store>,
    buffer: PushBuffer,
    /// Reads with timeouts of its own.
    reader: Arc<dyn StoreFactory>,
}

impl Client {
    fn new(server: &TestRedis, tune: impl Fn(&mut StoreOptions)) -> Self {
        let mut options = StoreOptions::for_tests(format!("unix://{}", server.socket()));
        let reader = open(&options).unwrap();
        options.reliable_push = Some(1 << 20);
        options.reliable_push_timeout = Duration::from_secs(60);
        tune(&mut options);
        let factory = open(&options).unwrap();
        let buffer = PushBuffer::new(&factory, &options).unwrap();
        Self { options, store: factory.store(), factory, buffer, reader }
    }

    fn push_all(&mut self, jobs: &[NewJob<'_>]) -> Result<Vec<PushResult>> {
        match self.buffer.push_behind(jobs) {
            Some(kept) => kept,
            None => self.buffer.push(&mut *self.store, jobs),
        }
    }

    fn push(&mut self, queue: &str, number: usize) -> Result<Vec<PushResult>> {
        self.push_all(&[job(queue, &document(number))])
    }

    /// Pushes a job that must come after those that wait.
    fn push_locked(&mut self) -> Result<Vec<PushResult>> {
        let lock = NewLock { key: "k", jid: "j0", ttl: Duration::from_secs(60) };
        self.push_all(&[NewJob { lock: Some(lock), ..job("locked", &document(0)) }])
    }

    /// The numbers of the jobs at a place, the oldest one first.
    fn stored(&self, place: &JobLocation) -> Vec<usize> {
        let page = self.reader.store().list(place, 0, 100_000).unwrap();
        page.iter().map(|entry| number(&entry.payload)).collect()
    }

    fn queue(&self, name: &str) -> Vec<usize> {
        self.stored(&JobLocation::Queue(name.into()))
    }
}

fn server() -> TestRedis {
    TestRedis::start(&["--port", "0", "--appendonly", "yes", "--appendfsync", "always"])
}

fn document(number: usize) -> Vec<u8> {
    format!("{{\"class\":\"A{}\",\"args\":[{number}],\"jid\":\"j{number}\"}}", number % 2)
        .into_bytes()
}

fn number(payload: &[u8]) -> usize {
    let text = std::str::from_utf8(payload).unwrap();
    let (_, rest) = text.split_once('[').unwrap();
    rest.split_once(']').unwrap().0.parse().unwrap()
}

#[test]
fn pushes_wait_for_the_server_and_are_stored_once_in_their_order() {
    let mut server = server();
    let mut client = Client::new(&server, |_| {});
    client.push("q0", 0).unwrap();
    server.kill();
    for number in 1..PUSHES {
        let stored = client.push(&format!("q{}", number / 100 % 2), number).unwrap();
        assert_eq!(stored, [PushResult::Stored]);
    }
    let document = document(9);
    client.push_all(&[NewJob { at: Some(5e9), ..job("q0", &document) }]).unwrap();
    server.restart();
    // These queue behind the ones that wait, or are pushed at once if none do any more.
    for number in PUSHES..2 * PUSHES {
        client.push(&format!("q{}", number / 100 % 2), number).unwrap();
    }
    assert_eq!(client.buffer.finish(Duration::ZERO), None);
    for (queue, odd) in [("q0", 0), ("q1", 1)] {
        let expected: Vec<_> = (0..2 * PUSHES).filter(|n| n / 100 % 2 == odd).collect();
        assert_eq!(client.queue(queue), expected);
    }
    assert_eq!(client.stored(&JobLocation::Scheduled), [9]);
}

#[test]
fn a_retry_sends_the_jobs_without_another_push() {
    let mut server = server();
    let mut client = Client::new(&server, |_| {});
    server.kill();
    client.push("q", 1).unwrap();
    server.restart();
    wait_for("the job", || client.queue("q") == [1]);
}

#[test]
fn a_full_buffer_refuses_as_without_it_and_names_the_setting() {
    let mut server = server();
    let mut client = Client::new(&server, |options| options.reliable_push = Some(4096));
    server.kill();
    let mut kept = 0;
    let error = loop {
        match client.push("q", kept) {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, StoreErrorKind::Unavailable);
    assert!(error.message.contains("cannot connect"), "{error}");
    assert!(error.message.contains("reliable_push allows 4096 bytes"), "{error}");
    assert!((30..60).contains(&kept), "{kept} jobs of about 100 bytes");
    server.restart();
    assert_eq!(client.buffer.finish(Duration::ZERO), None);
    assert_eq!(client.queue("q"), (0..kept).collect::<Vec<_>>());
    server.kill();
    client.push("q", kept).unwrap();
}

#[test]
fn jobs_with_a_lock_or_a_batch_are_not_kept_and_come_after_those_that_are() {
    let mut server = server();
    let mut client = Client::new(&server, |_| {});
    let (first, second) = (document(1), document(2));
    let lock = NewLock { key: "k", jid: "j2", ttl: Duration::from_secs(60) };
    let locked = NewJob { lock: Some(lock), ..job("q", &second) };
    let in_batch = NewJob { bid: Some("b"), ..job("q", &second) };
    server.kill();
    for refused in [locked, in_batch] {
        let error = client.push_all(&[job("q", &first), refused]).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
    }
    client.push("q", 0).unwrap();
    let error = client.push_all(&[locked]).unwrap_err();
    assert!(error.message.contains("1 jobs that were pushed before wait in memory"), "{error}");
    client.push("q", 1).unwrap();
    server.restart();
    wait_for("the lock", || client.push_all(&[locked]).is_ok());
    assert_eq!(client.queue("q"), [0, 1, 2]);
}

#[test]
fn what_is_not_sent_at_the_end_is_given_up_and_named() {
    let mut server = server();
    let mut client = Client::new(&server, |options| options.reliable_push_timeout = Duration::ZERO);
    server.kill();
    (0..5).for_each(|number| drop(client.push("q", number).unwrap()));
    let unsent = UnsentJobs { count: 5, classes: "A0 3, A1 2".into() };
    assert_eq!(client.buffer.finish(Duration::ZERO), Some(unsent));
    assert_eq!(client.buffer.finish(Duration::ZERO), None);
    server.restart();
    wait_for("a push", || client.push("q", 7).is_ok());
    wait_for("the job", || client.queue("q").contains(&7));
}

#[test]
fn it_is_off_by_default_and_for_a_file() {
    let server = server();
    let client = Client::new(&server, |_| {});
    let off = StoreOptions { reliable_push: None, ..client.options.clone() };
    let file = StoreOptions { url: "sqlite:///tmp/none".into(), ..client.options.clone() };
    assert!(PushBuffer::new(&client.factory, &off).is_none());
    assert!(PushBuffer::new(&client.factory, &file).is_none());
}

#[test]
fn a_push_whose_reply_is_lost_is_sent_again() {
    let server = server();
    let mut client =
        Client::new(&server, |options| options.answer_timeout = Duration::from_millis(200));
    client.push("q", 0).unwrap();
    assert_eq!(server.cli(&["CLIENT", "PAUSE", "600000", "WRITE"]), "OK");
    client.push("q", 1).unwrap();
    client.push("q", 2).unwrap();
    assert_eq!(server.cli(&["CLIENT", "UNPAUSE"]), "OK");
    wait_for("the jobs", || client.queue("q").contains(&2));
    let mut first_times = vec![];
    for number in client.queue("q") {
        if !first_times.contains(&number) {
            first_times.push(number);
        }
    }
    assert_eq!(first_times, [0, 1, 2], "at least once, in their order");
}

#[test]
fn a_refused_job_is_set_aside_and_sent_when_the_cause_is_gone() {
    let mut server = server();
    let mut client = Client::new(&server, |_| {});
    assert_eq!(server.cli(&["SET", "queue:bad", "no list"]), "OK");
    server.kill();
    for (number, queue) in ["good", "bad", "bad", "good"].into_iter().enumerate() {
        client.push(queue, number).unwrap();
    }
    server.restart();
    wait_for("the turn of others", || client.push_locked().is_ok());
    assert_eq!(client.queue("good"), [0, 3]);
    assert_eq!(client.push("bad", 8).unwrap_err().kind, StoreErrorKind::Corrupt);
    assert_eq!(server.cli(&["DEL", "queue:bad"]), "1");
    wait_for("the refused ones", || client.queue("bad") == [1, 2]);
    assert_eq!(client.buffer.finish(Duration::ZERO), None);
}

#[test]
fn refused_jobs_take_memory_and_are_named_at_the_end() {
    let mut server = server();
    let mut client = Client::new(&server, |options| options.reliable_push = Some(4096));
    assert_eq!(server.cli(&["SET", "queue:bad", "no list"]), "OK");
    server.kill();
    let mut kept = 0;
    while client.push("bad", 2 * kept).is_ok() {
        kept += 1;
    }
    server.restart();
    wait_for("the turn of others", || client.push_locked().is_ok());
    server.kill();
    let error = client.push("good", 3).unwrap_err();
    assert!(error.message.contains(&format!("{kept} jobs wait there")), "{error}");
    let unsent = UnsentJobs { count: kept, classes: format!("A0 {kept}") };
    assert_eq!(client.buffer.finish(Duration::ZERO), Some(unsent));
    client.push("good", 5).unwrap();
}
