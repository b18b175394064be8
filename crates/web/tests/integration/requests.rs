//! Requests of every shape, over real sockets.

use chaton_core::engine::Engine as _;
use std::io::Write;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};

use crate::support::{answer, body_bytes, echo, eventually, pattern, Client, Server};
use chaton_web::{Config, Engine, Exchange, Listener, ListenerKind, RequestBody};

#[test]
fn a_connection_serves_many_requests() {
    let server = Server::start(echo);
    let mut client = server.connect();
    for i in 0..50 {
        let reply = client.get(&format!("/{i}?q=1")).reply();
        assert_eq!((reply.status, reply.text()), (200, format!("GET /{i}?q=1 ")));
    }
    // The last response is counted after it was sent.
    eventually("all are counted", || server.engine.stats().responses_total == [0, 50, 0, 0, 0]);
    let stats = server.engine.stats();
    assert_eq!((stats.requests_total, stats.accepted_total, stats.connections), (50, 1, 1));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(echo);
    let mut client = server.connect();
    let mut bytes = String::new();
    for i in 0..300 {
        bytes += &format!("POST /{i} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n{i:03}");
    }
    client.send(bytes);
    for i in 0..300 {
        assert_eq!(client.reply().text(), format!("POST /{i} {i:03}"));
    }
}

#[test]
fn a_request_byte_by_byte() {
    let server = Server::start(echo);
    let mut client = server.connect();
    let request = "POST /slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                   3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nX-Sum: t\r\n\r\n";
    for byte in request.bytes() {
        client.send([byte]);
    }
    assert_eq!(client.reply().text(), "POST /slow abcde");
    assert_eq!(client.get("/next").reply().text(), "GET /next ");
}

#[test]
fn http_1_0_and_close() {
    let server = Server::start(echo);
    let mut client = server.connect();
    client.send("GET /old HTTP/1.0\r\n\r\n");
    assert_eq!(client.reply().text(), "GET /old ");
    assert!(client.is_ended());
    let mut client = server.connect();
    client.send("GET /old HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(client.reply().text(), "GET /old ");
    client.send("GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let reply = client.reply();
    assert_eq!(reply.header("connection"), Some("close"));
    assert!(client.is_ended());
}

#[test]
fn head_options_and_absolute_form() {
    let server = Server::start(echo);
    let mut client = server.connect();
    client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply_to_head().header("content-length"), Some("8"));
    client.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "OPTIONS * ");
    client.send("GET http://other/x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.reply().text(), "GET http://other/x ");
}

#[test]
fn a_half_closed_client_gets_its_answer() {
    let server = Server::start(echo);
    let mut client = server.connect();
    client.get("/half").end_sending();
    assert_eq!(client.reply().text(), "GET /half ");
    assert!(client.is_ended());
}

#[test]
fn large_bodies_are_spooled_small_ones_are_not() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kinds = Arc::clone(&seen);
    let server = Server::start(move |exchange| {
        let spooled = matches!(exchange.body(), RequestBody::Spooled { .. });
        kinds.lock().unwrap().push((spooled, exchange.body().body_len()));
        let body = body_bytes(exchange.body());
        answer(exchange, &body);
    });
    let mut client = server.connect();
    let mut expected = Vec::new();
    for len in [0, 1, 256 * 1024, 256 * 1024 + 1, 5_000_000] {
        let body = pattern(len);
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"));
        client.send(&body);
        assert!(client.reply().body == body, "{len} bytes with a length");
        client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for part in body.chunks(100_000) {
            client.send(format!("{:x}\r\n", part.len())).send(part).send("\r\n");
        }
        client.send("0\r\n\r\n");
        assert!(client.reply().body == body, "{len} bytes in chunks");
        expected.extend([(len > 256 * 1024, len as u64); 2]);
    }
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[test]
fn expect_is_answered_only_to_those_who_wait() {
    let server = Server::with(|config| config.limits.body_bytes_max = 100, echo);
    let head = "POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n";
    let mut client = server.connect();
    client.send(head);
    assert_eq!(client.reply().status, 100);
    client.send("body");
    assert_eq!(client.reply().text(), "POST /e body");
    client.send(format!("{head}body"));
    assert_eq!(client.reply().text(), "POST /e body", "no 100 for a client that did not wait");
    client
        .send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.reply().status, 413);
    let mut client = server.connect();
    client.send("POST /e HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: more\r\n\r\n");
    assert_eq!(client.reply().status, 417);
    assert!(client.is_ended());
}

#[test]
fn too_much_is_refused_and_the_answer_arrives() {
    let server = Server::with(|config| config.limits.body_bytes_max = 1_000, echo);
    let mut client = server.connect();
    // More than the socket's buffers hold: the client still sends when it is refused.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    client.send(pattern(100_000));
    let reply = client.reply();
    assert_eq!((reply.status, reply.header("connection")), (413, Some("close")));
    assert!(client.is_ended());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n");
    client.send(pattern(1_024)).send("\r\n");
    assert_eq!(client.reply().status, 413);
}

#[test]
fn malformed_requests_never_reach_the_application() {
    let server = Server::start(|exchange| panic!("{exchange:?} reached the application"));
    for (request, status) in [
        ("GARBAGE\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET / HTTP/3.1\r\nHost: a\r\n\r\n", 505),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            400,
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
    ] {
        let mut client = server.connect();
        client.send(request);
        let reply = client.reply();
        assert_eq!(reply.status, status, "{request:?}");
        assert_eq!(reply.header("connection"), Some("close"), "{request:?}");
        assert!(client.is_ended(), "{request:?}");
    }
    let mut client = server.connect();
    client.send("GET /cut HTTP/1.1\r\nHo").end_sending();
    assert_eq!(client.reply().status, 400);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc").end_sending();
    assert_eq!(client.reply().status, 400);
    assert_eq!(server.engine.stats().refused_total, 8);
}

#[test]
fn long_heads_are_refused() {
    let server = Server::with(|config| config.limits.uri_bytes_max = 100, echo);
    let mut client = server.connect();
    client.get(&format!("/{}", "a".repeat(200)));
    assert_eq!(client.reply().status, 414);
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}", "b".repeat(40_000)));
    assert_eq!(client.reply().status, 431);
    assert!(client.is_ended());
}

#[test]
fn unix_sockets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("web.sock");
    let socket = UnixListener::bind(&path).unwrap();
    let listener = Listener {
        fd: socket.into(),
        kind: ListenerKind::Unix,
        label: "unix".to_owned(),
        tls: None,
    };
    let remote = Arc::new(Mutex::new(String::new()));
    struct Inline(Arc<Mutex<String>>);
    impl chaton_core::engine::Feed<Exchange> for Inline {
        fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>> {
            *self.0.lock().unwrap() = exchange.remote_addr().into_owned();
            answer(exchange, b"inline");
            Ok(())
        }
    }
    let engine =
        Engine::start(Config::for_tests(vec![listener]), Arc::new(Inline(Arc::clone(&remote))))
            .unwrap();
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text).unwrap();
    assert!(text.ends_with("inline"), "{text}");
    assert_eq!(*remote.lock().unwrap(), "127.0.0.1");
    engine.stop();
}

#[test]
fn many_connections_at_once() {
    let server = Server::start(echo);
    let mut clients: Vec<Client> = (0..200).map(|_| server.connect()).collect();
    for round in 0..5 {
        for client in &mut clients {
            client.get(&format!("/{round}"));
        }
        for client in &mut clients {
            assert_eq!(client.reply().text(), format!("GET /{round} "));
        }
    }
    assert_eq!(server.engine.stats().connections, 200);
}
