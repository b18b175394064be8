//! Responses of every shape, over real sockets.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{mpsc, Arc};
use std::time::Duration;

use crate::support::{answer, eventually, head, ok_head, pattern, Server, PATIENCE};
use chaton_web::{BodyPart, Capacity, ClientGone, Exchange};

fn path(exchange: &Exchange) -> &str {
    std::str::from_utf8(exchange.head().get(exchange.head().path)).unwrap()
}

/// SharedBytes memory that tells when it is let go.
struct SharedBytes(Vec<u8>, Arc<AtomicBool>);

impl AsRef<[u8]> for SharedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for SharedBytes {
    fn drop(&mut self) {
        self.1.store(true, SeqCst);
    }
}

#[test]
fn streamed_with_each_framing() {
    let server = Server::start(|exchange| {
        let header = if path(&exchange) == "/sized" { "Content-Length: 10" } else { "" };
        exchange.begin(ok_head(&exchange, header));
        for part in [&b"hello"[..], b"", b" ", b"worldly"] {
            assert_eq!(exchange.write(part), Ok(Capacity::Available));
        }
        exchange.end(true);
    });
    let mut client = server.connect();
    assert_eq!(client.get("/chunked").reply().text(), "hello worldly");
    assert_eq!(client.get("/sized").reply().text(), "hello worl", "cut at the length");
    client.send("HEAD /sized HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply_to_head().header("content-length"), Some("10"));
    client.send("GET /raw HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "hello worldly");
    assert!(client.is_ended());
}

#[test]
fn a_thousand_chunks_arrive_whole() {
    let server = Server::start(|exchange| {
        exchange.begin(ok_head(&exchange, ""));
        for i in 0..1_000 {
            exchange.write(format!("{i},").as_bytes()).unwrap();
        }
        exchange.end(true);
    });
    let expected: String = (0..1_000).map(|i| format!("{i},")).collect();
    let mut client = server.connect();
    for _ in 0..20 {
        assert_eq!(client.get("/").reply().text(), expected);
    }
}

#[test]
fn each_chunk_arrives_while_the_next_is_not_there() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let server = Server::start(move |exchange| {
        exchange.begin(ok_head(&exchange, ""));
        for i in 0..3 {
            exchange.write(format!("part{i}").as_bytes()).unwrap();
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        exchange.end(true);
    });
    let mut client = server.connect();
    client.get("/");
    let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT";
    let head = format!("HTTP/1.1 200 OK\r\n{date}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let head = client.bytes(head.len());
    assert!(head.ends_with(b"\r\n\r\n"));
    for i in 0..3 {
        assert_eq!(client.bytes(10), format!("5\r\npart{i}\r\n").as_bytes());
        go.send(()).unwrap();
    }
    assert_eq!(client.bytes(5), b"0\r\n\r\n");
}

#[test]
fn a_slow_reader_does_not_hold_the_producer() {
    let body = Arc::new(pattern(20_000_000));
    let produced = Arc::clone(&body);
    let (done, is_done) = mpsc::channel();
    let server = Server::start(move |exchange| {
        exchange.begin(ok_head(&exchange, ""));
        for part in produced.chunks(50_000) {
            if exchange.write(part) == Ok(Capacity::Full) {
                // To the temporary file.
                assert_eq!(exchange.wait_for_capacity(PATIENCE), Ok(Capacity::Available));
            }
        }
        exchange.end(true);
        done.send(()).unwrap();
    });
    let mut client = server.connect();
    client.get("/");
    // Nothing is read until everything was produced.
    is_done.recv_timeout(PATIENCE).unwrap();
    assert!(client.reply().body == **body);
    // The connection goes on, and the temporary file is gone.
    client.get("/");
    is_done.recv_timeout(PATIENCE).unwrap();
    assert!(client.reply().body == **body);
}

#[test]
fn past_all_bounds_the_producer_waits_for_room() {
    let body = Arc::new(pattern(30_000_000));
    let produced = Arc::clone(&body);
    let fulls = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&fulls);
    let server = Server::with(
        |config| {
            config.limits.reply_memory_bytes_max = 100_000;
            config.limits.reply_spool_bytes_max = 1_000_000;
        },
        move |exchange| {
            let len = produced.len();
            let head = ok_head(&exchange, &format!("Content-Length: {len}"));
            exchange.begin(head);
            for part in produced.chunks(70_001) {
                if exchange.write(part) == Ok(Capacity::Full) {
                    counted.fetch_add(1, SeqCst);
                    assert_eq!(exchange.wait_for_capacity(PATIENCE), Ok(Capacity::Available));
                }
            }
            exchange.end(true);
        },
    );
    let mut client = server.connect();
    client.get("/");
    eventually("the bounds are used up", || fulls.load(SeqCst) > 0);
    assert!(client.reply().body == **body);
}

#[test]
fn a_wait_for_room_ends_by_time_interruption_and_loss() {
    let (results, result) = mpsc::channel();
    let (lend, borrowed) = mpsc::channel();
    let server = Server::with(
        |config| {
            config.limits.reply_memory_bytes_max = 10_000;
            config.limits.reply_spool_bytes_max = 0;
        },
        move |exchange| {
            exchange.begin(ok_head(&exchange, "X: y"));
            // Until the socket takes no more either.
            let mut room = Ok(Capacity::Available);
            while room == Ok(Capacity::Available) {
                exchange.write(&[0; 100_000]).unwrap();
                room = exchange.wait_for_capacity(Duration::from_millis(30));
            }
            results.send(room).unwrap();
            lend.send(Arc::clone(&exchange)).unwrap();
            results.send(exchange.wait_for_capacity(PATIENCE)).unwrap();
            results.send(exchange.wait_for_capacity(PATIENCE)).unwrap();
            assert!(exchange.is_gone());
            assert_eq!(exchange.write(b"more"), Err(ClientGone));
            exchange.end(true);
        },
    );
    let mut client = server.connect();
    client.get("/");
    assert_eq!(result.recv_timeout(PATIENCE), Ok(Ok(Capacity::Full)), "time");
    borrowed.recv_timeout(PATIENCE).unwrap().interrupt();
    assert_eq!(result.recv_timeout(PATIENCE), Ok(Ok(Capacity::Full)), "interruption");
    drop(client);
    assert_eq!(result.recv_timeout(PATIENCE), Ok(Err(ClientGone)), "the client is gone");
}

#[test]
fn files_are_sent_by_the_kernel() {
    let body = pattern(3_000_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&body).unwrap();
    let file = Arc::new(file);
    let served = Arc::clone(&file);
    let server = Server::start(move |exchange| {
        let (offset, len) = if path(&exchange) == "/part" { (7, 100_000) } else { (0, 3_000_000) };
        let piece =
            |file: &std::fs::File| BodyPart::File { file: file.try_clone().unwrap(), offset, len };
        if path(&exchange) == "/streamed" {
            let head = ok_head(&exchange, "");
            exchange.begin(head);
            exchange.write(b"before").unwrap();
            exchange.write_part(piece(&served)).unwrap();
            exchange.write(b"after").unwrap();
            return exchange.end(true);
        }
        let head = ok_head(&exchange, &format!("Content-Length: {len}"));
        exchange.complete(head, Some(piece(&served)));
    });
    let mut client = server.connect();
    assert!(client.get("/whole").reply().body == body);
    assert!(client.get("/part").reply().body == body[7..100_007]);
    let streamed = client.get("/streamed").reply().body;
    assert!(streamed == [b"before", &body[..], b"after"].concat());
}

#[test]
fn a_file_shorter_than_promised_ends_the_connection() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"short").unwrap();
    let file = Arc::new(file);
    let server = Server::start(move |exchange| {
        let head = ok_head(&exchange, "Content-Length: 10");
        let file = file.try_clone().unwrap();
        exchange.complete(head, Some(BodyPart::File { file, offset: 0, len: 10 }));
    });
    let mut client = server.connect();
    let all = client.get("/").rest();
    assert!(all.ends_with(b"\r\n\r\nshort"), "{}", all.escape_ascii());
}

#[test]
fn foreign_memory_is_sent_from_where_it_lies_and_let_go() {
    let body = pattern(3_000_000);
    let released = Arc::new(AtomicBool::new(false));
    let (memory, flag) = (body.clone(), Arc::clone(&released));
    let server = Server::start(move |exchange| {
        let piece = BodyPart::Pinned(Box::new(SharedBytes(memory.clone(), Arc::clone(&flag))));
        let head = ok_head(&exchange, "Content-Length: 3000000");
        exchange.complete(head, Some(piece));
    });
    let mut client = server.connect();
    assert!(client.get("/").reply().body == body);
    eventually("the memory is let go", || released.load(SeqCst));
}

#[test]
fn memory_is_let_go_when_the_client_is_gone() {
    let released = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&released);
    let server = Server::start(move |exchange| {
        let pinned = SharedBytes(vec![0; 50_000_000], Arc::clone(&flag));
        let head = ok_head(&exchange, "Content-Length: 50000000");
        exchange.complete(head, Some(BodyPart::Pinned(Box::new(pinned))));
    });
    let mut client = server.connect();
    client.get("/").bytes(100);
    drop(client);
    eventually("the memory is let go", || released.load(SeqCst));
    eventually("the connection is counted out", || server.engine.stats().connections == 0);
}

#[test]
fn interim_responses_come_first() {
    let server = Server::start(|exchange| {
        exchange.interim(head(&exchange, 103, "Link: </a.css>"));
        exchange.interim(head(&exchange, 103, "Link: </b.css>"));
        answer(exchange, b"final");
    });
    let mut client = server.connect();
    for _ in 0..3 {
        client.get("/");
        assert_eq!(client.reply().header("link"), Some("</a.css>"));
        assert_eq!(client.reply().header("link"), Some("</b.css>"));
        assert_eq!(client.reply().text(), "final");
    }
    eventually("all are counted", || server.engine.stats().responses_total == [0, 3, 0, 0, 0]);
}

#[test]
fn a_body_that_breaks_off_ends_the_connection() {
    let server = Server::start(|exchange| {
        if path(&exchange) == "/short" {
            let head = ok_head(&exchange, "Content-Length: 10");
            exchange.begin(head);
            exchange.write(b"half").unwrap();
            return exchange.end(true);
        }
        let head = ok_head(&exchange, "");
        exchange.begin(head);
        exchange.write(b"half").unwrap();
        exchange.end(false);
    });
    let all = server.connect().get("/chunked").rest();
    assert!(all.ends_with(b"\r\n\r\n4\r\nhalf\r\n"), "{}", all.escape_ascii());
    let all = server.connect().get("/short").rest();
    assert!(all.ends_with(b"\r\n\r\nhalf"), "{}", all.escape_ascii());
}

#[test]
fn an_abandoned_request_is_a_500() {
    let server = Server::start(|exchange| {
        if path(&exchange) == "/begun" {
            let head = ok_head(&exchange, "");
            exchange.begin(head);
        }
        exchange.abandon();
    });
    let mut client = server.connect();
    assert_eq!(client.get("/").reply().status, 500);
    assert!(client.is_ended());
    let all = server.connect().get("/begun").rest();
    assert!(all.ends_with(b"chunked\r\n\r\n"), "{}", all.escape_ascii());
}

#[test]
fn only_the_first_outcome_counts() {
    let server = Server::start(|exchange| {
        let again = Arc::clone(&exchange);
        answer(exchange, b"first");
        answer(Arc::clone(&again), b"second");
        again.begin(ok_head(&again, ""));
        assert!(again.hijack().is_err());
        again.abandon();
    });
    let mut client = server.connect();
    for _ in 0..10 {
        assert_eq!(client.get("/").reply().text(), "first");
    }
}

#[test]
fn a_hijacked_connection_belongs_to_the_application() {
    let server = Server::start(|exchange| {
        if path(&exchange) != "/ws" {
            return answer(exchange, b"plain");
        }
        let (fd, unread) = exchange.hijack().unwrap();
        assert!(exchange.hijack().is_err());
        drop(exchange);
        let mut socket = UnixStream::from(fd);
        socket.set_nonblocking(false).unwrap();
        socket.write_all(b"mine now: ").unwrap();
        socket.write_all(&unread).unwrap();
        let mut line = [0; 4];
        socket.read_exact(&mut line).unwrap();
        socket.write_all(&line).unwrap();
    });
    let mut client = server.connect();
    assert_eq!(client.get("/").reply().text(), "plain");
    client.send("GET /ws HTTP/1.1\r\nHost: a\r\n\r\nunread");
    assert_eq!(client.bytes(16), b"mine now: unread");
    eventually("the engine has let go", || server.engine.stats().connections == 0);
    client.send("ping");
    assert_eq!(client.bytes(4), b"ping");
    assert!(client.is_ended());
}
