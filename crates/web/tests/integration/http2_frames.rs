//! HTTP/2 as clients speak it that do not behave, frame by frame.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::Duration;

use crate::support::{answer, echo, eventually, Server, PATIENCE};
use chaton_core::engine::Engine as _;
use chaton_core::process::scoreboard::Scoreboard;
use chaton_web::Config;

const SHORT: Duration = Duration::from_millis(80);
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const UNKNOWN: u8 = 0x20;
/// Ends the stream and its header block.
const END: u8 = 5;
/// GET http://a/ by references to the static table of HPACK.
const GET: &[u8] = b"\x82\x86\x84\x41\x01a";
/// nginx ends floods after 1 to 20 MB.
const FLOOD_BYTES_MAX: u64 = 5_000_000;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// A connection whose answers nobody reads but the test.
struct Raw(TcpStream);

impl Raw {
    fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.at).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        socket.set_nodelay(true).unwrap();
        let mut raw = Self(socket);
        assert!(raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
        assert!(raw.send(&frame(SETTINGS, 0, 0, b"")));
        raw
    }

    /// False when the server has ended the connection.
    fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    fn get(&mut self, stream: u32) -> bool {
        self.send(&frame(HEADERS, END, stream, GET))
    }

    /// None at the end.
    fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        self.0.read_exact(&mut payload).ok()?;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        Some(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// The answer's kind of frame, and the reason where it is a reset.
    fn outcome(&mut self, stream: u32) -> Option<(u8, u32)> {
        loop {
            let frame = self.next()?;
            if frame.stream == stream && [HEADERS, RST_STREAM].contains(&frame.kind) {
                let reason = frame.payload[..4].try_into().unwrap();
                return Some((frame.kind, u32::from_be_bytes(reason)));
            }
        }
    }

    /// Sends what `next` makes, up to four times the bound; returns how many bytes the server has
    /// read of it until it ended the connection, the only one.
    fn flood(mut self, server: &Server, mut next: impl FnMut(u32) -> Vec<u8>) -> u64 {
        let read = || server.engine.stats().read_bytes_total;
        let before = read();
        let mut reader = self.0.try_clone().unwrap();
        thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        let (mut sent, mut at) = (0, 0);
        while sent < 4 * FLOOD_BYTES_MAX {
            let mut part = Vec::new();
            while part.len() < 10_000 {
                part.extend(next(at));
                at += 1;
            }
            if !self.send(&part) {
                break;
            }
            sent += part.len() as u64;
        }
        eventually("it is closed", || server.engine.stats().connections == 0);
        read() - before
    }
}

#[test]
fn floods_of_frames_end_their_connections() {
    let server = Server::start(echo);
    let table: [(&str, Vec<u8>); 7] = [
        ("SETTINGS", frame(SETTINGS, 0, 0, b"")),
        ("PING", frame(PING, 0, 0, b"12345678")),
        ("answers to PING", frame(PING, 1, 0, b"12345678")),
        ("WINDOW_UPDATE", frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("PRIORITY", frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 1])),
        ("unknown", frame(UNKNOWN, 0, 0, &[0; 16_000])),
        ("unknown and empty", frame(UNKNOWN, 0, 0, b"")),
    ];
    for (name, flood) in table {
        let read = Raw::connect(&server).flood(&server, |_| flood.clone());
        assert!(read < FLOOD_BYTES_MAX, "{name}: {read} bytes");
    }
    assert_eq!(server.connect().get("/one").reply().text(), "GET /one ");
}

#[test]
fn heads_that_are_none_end_their_connection() {
    let server = Server::start(echo);
    let method_again_and_again = [0x82; 16_000];
    let bad = |stream| frame(HEADERS, END, stream, &method_again_and_again);
    let read = Raw::connect(&server).flood(&server, |at| bad(2 * at + 1));
    assert!(read < 100_000, "{read} bytes");
    let mut raw = Raw::connect(&server);
    assert!(raw.send(&frame(HEADERS, 4, 1, GET)));
    let read = raw.flood(&server, |_| bad(1));
    assert!(read < 200_000, "{read} bytes of trailers");
    let read = Raw::connect(&server).flood(&server, |at| match at % 2 {
        0 => frame(HEADERS, END, 2 * at + 1, GET),
        _ => bad(2 * at + 1),
    });
    assert!(read < 200_000, "{read} bytes between requests");
}

#[test]
fn a_client_that_behaves_may_send_as_many_frames_as_it_needs() {
    let server = Server::start(|exchange| answer(exchange, &[b'x'; 60_000]));
    let mut raw = Raw::connect(&server);
    for at in 0..1000 {
        let stream = 2 * at + 1;
        assert!(raw.get(stream));
        loop {
            let answer = raw.next().expect("the connection goes on");
            if answer.kind == DATA {
                let window = (answer.payload.len() as u32).to_be_bytes();
                let mut frames = frame(WINDOW_UPDATE, 0, 0, &window);
                frames.extend(frame(PING, 0, 0, b"12345678"));
                frames.extend(frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 1]).repeat(10));
                assert!(raw.send(&frames));
            }
            if answer.kind <= HEADERS && answer.flags & 1 == 1 && answer.stream == stream {
                break;
            }
        }
    }
}

#[test]
fn a_large_body_has_a_megabyte_on_its_way() {
    let server = Server::start(echo);
    let mut raw = Raw::connect(&server);
    let settings = raw.next().unwrap();
    let window = settings.payload.chunks(6).find(|setting| setting[1] == 4).unwrap();
    assert!(u32::from_be_bytes(window[2..6].try_into().unwrap()) >= 1 << 20);
    assert!(raw.send(&frame(HEADERS, 4, 1, b"\x83\x86\x84\x41\x01a")));
    assert!(raw.send(&frame(DATA, 0, 1, &[b'x'; 16_384]).repeat(2)));
    let mut room = 65_535 - 2 * 16_384;
    while room < 1 << 20 {
        let update = raw.next().expect("the window grows");
        if update.kind == WINDOW_UPDATE && update.stream == 0 {
            room += u32::from_be_bytes(update.payload.try_into().unwrap());
        }
    }
}

#[test]
fn who_leaves_a_page_keeps_the_connection() {
    let server = Server::start(echo);
    let mut raw = Raw::connect(&server);
    let mut flight = Vec::new();
    for page in 0..3 {
        for at in 0..100 {
            flight.extend(frame(HEADERS, END, 200 * page + 2 * at + 1, GET));
        }
        for at in 0..100 {
            flight.extend(frame(RST_STREAM, 0, 200 * page + 2 * at + 1, &[0, 0, 0, 8]));
        }
        assert!(raw.send(&std::mem::take(&mut flight)));
        let next = 200 * page + 201;
        assert!(raw.send(&frame(PING, 0, 0, &(u64::from(next)).to_be_bytes())));
        while raw.next().expect("the connection goes on").kind != PING {}
    }
    assert!(raw.get(1001));
    assert_eq!(raw.outcome(1001).expect("an answer").0, HEADERS);
}

#[test]
fn what_was_accepted_is_answered_though_its_client_gives_up_too_much() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(
        |config| config.limits.http2_resets_max = 10,
        move |exchange| {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            answer(exchange, b"");
        },
    );
    let mut raw = Raw::connect(&server);
    assert!(raw.get(1));
    for stream in (3..31).step_by(2) {
        raw.get(stream);
        raw.send(&frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]));
        raw.send(&frame(PING, 0, 0, b"in order"));
        while raw.next().expect("the connection goes on").kind != PING {}
        // Its task counts it.
        eventually("it is given up", || {
            let stats = server.engine.stats();
            stats.requests_total == 1 + stats.responses_total[3]
        });
    }
    assert!(raw.get(31));
    assert_eq!(raw.outcome(31), Some((RST_STREAM, 11)), "ENHANCE_YOUR_CALM");
    (0..16).for_each(|_| _ = go.send(()));
    assert_eq!(raw.outcome(1).expect("the answer").0, HEADERS);
    while raw.next().is_some() {}
}

#[test]
fn who_answers_no_ping_gets_no_further_stream_after_a_time() {
    let server = Server::with(
        |config| {
            config.limits.requests_per_connection_max = 1;
            config.timeouts.drain_idle = SHORT;
        },
        echo,
    );
    let mut raw = Raw::connect(&server);
    for stream in (1..).step_by(2) {
        assert!(stream < 100_000, "it goes on for ever");
        if !raw.get(stream) {
            break;
        }
        match raw.outcome(stream) {
            Some((HEADERS, _)) => {}
            Some(end) => {
                assert_eq!(end, (RST_STREAM, 7), "REFUSED_STREAM");
                break;
            }
            None => break,
        }
    }
    eventually("it is closed", || server.engine.stats().connections == 0);
}

#[test]
fn a_client_that_sends_after_the_end_is_not_reset() {
    let server = Server::with(|config| config.limits.requests_per_connection_max = 1, echo);
    let mut raw = Raw::connect(&server);
    assert!(raw.get(1));
    while let Some(ping) = raw.next() {
        if ping.kind == PING {
            assert!(raw.send(&frame(PING, 1, 0, &ping.payload)));
        }
    }
    // A reset would have thrown away what the client has not read yet.
    assert!((0..1000).all(|_| raw.send(&frame(PING, 0, 0, b"12345678"))));
}

#[test]
fn only_a_quiet_connection_is_sent_to_a_freer_worker() {
    let scoreboard = Arc::new(Scoreboard::new(2).unwrap());
    let ours = Arc::clone(&scoreboard);
    let set = |config: &mut Config| {
        config.scoreboard = Some(ours);
        config.accept_defer = Duration::from_millis(1);
    };
    let server = Server::with(set, echo);
    scoreboard.slot(0).running.store(5, SeqCst);
    scoreboard.slot(1).pid.store(1, SeqCst);
    scoreboard.slot(1).accepting.store(1, SeqCst);
    let _others: Vec<_> = (0..6).map(|_| server.connect()).collect();
    let mut raw = Raw::connect(&server);
    let mut is_asked_to_leave = |stream| {
        assert!(raw.get(stream));
        loop {
            let frame = raw.next().expect("an answer");
            if frame.kind == GOAWAY || frame.flags & 1 == 1 && frame.stream == stream {
                return frame.kind == GOAWAY;
            }
        }
    };
    assert!(!(0..100).any(|at| is_asked_to_leave(2 * at + 1)));
    // It is quiet for longer and longer, from one second on.
    assert!((100..200).any(|at| {
        thread::sleep(Duration::from_millis(u64::from(at) * 11));
        is_asked_to_leave(2 * at + 1)
    }));
}

#[test]
fn a_silent_client_holds_up_no_drain() {
    let server = Server::with(
        |config| {
            config.timeouts.header = 10 * PATIENCE;
            config.timeouts.drain_idle = SHORT;
        },
        echo,
    );
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM");
    eventually("it has come", || server.engine.stats().connections == 1);
    eventually("it is read", || server.engine.stats().read_bytes_total > 0);
    server.engine.quiet();
    assert!(server.engine.wait_idle(PATIENCE));
}
