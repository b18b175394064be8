//! Every stage of a connection has a time limit.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{mpsc, Arc, Mutex};
use std::time::{Duration, Instant};

use crate::support::{answer, echo, eventually, ok_head, Server, PATIENCE};
use chaton_web::{Capacity, Config};

const SHORT: Duration = Duration::from_millis(80);

#[test]
fn a_head_that_does_not_end() {
    let server = Server::with(|config| config.timeouts.header = SHORT, echo);
    let mut client = server.connect();
    let start = Instant::now();
    client.send("GET / HTTP/1.1\r\nHost");
    assert_eq!(client.reply().status, 408);
    assert!(start.elapsed() >= SHORT);
    assert!(client.is_ended());
}

#[test]
fn dripping_does_not_extend_the_time_for_the_head() {
    let server = Server::with(|config| config.timeouts.header = SHORT, echo);
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\n");
    client.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let mut text = Vec::new();
    let until = Instant::now() + PATIENCE;
    while text.is_empty() {
        assert!(Instant::now() < until);
        // Fails once the server has closed; what it said is read then.
        let _ = std::io::Write::write(&mut client.socket, b"a");
        let mut part = [0; 100];
        if let Ok(len) = std::io::Read::read(&mut client.socket, &mut part) {
            text.extend_from_slice(&part[..len]);
        }
    }
    assert!(text.starts_with(b"HTTP/1.1 408 "), "{}", text.escape_ascii());
}

#[test]
fn an_idle_connection_is_closed_without_a_word() {
    let server = Server::with(|config| config.timeouts.idle = SHORT, echo);
    assert!(server.connect().is_ended());
    let mut client = server.connect();
    assert_eq!(client.get("/").reply().status, 200);
    assert!(client.is_ended());
}

#[test]
fn a_connection_serves_again_after_it_gave_its_buffers_back() {
    let server = Server::with(
        |config| {
            config.buffers_idle = Duration::from_millis(1);
            config.timeouts.idle = Duration::from_secs(1);
        },
        echo,
    );
    let mut client = server.connect();
    assert_eq!(client.get("/1").reply().text(), "GET /1 ");
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(client.get("/2").reply().text(), "GET /2 ");
    assert!(client.is_ended());
}

#[test]
fn a_body_without_progress() {
    let server = Server::with(|config| config.timeouts.body = SHORT, echo);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    assert_eq!(client.reply().status, 408);
    assert!(client.is_ended());
}

#[test]
fn a_body_that_drips() {
    let set = |config: &mut Config| {
        config.timeouts.body = SHORT;
        config.limits.body_rate_min = 1 << 20;
    };
    let server = Server::with(set, echo);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    client.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let (mut text, until) = (Vec::new(), Instant::now() + PATIENCE);
    while text.is_empty() {
        assert!(Instant::now() < until, "it goes on");
        // Fails once the server has closed; what it said is read then.
        let _ = std::io::Write::write(&mut client.socket, b"a");
        let mut part = [0; 100];
        if let Ok(len) = std::io::Read::read(&mut client.socket, &mut part) {
            text.extend_from_slice(&part[..len]);
        }
    }
    assert!(text.starts_with(b"HTTP/1.1 408 "), "{}", text.escape_ascii());
}

#[test]
fn a_body_that_is_slow_but_fast_enough() {
    let time = Duration::from_secs(2);
    let set = move |config: &mut Config| {
        config.timeouts.body = time;
        config.limits.body_rate_min = 2;
    };
    let server = Server::with(set, echo);
    let (mut client, start, mut sent) = (server.connect(), Instant::now(), 0);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10000\r\n\r\n");
    while start.elapsed() < time * 5 / 2 {
        client.send("a");
        sent += 1;
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(client.send(vec![b'a'; 10_000 - sent]).reply().status, 200);
}

#[test]
fn a_reader_without_progress() {
    let gone = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&gone);
    let server = Server::with(
        |config| {
            config.timeouts.write = SHORT;
            config.limits.reply_memory_bytes_max = 100_000;
            config.limits.reply_spool_bytes_max = 0;
        },
        move |exchange| {
            exchange.begin(ok_head(&exchange, "X: y"));
            let mut room = Ok(Capacity::Available);
            while room.is_ok() {
                room = exchange.write(&[0; 100_000]);
                if room == Ok(Capacity::Full) {
                    room = exchange.wait_for_capacity(PATIENCE);
                }
            }
            *seen.lock().unwrap() = Some(room);
        },
    );
    let mut client = server.connect();
    client.get("/").bytes(10);
    eventually("the producer is told", || gone.lock().unwrap().is_some());
}

#[test]
fn a_late_answer_is_a_503_for_the_client_and_nothing_for_the_thread() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let (done, result) = mpsc::channel();
    let server = Server::with(
        |config| {
            config.timeouts.request = Some(SHORT);
            config.retry_after_s = 7;
        },
        move |exchange| {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            let again = Arc::clone(&exchange);
            answer(exchange, b"too late");
            done.send((again.timed_out(), again.is_gone())).unwrap();
        },
    );
    let mut client = server.connect();
    let reply = client.get("/slow").reply();
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("7")));
    assert!(client.is_ended());
    assert_eq!(server.threads.late.load(SeqCst), 1);
    go.send(()).unwrap();
    assert_eq!(result.recv_timeout(PATIENCE), Ok((true, true)));
    assert_eq!(server.engine.stats().late_total, 1);
}

#[test]
fn an_answer_that_has_begun_is_left_alone() {
    let server = Server::with(
        |config| config.timeouts.request = Some(SHORT),
        |exchange| {
            let head = ok_head(&exchange, "");
            exchange.begin(head);
            std::thread::sleep(SHORT * 3);
            exchange.write(b"slow but sure").unwrap();
            exchange.end(true);
        },
    );
    assert_eq!(server.connect().get("/").reply().text(), "slow but sure");
    assert_eq!(server.engine.stats().late_total, 0);
}

#[test]
fn requests_keep_a_connection_from_idling() {
    let idle = Duration::from_secs(1);
    let server = Server::with(|config| config.timeouts.idle = idle, echo);
    let mut client = server.connect();
    let start = Instant::now();
    while start.elapsed() < idle * 2 {
        assert_eq!(client.get("/").reply().status, 200);
        std::thread::sleep(idle / 20);
    }
}
