//! The engine's life: places, refusal, drain, stop, and what goes wrong.

use chaton_core::engine::Engine as _;
use std::fs;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{answer, echo, eventually, ok_head, Client, Server, PATIENCE};
use chaton_web::Capacity;

/// An application that waits until it is let go, once a request.
fn held() -> (mpsc::Sender<()>, impl Fn(Arc<chaton_web::Exchange>) + Send + Sync) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let app = move |exchange| {
        wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        answer(exchange, b"held");
    };
    (go, app)
}

#[test]
fn a_full_queue_sheds_with_retry_after() {
    let (go, app) = held();
    let server = Server::with_room(1, 1, |_| {}, app);
    let mut first = server.connect();
    first.get("/running");
    eventually("the first is handed over", || server.engine.stats().requests_total == 1);
    let mut others: Vec<Client> = (0..20).map(|_| server.connect()).collect();
    for client in &mut others {
        client.get("/more");
    }
    eventually("the queue sheds", || server.engine.stats().shed_total >= 18);
    for _ in 0..20 {
        let _ = go.send(());
    }
    let mut shed = 0;
    for client in &mut others {
        let reply = client.reply();
        if reply.status == 503 {
            assert_eq!(reply.header("retry-after"), Some("1"));
            assert!(client.is_ended());
            shed += 1;
        }
    }
    assert_eq!(shed, server.engine.stats().shed_total);
    assert_eq!(first.reply().text(), "held");
}

#[test]
fn requests_given_up_are_answered_503_unless_their_response_has_begun() {
    let (go, wait) = mpsc::channel::<()>();
    let (wait, begun) = (Mutex::new(wait), Arc::new(AtomicU32::new(0)));
    let count = Arc::clone(&begun);
    let server = Server::start(move |exchange: Arc<chaton_web::Exchange>| {
        if exchange.head().get(exchange.head().path) == b"/stream" {
            let head = ok_head(&exchange, "");
            exchange.begin(head);
        }
        count.fetch_add(1, SeqCst);
        wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        if exchange.write(b"streamed").is_ok() {
            exchange.end(true);
        }
    });
    let (mut streaming, mut running) = (server.connect(), server.connect());
    streaming.get("/stream");
    running.get("/run");
    eventually("both run", || begun.load(SeqCst) == 2);
    server.engine.give_up();
    let reply = running.reply();
    assert_eq!((reply.status, reply.header("connection")), (503, Some("close")));
    assert!(running.is_ended());
    go.send(()).unwrap();
    go.send(()).unwrap();
    assert_eq!(streaming.reply().text(), "streamed");
}

#[test]
fn past_the_places_connections_wait_until_one_idles() {
    let (go, app) = held();
    let server = Server::with(|config| config.limits.connections_max = 2, app);
    let (mut a, mut b) = (server.connect(), server.connect());
    a.get("/a");
    eventually("a is handed over", || server.engine.stats().requests_total == 1);
    b.get("/b");
    eventually("b is handed over", || server.engine.stats().requests_total == 2);
    let mut c = server.connect();
    c.get("/c").socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert!(std::io::Read::read(&mut c.socket, &mut [0; 1]).is_err(), "served past the places");
    assert_eq!(server.engine.stats().connections, 2);
    c.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    (0..3).for_each(|_| go.send(()).unwrap());
    let replies = [&mut a, &mut b, &mut c].map(|client| client.reply().status);
    assert_eq!(replies, [200; 3]);
    // The first of the two that idled has made room.
    assert_eq!(server.engine.stats().connections, 2);
}

#[test]
fn at_the_bound_the_connection_that_has_idled_longest_makes_room() {
    let server = Server::with(|config| config.limits.connections_max = 3, echo);
    let (mut kept, mut begun) = (server.connect(), server.connect());
    assert_eq!(kept.get("/").reply().status, 200);
    begun.send("GET /begun HT");
    eventually("its beginning is read", || server.engine.stats().read_bytes_total > 40);
    let mut silent = server.connect();
    eventually("all are open", || server.engine.stats().connections == 3);
    assert_eq!(kept.get("/again").reply().status, 200);
    let mut others = vec![];
    for ended in [&mut silent, &mut kept] {
        let mut new = server.connect();
        assert_eq!(new.get("/new").reply().text(), "GET /new ");
        assert!(ended.is_ended());
        others.push(new);
    }
    begun.send("TP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(begun.reply().text(), "GET /begun ");
    let warnings = server.threads.warnings.lock().unwrap().clone();
    let line =
        "closed 1 idle connections to make room for new ones: connections_max (3) is reached";
    assert_eq!(warnings, [line], "one in a minute");
}

#[test]
fn a_connection_has_a_number_of_requests() {
    let server = Server::with(|config| config.limits.requests_per_connection_max = 3, echo);
    let mut client = server.connect();
    for i in 1..=3 {
        let reply = client.get("/").reply();
        assert_eq!(reply.header("connection"), (i == 3).then_some("close"));
    }
    assert!(client.is_ended());
}

#[test]
fn a_drain_answers_what_is_there() {
    let (go, app) = held();
    let server = Server::with(|config| config.timeouts.drain_idle = PATIENCE, app);
    let (mut running, mut late) = (server.connect(), server.connect());
    go.send(()).unwrap();
    assert_eq!(late.get("/").reply().text(), "held");
    running.get("/running");
    eventually("it is handed over", || server.engine.stats().requests_total == 2);
    server.engine.quiet();
    assert!(!server.engine.wait_idle(Duration::from_millis(1)));
    eventually("nobody accepts", || std::net::TcpStream::connect(server.at).is_err());
    // A request on an idle connection is still served, and told that it was the last.
    go.send(()).unwrap();
    go.send(()).unwrap();
    let reply = late.get("/late").reply();
    assert_eq!((reply.text().as_str(), reply.header("connection")), ("held", Some("close")));
    assert_eq!(running.reply().header("connection"), Some("close"));
    drop((running, late));
    assert!(server.engine.wait_idle(PATIENCE));
}

#[test]
fn a_drain_closes_a_connection_that_has_idled_and_leaves_others_their_time() {
    let drain_idle = Duration::from_secs(4);
    let server = Server::with(|config| config.timeouts.drain_idle = drain_idle, echo);
    let (mut idle, mut active) = (server.connect(), server.connect());
    assert_eq!(idle.get("/").reply().status, 200);
    std::thread::sleep(drain_idle);
    assert_eq!(active.get("/").reply().status, 200);
    let start = Instant::now();
    server.engine.quiet();
    assert!(idle.is_ended());
    // The client sends its next request as soon as it has read the last response.
    assert_eq!(active.get("/").reply().header("connection"), Some("close"));
    assert!(start.elapsed() < drain_idle);
    drop((idle, active));
    assert!(server.engine.wait_idle(PATIENCE));
}

#[test]
fn a_wait_for_the_drain_can_be_interrupted() {
    let server = Arc::new(Server::start(echo));
    let mut client = server.connect();
    client.get("/").reply();
    let waiting = Arc::clone(&server);
    let waiter = std::thread::spawn(move || waiting.engine.wait_idle(PATIENCE));
    let until = Instant::now() + PATIENCE;
    while !waiter.is_finished() && Instant::now() < until {
        server.engine.interrupt_wait();
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!waiter.join().unwrap());
}

#[test]
fn stop_closes_everything() {
    let (result, told) = mpsc::channel();
    let server = Server::with(
        |config| {
            config.limits.reply_memory_bytes_max = 1_000;
            config.limits.reply_spool_bytes_max = 0;
        },
        move |exchange| {
            exchange.begin(ok_head(&exchange, "X: y"));
            let mut room = Ok(Capacity::Available);
            while room.is_ok() {
                room = exchange
                    .write(&[0; 100_000])
                    .and_then(|_| exchange.wait_for_capacity(PATIENCE));
            }
            result.send(room).unwrap();
        },
    );
    let mut idle = server.connect();
    let mut busy = server.connect();
    busy.get("/").bytes(10);
    eventually("both are open", || server.engine.stats().connections == 2);
    server.engine.stop();
    assert_eq!(told.recv_timeout(PATIENCE), Ok(Err(chaton_web::ClientGone)));
    assert!(idle.is_ended());
    assert_eq!(server.engine.stats().connections, 0);
    server.engine.stop();
}

#[test]
fn a_panic_harms_one_connection() {
    let server = Server::start(echo);
    let mut neighbour = server.connect();
    assert_eq!(neighbour.get("/").reply().status, 200);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX-Panic: yes\r\n\r\n");
    assert!(client.is_ended());
    assert_eq!(neighbour.get("/").reply().status, 200);
    let stats = server.engine.stats();
    assert_eq!((stats.panics_total, stats.connections), (1, 1));
}

#[test]
fn a_client_that_goes_while_the_application_works() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let gone = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&gone);
    let server = Server::start(move |exchange| {
        wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        eventually("the client is known to be gone", || exchange.is_gone());
        seen.fetch_add(1, SeqCst);
        answer(exchange, b"to nobody");
    });
    let mut client = server.connect();
    client.get("/");
    eventually("it is handed over", || server.engine.stats().requests_total == 1);
    reset(client);
    go.send(()).unwrap();
    eventually("the application is through", || gone.load(SeqCst) == 1);
    eventually("the connection is counted out", || server.engine.stats().connections == 0);
    let mut next = server.connect();
    next.get("/next");
    reset(next);
    go.send(()).unwrap();
    eventually("the next one too", || gone.load(SeqCst) == 2);
}

/// Closes so that the peer sees a reset, as after a crash.
fn reset(client: Client) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let len = std::mem::size_of_val(&linger) as libc::socklen_t;
    let fd = client.socket.as_raw_fd();
    // SAFETY: the pointer and length are those of a live structure.
    let set = unsafe {
        let value = std::ptr::from_ref(&linger).cast();
        libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, len)
    };
    assert_eq!(set, 0);
}

#[test]
fn the_io_thread_blocks_every_signal() {
    let server = Server::start(echo);
    server.connect().get("/").reply();
    let masks: Vec<u64> = fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok())
        .filter(|status| status.starts_with("Name:\tchaton-io\n"))
        .map(|status| {
            let line = status.lines().find(|line| line.starts_with("SigBlk:")).unwrap();
            u64::from_str_radix(line["SigBlk:".len()..].trim(), 16).unwrap()
        })
        .collect();
    assert!(!masks.is_empty());
    for mask in masks {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGCHLD, libc::SIGUSR1, libc::SIGPIPE] {
            assert!(mask & (1 << (signal - 1)) != 0, "signal {signal} in {mask:x}");
        }
    }
}

#[test]
fn an_idle_engine_does_not_wake() {
    let server = Server::start(echo);
    let mut client = server.connect();
    client.get("/").reply();
    eventually("the connection rests", || {
        let before = server.engine.stats().wakeups_total;
        std::thread::sleep(Duration::from_millis(100));
        server.engine.stats().wakeups_total == before
    });
}
