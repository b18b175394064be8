//! HTTP/2 over real sockets.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::time::Duration;

use crate::http2_client::{get, post, read, Client};
use crate::support::{
    answer, body_bytes, echo, eventually, head, ok_head, pattern, Server, PATIENCE,
};
use bytes::Bytes;
use chaton_core::engine::Engine as _;
use chaton_web::{BodyRead, Config, Exchange, RequestBody};
use h2::client::Builder;
use h2::Reason;
use http::Request;

const SHORT: Duration = Duration::from_millis(80);
const LONG: Duration = Duration::from_secs(1);

/// An application whose requests wait, each for one message.
fn held() -> (mpsc::Sender<()>, impl Fn(Arc<Exchange>) + Send + Sync) {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let app = move |exchange| {
        wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        answer(exchange, b"held");
    };
    (go, app)
}

fn streamed(exchange: &Arc<Exchange>) {
    exchange.begin(ok_head(exchange, ""));
}

#[test]
fn many_requests_at_once_on_one_connection() {
    let server = Server::start(echo);
    let client = Client::connect(&server);
    let bodies: Vec<_> = (0..60).map(|at| format!("body {at}")).collect();
    let responses: Vec<_> =
        bodies.iter().map(|body| client.send(post("/p?q=1"), body.as_bytes())).collect();
    for (response, body) in responses.into_iter().zip(&bodies) {
        assert_eq!(client.text(response), (200, format!("POST /p?q=1 {body}")));
    }
    let head = client.send(Request::head("http://a.test/h").body(()).unwrap(), b"");
    let response = client.wait(head).unwrap();
    assert_eq!(response.headers()["content-length"], "8");
    assert!(client.wait(read(response)).unwrap().is_empty());
    assert_eq!(server.engine.stats().responses_total, [0, 61, 0, 0, 0]);
    // HTTP/1 has the same port.
    assert_eq!(server.connect().get("/one").reply().text(), "GET /one ");
}

#[test]
fn bodies_larger_than_every_window() {
    let server = Server::start(|exchange| {
        if matches!(exchange.body(), RequestBody::Spooled { .. }) {
            let bytes = body_bytes(exchange.body());
            answer(exchange, &bytes);
        } else {
            answer(exchange, b"small");
        }
    });
    let client = Client::connect(&server);
    let body = pattern(3_000_000);
    let (first, second) = (client.send(post("/1"), &body), client.send(post("/2"), &body));
    let (first, second) = client.wait(async {
        tokio::join!(async { read(first.await?).await }, async { read(second.await?).await })
    });
    assert!(first.unwrap() == body && second.unwrap() == body);
    assert_eq!(client.text(client.get("/")).1, "small");
}

#[test]
fn a_streamed_response_arrives_as_it_is_made_and_without_chunks() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let server = Server::start(move |exchange| {
        streamed(&exchange);
        for part in ["part0", "part1"] {
            exchange.write(part.as_bytes()).unwrap();
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        exchange.end(true);
    });
    let client = Client::connect(&server);
    let response = client.wait(client.get("/")).unwrap();
    assert!(response.headers().get("transfer-encoding").is_none());
    let mut body = response.into_body();
    for part in ["part0", "part1"] {
        assert_eq!(client.wait(body.data()).unwrap().unwrap(), part);
        go.send(()).unwrap();
    }
    let rest = client.wait(body.data());
    assert!(rest.is_none_or(|rest| rest.unwrap().is_empty()));
}

#[test]
fn a_body_that_is_streamed_to_the_application() {
    let server = Server::with(
        |config| config.stream_bodies = vec!["/up/*".to_owned()],
        |exchange| {
            let RequestBody::Streamed(body) = exchange.body() else {
                return answer(exchange, b"whole");
            };
            let mut bytes = Vec::new();
            while let Ok(BodyRead::Bytes(part)) = body.read(100_000, PATIENCE) {
                bytes.extend(part);
            }
            answer(exchange, &bytes);
        },
    );
    let client = Client::connect(&server);
    let body = pattern(2_000_000);
    let (status, got) = client.reply(client.send(post("/up/1"), &body)).unwrap();
    assert!(status == 200 && got == body, "{status} {}", got.len());
    assert_eq!(client.text(client.send(post("/other"), b"x")).1, "whole");
}

/// An application that reads the bodies of /read at once, and those of /later when it is told.
fn reader() -> (mpsc::Sender<()>, impl Fn(Arc<Exchange>) + Send + Sync) {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let app = move |exchange: Arc<Exchange>| {
        if exchange.head().get(exchange.head().path) == b"/later" {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
        }
        let mut len = body_bytes(exchange.body()).len();
        if let RequestBody::Streamed(body) = exchange.body() {
            while let Ok(BodyRead::Bytes(part)) = body.read(100_000, PATIENCE) {
                len += part.len();
            }
        }
        answer(exchange, len.to_string().as_bytes());
    };
    (go, app)
}

#[test]
fn bodies_that_nobody_reads_leave_the_others_their_window() {
    let (go, app) = reader();
    let set = |config: &mut Config| config.stream_bodies = vec!["/*".to_owned()];
    let server = Server::with_room(16, usize::MAX, set, app);
    let client = Client::connect(&server);
    let large = pattern(2_000_000);
    let later: Vec<_> = (0..6).map(|_| client.send(post("/later"), &large)).collect();
    // They have used up their own windows.
    client.until(|| server.engine.stats().read_bytes_total > 6_000_000);
    assert_eq!(client.text(client.send(post("/read"), &large)).1, "2000000");
    (0..6).for_each(|_| go.send(()).unwrap());
    for response in later {
        assert_eq!(client.text(response), (200, "2000000".to_owned()));
    }
}

#[test]
fn who_can_send_nothing_is_not_late() {
    let (go, app) = reader();
    let set = |config: &mut Config| {
        config.timeouts.body = LONG;
        config.stream_bodies = vec!["/later".to_owned()];
    };
    let server = Server::with_room(32, usize::MAX, set, app);
    let client = Client::connect(&server);
    // More of them than may widen the window of the connection.
    let large = pattern(2_000_000);
    let later: Vec<_> = (0..16).map(|_| client.send(post("/later"), &large)).collect();
    client.until(|| server.engine.stats().read_bytes_total > 12_000_000);
    // Once they have used up the window, it waits for longer than a body may take.
    let mut small = Box::pin(client.send(post("/small"), b"x"));
    let early = client.wait(async { tokio::time::timeout(2 * LONG, &mut small).await.ok() });
    (0..16).for_each(|_| go.send(()).unwrap());
    let response = early.unwrap_or_else(|| client.wait(small));
    assert_eq!(response.unwrap().status(), 200);
    for response in later {
        assert_eq!(client.text(response), (200, "2000000".to_owned()));
    }
    // One that could send and does not is late.
    let mut requests = client.requests.clone();
    let (response, stream) = requests.send_request(post("/small"), false).unwrap();
    assert_eq!(client.reply(response).unwrap().0, 408);
    drop(stream);
}

#[test]
fn interim_responses() {
    let server = Server::start(|exchange| {
        exchange.interim(head(&exchange, 103, "Link: </a.css>"));
        answer(exchange, b"final");
    });
    let client = Client::connect(&server);
    let mut response = client.get("/");
    let interim = std::future::poll_fn(|cx| response.poll_informational(cx));
    let interim = client.wait(interim).unwrap().unwrap();
    assert_eq!(
        (interim.status().as_u16(), &interim.headers()["link"]),
        (103, &"</a.css>".parse().unwrap())
    );
    assert_eq!(client.text(response), (200, "final".to_owned()));
}

#[test]
fn the_application_learns_that_a_client_has_given_up() {
    let (began, has_begun) = mpsc::channel();
    let gone = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&gone);
    let server = Server::start(move |exchange| {
        began.send(()).unwrap();
        eventually("the client is gone", || exchange.is_gone());
        seen.store(true, SeqCst);
        answer(exchange, b"for nobody");
    });
    let client = Client::connect(&server);
    let mut requests = client.requests.clone();
    let (response, mut stream) = requests.send_request(get("/"), true).unwrap();
    client.until(|| has_begun.try_recv().is_ok());
    stream.send_reset(Reason::CANCEL);
    drop(response);
    client.until(|| gone.load(SeqCst));
    eventually("it counts as 499", || server.engine.stats().responses_total == [0, 0, 0, 1, 0]);
}

/// Makes requests and gives each up at once, until the connection ends.
fn reset_rapidly(client: Client, most: usize) -> (usize, Option<h2::Error>) {
    let mut made = 0;
    while made < most {
        let Ok(mut requests) = client.wait(client.requests.clone().ready()) else { break };
        let Ok((_, mut stream)) = requests.send_request(get("/"), true) else { break };
        made += 1;
        client.wait(tokio::task::yield_now());
        stream.send_reset(Reason::CANCEL);
        client.wait(tokio::task::yield_now());
    }
    (made, client.end())
}

#[test]
fn a_client_that_makes_requests_only_to_give_them_up_is_cut_off() {
    let server = Server::with(|config| config.limits.http2_resets_max = 50, echo);
    let (made, error) = reset_rapidly(Client::connect(&server), 1_000_000);
    // The GOAWAY is lost where the client still sends: a reset, or nothing but the end.
    let reason = error.and_then(|error| error.reason());
    assert!(reason.is_none_or(|reason| reason == Reason::ENHANCE_YOUR_CALM), "{reason:?}");
    assert!((50..1_000_000).contains(&made), "{made}");
    let other = Client::connect(&server);
    assert_eq!(other.text(other.get("/")).0, 200);
}

#[test]
fn requests_under_way_have_a_number() {
    let (go, app) = held();
    let server = Server::with(|config| config.limits.http2_streams_max = 2, app);
    let client = Client::connect(&server);
    let first: Vec<_> = (0..2).map(|_| client.get("/")).collect();
    client.until(|| server.engine.stats().requests_total == 2);
    // The third waits in the client, which knows the number.
    let third = client.get("/");
    (0..3).for_each(|_| go.send(()).unwrap());
    for response in first.into_iter().chain([third]) {
        assert_eq!(client.text(response).1, "held");
    }
    assert_eq!(client.requests.current_max_send_streams(), 2);
}

#[test]
fn a_drain_answers_what_is_under_way_and_ends_the_connection() {
    let (go, app) = held();
    let server = Server::start(app);
    let (client, idle) = (Client::connect(&server), Client::connect(&server));
    let response = client.get("/");
    client.until(|| server.engine.stats().requests_total == 1);
    server.engine.quiet();
    assert!(idle.end().is_none());
    go.send(()).unwrap();
    assert_eq!(client.text(response).1, "held");
    assert!(client.end().is_none());
    assert!(server.engine.wait_idle(PATIENCE));
}

#[test]
fn a_drain_answers_what_it_takes_and_refuses_the_rest_untouched() {
    let server = Server::start(echo);
    let client = Client::connect(&server);
    let (mut answered, mut refused) = (0, 0);
    for round in 0.. {
        if round == 20 {
            server.engine.quiet();
        }
        let Ok(requests) = client.wait(client.requests.clone().ready()) else { break };
        let responses: Vec<_> = (0..20)
            .map_while(|_| requests.clone().send_request(get("/"), true).ok())
            .map(|(response, _)| response)
            .collect();
        for response in responses {
            match client.wait(response) {
                Ok(response) => {
                    assert_eq!(response.status(), 200);
                    answered += 1;
                }
                // The client may make this request again elsewhere.
                Err(error) => {
                    assert!(error.is_go_away() || error.is_io(), "{error:?}");
                    refused += 1;
                }
            }
        }
    }
    assert!(answered >= 400, "{answered} answered, {refused} refused");
    assert_eq!(server.engine.stats().requests_total, answered);
    assert!(client.end().is_none());
}

#[test]
fn a_connection_ends_after_its_number_of_requests() {
    let server = Server::with(|config| config.limits.requests_per_connection_max = 3, echo);
    let client = Client::connect(&server);
    for _ in 0..3 {
        assert_eq!(client.text(client.get("/")).0, 200);
    }
    assert!(client.end().is_none());
}

#[test]
fn a_connection_that_idles_ends() {
    let server = Server::with(
        |config| (config.timeouts.idle, config.timeouts.drain_idle) = (SHORT, SHORT),
        echo,
    );
    let client = Client::connect(&server);
    assert_eq!(client.text(client.get("/")).0, 200);
    assert!(client.end().is_none());
}

#[test]
fn a_connection_without_requests_makes_room_at_the_bound() {
    let (go, app) = held();
    let server = Server::with(|config| config.limits.connections_max = 2, app);
    let (idle, busy) = (Client::connect(&server), Client::connect(&server));
    go.send(()).unwrap();
    assert_eq!(idle.text(idle.get("/")).0, 200);
    let response = busy.get("/");
    busy.until(|| server.engine.stats().requests_total == 2);
    let mut new = server.connect();
    new.get("/new");
    // It was told which of its requests were taken.
    assert!(idle.end().is_none());
    (0..2).for_each(|_| go.send(()).unwrap());
    assert_eq!(busy.text(response).0, 200);
    assert_eq!(new.reply().text(), "held");
}

#[test]
fn a_connection_whose_client_never_takes_the_end_of_an_answer_ends() {
    let server = Server::with(
        |config| {
            (config.timeouts.idle, config.timeouts.drain_idle) = (SHORT, SHORT);
            config.timeouts.write = SHORT;
            config.limits.uri_bytes_max = 100;
        },
        echo,
    );
    let mut builder = Builder::new();
    builder.initial_window_size(0);
    let client = Client::with(&server, &builder);
    let response = client.wait(client.get(&format!("/{}", "a".repeat(100)))).unwrap();
    assert_eq!(response.status(), 414);
    client.until(|| server.engine.stats().connections == 0);
    drop(response);
}

#[test]
fn a_client_that_waits_to_be_asked_for_a_body_without_a_length() {
    let server = Server::start(echo);
    let client = Client::connect(&server);
    let request =
        Request::post("http://a.test/").header("expect", "100-continue").body(()).unwrap();
    let mut requests = client.wait(client.requests.clone().ready()).unwrap();
    let (mut response, mut stream) = requests.send_request(request, false).unwrap();
    let interim = client.wait(std::future::poll_fn(|cx| response.poll_informational(cx)));
    assert_eq!(interim.unwrap().unwrap().status(), 100);
    stream.send_data(Bytes::from_static(b"asked for"), true).unwrap();
    assert_eq!(client.text(response), (200, "POST / asked for".to_owned()));
}

#[test]
fn a_connection_that_says_nothing_after_its_first_bytes_ends() {
    let server = Server::with(|config| config.timeouts.header = SHORT, echo);
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM");
    let mut rest = Vec::new();
    client.socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let _ = client.socket.read_to_end(&mut rest);
    eventually("it is closed", || server.engine.stats().connections == 0);
}

fn large(exchange: Arc<Exchange>) {
    answer(exchange, &vec![b'x'; 20_000_000]);
}

#[test]
fn a_client_that_opens_no_window_loses_its_stream() {
    let server = Server::with(|config| config.timeouts.write = SHORT, large);
    let client = Client::connect(&server);
    let response = client.wait(client.get("/")).unwrap();
    let mut body = response.into_body();
    let error = client.wait(async {
        loop {
            match body.data().await {
                Some(Ok(_)) => {}
                Some(Err(error)) => return error,
                None => panic!("the whole body without a window"),
            }
        }
    });
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    assert!(!client.connection.is_finished());
}

#[test]
fn a_client_that_reads_nothing_loses_its_connection() {
    let (go, wait) = mpsc::channel();
    let wait = Mutex::new(wait);
    let server = Server::with(
        |config| {
            config.timeouts.write = SHORT;
            // Where the system's buffers take the last frames after all.
            config.timeouts.idle = Duration::from_secs(1);
            config.timeouts.drain_idle = SHORT;
        },
        move |exchange| {
            wait.lock().unwrap().recv_timeout(PATIENCE).unwrap();
            large(exchange);
        },
    );
    let mut builder = Builder::new();
    builder.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
    let client = Client::with(&server, &builder);
    let responses: Vec<_> = (0..4).map(|_| client.get("/")).collect();
    client.until(|| server.engine.stats().requests_total == 4);
    (0..4).for_each(|_| go.send(()).unwrap());
    eventually("it is closed", || server.engine.stats().connections == 0);
    drop(responses);
}

#[test]
fn a_response_that_breaks_off_is_no_whole_one() {
    let server = Server::start(|exchange| {
        streamed(&exchange);
        exchange.write(b"begun").unwrap();
        exchange.end(false);
    });
    let client = Client::connect(&server);
    let error = client.reply(client.get("/")).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
    assert!(!client.connection.is_finished());
}

#[test]
fn a_response_that_breaks_off_before_its_first_byte_is_no_whole_one() {
    let server = Server::start(|exchange| {
        streamed(&exchange);
        exchange.end(false);
    });
    let client = Client::connect(&server);
    let request = Request::get("http://a.test/").header("x-at-once", "1").body(()).unwrap();
    let error = client.reply(client.send(request, b"")).unwrap_err();
    assert_eq!(error.reason(), Some(Reason::INTERNAL_ERROR));
}

#[test]
fn what_is_refused() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let set = |config: &mut Config| {
        config.limits.body_bytes_max = 1000;
        config.limits.uri_bytes_max = 100;
        config.timeouts.body = SHORT;
    };
    let server = Server::with(set, move |exchange| {
        counted.fetch_add(1, SeqCst);
        answer(exchange, b"");
    });
    let client = Client::connect(&server);
    let status = |response| client.reply(response).unwrap().0;
    assert_eq!(status(client.send(post("/"), &[b'x'; 1001])), 413);
    assert_eq!(status(client.get(&format!("/{}", "a".repeat(100)))), 414);
    let connect = Request::connect("a.test:443").body(()).unwrap();
    assert_eq!(status(client.send(connect, b"")), 501);
    let expecting = Request::post("http://a.test/").header("expect", "wonders").body(()).unwrap();
    assert_eq!(status(client.send(expecting, b"x")), 417);
    let large = Request::get("http://a.test/").header("x", "a".repeat(40_000)).body(()).unwrap();
    assert_eq!(status(client.send(large, b"")), 431);
    // A body that does not come.
    let mut requests = client.requests.clone();
    let (response, stream) = requests.send_request(post("/"), false).unwrap();
    assert_eq!(status(response), 408);
    drop(stream);
    assert_eq!(calls.load(SeqCst), 0);
    assert_eq!(client.text(client.get("/")).0, 200);
    // One line a second names what was too long.
    let warnings = server.threads.warnings.lock().unwrap();
    assert!(warnings[0].contains("414") && warnings[0].contains("the path has 101 bytes"));
}

#[test]
fn the_heads_of_a_connection_are_bounded_together() {
    let server = Server::start(echo);
    let client = Client::connect(&server);
    let request =
        || Request::post("http://a.test/").header("x", "a".repeat(30_000)).body(()).unwrap();
    let mut requests = client.requests.clone();
    let started: Vec<_> = (0..40)
        .map(|_| {
            requests = client.wait(requests.clone().ready()).unwrap();
            requests.send_request(request(), false).unwrap()
        })
        .collect();
    let (mut answered, mut refused) = (0, 0);
    for (response, mut body) in started.into_iter().rev() {
        // It fails on a stream that was refused.
        let _ = body.send_data(Bytes::new(), true);
        match client.reply(response) {
            Ok((status, _)) => answered += usize::from(status == 200),
            Err(error) => refused += usize::from(error.reason() == Some(Reason::REFUSED_STREAM)),
        }
    }
    assert_eq!((answered, refused), (34, 6));
    assert_eq!(server.engine.stats().no_room_total, 6);
    assert_eq!(client.text(client.send(request(), b"x")).0, 200);
}

/// The same head on the wire, whatever client would refuse to send it.
fn raw_head(stream: u8, end: bool, pairs: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| {
        assert!(text.len() < 127);
        [&[text.len() as u8], text.as_bytes()].concat()
    };
    let block: Vec<_> = pairs
        .iter()
        .flat_map(|(name, value)| [vec![0], text(name), text(value)].concat())
        .collect();
    let head = [0, 0, u8::try_from(block.len()).unwrap(), 1, 4 | u8::from(end), 0, 0, 0, stream];
    [&head[..], &block].concat()
}

#[test]
fn what_the_crate_refuses_is_counted() {
    let server = Server::start(echo);
    let mut client = server.connect();
    let get = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "a")];
    let with = |pair| [&get[..], &[pair]].concat();
    client.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
    for (stream, pairs) in [
        (1, with(("connection", "close"))),
        (3, with((":path", "/twice"))),
        (5, with(("content-length", "1"))),
        (7, get[..2].to_vec()),
    ] {
        client.socket.write_all(&raw_head(stream, true, &pairs)).unwrap();
    }
    eventually("they are counted", || server.engine.stats().refused_total == 4);
    assert_eq!(server.engine.stats().responses_total, [0, 0, 0, 4, 0]);
    // A block of headers that cannot be read ends the connection.
    client.socket.write_all(&[0, 0, 1, 1, 5, 0, 0, 0, 9, 0xff]).unwrap();
    eventually("it is counted", || server.engine.stats().refused_total == 5);
    // So is a list above the limit that the crate was given.
    let client = Client::connect(&server);
    let large = "a".repeat(40_000);
    let request = Request::get("http://a.test/").header("x", large).body(()).unwrap();
    assert_eq!(client.reply(client.send(request, b"")).unwrap().0, 431);
    eventually("it is counted, too", || server.engine.stats().refused_total == 6);
}

#[test]
fn a_request_that_takes_too_long() {
    let (go, app) = held();
    let server = Server::with(|config| config.timeouts.request = Some(SHORT), app);
    let client = Client::connect(&server);
    assert_eq!(client.reply(client.get("/")).unwrap().0, 503);
    assert_eq!(server.engine.stats().late_total, 1);
    go.send(()).unwrap();
}

#[test]
fn without_http2_its_beginning_is_a_wrong_version() {
    let server = Server::with(|config| config.http2 = false, echo);
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.reply().status, 505);
}
