//! What clients make the server hold, over real sockets.

use std::io::Read;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

use crate::http2_client::{get, post, read, Client};
use crate::support::{answer, body_bytes, eventually, ok_head, pattern, Server, PATIENCE};
use bytes::Bytes;
use chaton_web::{BodyPart, BudgetLimits, Config, RequestBody};
use h2::client::{Builder, ResponseFuture};
use http::Request;

const ANSWER_BYTES: usize = 100_000;
/// The stream windows of a client that reads slowly.
const WINDOW: u32 = 20_000;

fn small(config: &mut Config) {
    config.limits.body_bytes_max = 500_000;
    config.limits.body_memory_bytes_max = 200_000;
    config.budget = BudgetLimits {
        connection_memory_bytes_max: 900_000,
        memory_bytes_max: 800_000,
        spool_bytes_max: 4_000_000,
        ..BudgetLimits::default()
    };
}

fn answering() -> Server {
    Server::with(small, |exchange| {
        let len = if exchange.body().body_len() > 0 { 5 } else { ANSWER_BYTES };
        answer(exchange, &pattern(len));
    })
}

fn slow(server: &Server) -> Client {
    let mut builder = Builder::new();
    builder.initial_window_size(WINDOW).initial_connection_window_size(1 << 20);
    Client::with(server, &builder)
}

fn totals(server: &Server) -> (u64, u64) {
    let stats = server.engine.stats();
    (stats.held_bytes, stats.spooled_bytes)
}

fn settles(server: &Server) {
    eventually("nothing is held", || totals(server) == (0, 0));
}

#[test]
fn answers_that_are_not_taken_go_to_files_and_then_have_no_room() {
    let may_answer = Arc::new(AtomicBool::new(false));
    let open = Arc::clone(&may_answer);
    let server = Server::with(small, move |exchange| {
        eventually("all requests are there", || open.load(SeqCst));
        answer(exchange, &pattern(ANSWER_BYTES));
    });
    let clients: Vec<_> = (0..4).map(|_| slow(&server)).collect();
    let mut responses: Vec<Vec<ResponseFuture>> = Vec::new();
    for (at, client) in clients.iter().enumerate() {
        responses.push((0..20).map(|_| client.get("/")).collect());
        client.until(|| server.engine.stats().requests_total == 20 * (at as u64 + 1));
    }
    may_answer.store(true, SeqCst);
    eventually("there is no room left", || {
        let stats = server.engine.stats();
        stats.no_room_total > 0 && stats.held_bytes < 1_300_000
    });
    let (held, spooled) = totals(&server);
    assert!(held < 1_300_000, "{held}");
    assert!((1_000_000..4_000_000).contains(&spooled), "{spooled}");
    // The next one is served, from memory or a file.
    assert_eq!(server.connect().get("/").reply().body, pattern(ANSWER_BYTES));
    // An answer in memory or in a file is whole; one without room is reset.
    let (mut whole, mut reset) = (0, 0);
    for (client, responses) in clients.iter().zip(responses) {
        for response in responses {
            match client.wait(async { read(response.await?).await }) {
                Ok(body) => {
                    assert!(body == pattern(ANSWER_BYTES));
                    whole += 1;
                }
                Err(error) => {
                    assert!(error.is_reset(), "{error:?}");
                    reset += 1;
                }
            }
        }
    }
    assert_eq!(reset, server.engine.stats().no_room_total);
    assert!(whole >= 20, "{whole}");
    settles(&server);
}

#[test]
fn small_answers_stay_in_memory_as_long_as_there_is_any() {
    let server = Server::with(
        |config| config.budget.memory_bytes_max = 30_000,
        |exchange| answer(exchange, &pattern(5_000)),
    );
    let mut builder = Builder::new();
    let client = Client::with(&server, builder.initial_window_size(1000));
    let mut responses: Vec<_> = (0..2).map(|_| client.get("/")).collect();
    client.until(|| server.engine.stats().held_bytes >= 20_000);
    responses.extend((0..2).map(|_| client.get("/")));
    client.until(|| server.engine.stats().no_room_total == 2);
    assert_eq!(totals(&server).1, 0);
    let bodies = responses.into_iter().map(|response| client.reply(response));
    assert_eq!(
        bodies.filter(|body| body.as_ref().is_ok_and(|body| body.1.len() == 5_000)).count(),
        2
    );
    settles(&server);
}

#[test]
fn no_request_is_taken_of_a_connection_that_holds_its_share() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(
        |config| config.budget.connection_memory_bytes_max = 50_000,
        move |exchange| {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            answer(exchange, b"held");
        },
    );
    let client = Client::connect(&server);
    let large = || Request::get("http://a.test/").header("x", "a".repeat(30_000)).body(()).unwrap();
    let first: Vec<_> = (0..2).map(|_| client.send(large(), b"")).collect();
    client.until(|| server.engine.stats().requests_total == 2);
    // They are read, and nobody takes them for heads that are none.
    let later = (0..90).map(|at| {
        let unlike_others = format!("{at}{}", "a".repeat(3_000));
        let request = Request::get("http://a.test/").header("x", unlike_others).body(()).unwrap();
        client.send(request, b"")
    });
    let later: Vec<_> = later.collect();
    client.until(|| server.engine.stats().read_bytes_total > 200_000);
    assert_eq!(server.engine.stats().requests_total, 2);
    (0..92).for_each(|_| go.send(()).unwrap());
    for response in first.into_iter().chain(later) {
        assert_eq!(client.text(response).1, "held");
    }
    settles(&server);
}

#[test]
fn bodies_that_do_not_end_go_to_files_and_then_are_refused() {
    let server = Server::with(small, |exchange| {
        let spooled = matches!(exchange.body(), RequestBody::Spooled { .. });
        let len = body_bytes(exchange.body()).len();
        answer(exchange, format!("{spooled} {len}").as_bytes());
    });
    let client = Client::connect(&server);
    let mut open = Vec::new();
    for at in 0..60 {
        let mut requests = client.wait(client.requests.clone().ready()).unwrap();
        let (response, mut stream) = requests.send_request(post("/"), false).unwrap();
        stream.send_data(Bytes::from(pattern(50_000)), false).unwrap();
        open.push((response, stream));
        client.until(|| {
            let stats = server.engine.stats();
            stats.read_bytes_total >= 50_000 * (at + 1) && stats.held_bytes < 1_300_000
        });
    }
    assert!(server.engine.stats().no_room_total > 0);
    let (mut whole, mut refused) = (0, 0);
    for (response, mut stream) in open {
        let _ = stream.send_data(Bytes::from_static(b"end"), true);
        match client.wait(response).unwrap() {
            response if response.status() == 503 => {
                assert_eq!(response.headers()["retry-after"], "1");
                refused += 1;
            }
            response => {
                let text = client.wait(read(response)).unwrap();
                assert!(text.ends_with(b" 50003"), "{text:?}");
                whole += 1;
            }
        }
    }
    assert!(whole > 8 && refused == server.engine.stats().no_room_total, "{whole} {refused}");
    settles(&server);
    // A body that cannot fit is refused before it arrives, also over HTTP/1.
    let server = Server::with(
        |config| {
            small(config);
            config.limits.body_bytes_max = 3_000_000;
            config.budget.spool_bytes_max = 0;
        },
        |exchange| answer(exchange, b""),
    );
    let mut uploads = Vec::new();
    for _ in 0..3 {
        let mut upload = server.connect();
        let head = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2900000\r\n\r\n";
        upload.send(head).send(pattern(2_800_000));
        uploads.push(upload);
    }
    eventually("they arrive", || totals(&server).1 > 7_000_000);
    let mut late = server.connect();
    late.send(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2900000\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(late.reply().status, 503);
    drop(uploads);
    settles(&server);
}

#[test]
fn nothing_is_held_after_cuts_of_every_kind() {
    let server = answering();
    for round in 0..12_usize {
        let client = slow(&server);
        let mut streams = Vec::new();
        for at in 0..12 {
            let mut requests = client.wait(client.requests.clone().ready()).unwrap();
            let upload = (at + round) % 3 == 0;
            let request = if upload { post("/") } else { get("/") };
            let (response, mut stream) = requests.send_request(request, !upload).unwrap();
            if upload {
                stream.send_data(Bytes::from(pattern(20_000 * at)), at % 2 == 0).unwrap();
            }
            if at % 5 == round % 5 {
                stream.send_reset(h2::Reason::CANCEL);
            }
            streams.push((response, stream));
        }
        client.wait(async { tokio::time::sleep(Duration::from_millis(round as u64)).await });
        let mut http1 = server.connect();
        http1.get("/").send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 450000\r\n\r\n");
        http1.send(pattern(40_000 * round));
        if round % 2 == 0 {
            drop(streams);
            client.wait(async { tokio::time::sleep(Duration::from_millis(2)).await });
        }
    }
    settles(&server);
}

/// A client must take 80 MB in each 80 ms that it lets the server wait.
fn hurried(config: &mut Config) {
    config.timeouts.write = Duration::from_millis(80);
    config.budget.reply_rate_min = 1_000_000_000;
}

const LARGE_BYTES: usize = 60_000_000;

#[test]
fn a_stream_that_takes_a_little_now_and_then_is_reset() {
    let server = Server::with(hurried, |exchange| answer(exchange, &pattern(LARGE_BYTES)));
    let mut builder = Builder::new();
    let client = Client::with(&server, builder.initial_window_size(1000));
    let error = client.reply(client.get("/")).unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::INTERNAL_ERROR));
    settles(&server);
}

#[test]
fn a_client_of_http1_that_takes_a_little_now_and_then_is_cut_off() {
    let server = Server::with(hurried, |exchange| match exchange.head().header("x-file") {
        None => answer(exchange, &pattern(LARGE_BYTES)),
        Some(_) => {
            let file = tempfile::tempfile().unwrap();
            file.set_len(LARGE_BYTES as u64).unwrap();
            let tail = BodyPart::File { file, offset: 0, len: LARGE_BYTES as u64 };
            let head = ok_head(&exchange, &format!("Content-Length: {LARGE_BYTES}"));
            exchange.complete(head, Some(tail));
        }
    });
    for header in ["", "X-File: 1\r\n"] {
        let mut client = server.connect();
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{header}\r\n"));
        let (mut taken, mut part) = (0, vec![0; 200_000]);
        loop {
            // Some progress within each timeout.
            std::thread::sleep(Duration::from_millis(1));
            match client.socket.read(&mut part) {
                Ok(len) if len > 0 => taken += len,
                _ => break,
            }
        }
        assert!(taken < LARGE_BYTES, "{header}{taken}");
    }
    settles(&server);
}

#[test]
fn a_stream_that_says_nothing_for_long_goes_on() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::with(hurried, move |exchange| {
        exchange.begin(ok_head(&exchange, ""));
        for _ in 0..3 {
            exchange.write(b"event").unwrap();
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        exchange.end(true);
    });
    let client = Client::connect(&server);
    let mut body = client.wait(client.get("/")).unwrap().into_body();
    for _ in 0..3 {
        assert_eq!(client.wait(body.data()).unwrap().unwrap(), "event");
        client.wait(async { tokio::time::sleep(Duration::from_millis(200)).await });
        go.send(()).unwrap();
    }
    assert!(client.wait(body.data()).is_none_or(|rest| rest.unwrap().is_empty()));
}
