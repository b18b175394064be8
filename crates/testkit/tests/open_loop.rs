//! Runs the generator against small servers with known faults.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chaton_testkit::load_report::LoadReport;
use chaton_testkit::load_run::{LoadPlan, LoadRun};
use chaton_testkit::server_address::ServerAddress;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";

/// A server with a thread for each connection; `serve` gets the number of each
/// request. Its threads end with the test process.
fn server(serve: impl Fn(u64, &mut TcpStream) -> bool + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    let count = Arc::new(AtomicU64::new(0));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (serve, count) = (serve.clone(), count.clone());
            thread::spawn(move || converse(stream, &count, &*serve));
        }
    });
    port
}

fn converse(mut stream: TcpStream, count: &AtomicU64, serve: &dyn Fn(u64, &mut TcpStream) -> bool) {
    let mut seen = Vec::new();
    let mut piece = [0; 1024];
    while let Ok(length) = stream.read(&mut piece) {
        if length == 0 {
            return;
        }
        seen.extend_from_slice(&piece[..length]);
        while let Some(end) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            seen.drain(..end + 4);
            if !serve(count.fetch_add(1, Ordering::Relaxed), &mut stream) {
                return;
            }
        }
    }
}

fn plan(port: u16, rate: f64, seconds: f64) -> LoadPlan {
    LoadPlan {
        server: ServerAddress::parse(&format!("http://127.0.0.1:{port}/")).unwrap(),
        rate,
        seconds,
        warmup_s: 0.0,
        connections_max: 64,
        timeout: Duration::from_secs(10),
    }
}

fn run(plan: &LoadPlan) -> LoadReport {
    LoadRun::run(plan).unwrap()
}

#[test]
fn all_requests_are_answered() {
    let port = server(|_, stream| stream.write_all(ANSWER).is_ok());
    let report = run(&plan(port, 500.0, 0.5));
    assert_eq!(
        (report.offered_count(), report.answered_count(), report.failed_count()),
        (250, 250, 0)
    );
}

/// The server pauses for a second. A closed-loop generator
/// would count one slow request per connection; here each request that
/// was due during the pause has waited until its end.
#[test]
fn a_pause_of_the_server_delays_all_requests_due_during_it() {
    let pause = std::sync::Mutex::new(());
    let port = server(move |number, stream| {
        let held = pause.lock().unwrap();
        if number == 100 {
            thread::sleep(Duration::from_secs(1));
        }
        drop(held);
        stream.write_all(ANSWER).is_ok()
    });
    let mut plan = plan(port, 200.0, 3.0);
    plan.connections_max = 2;
    let report = run(&plan);
    assert_eq!((report.offered_count(), report.answered_count()), (600, 600));
    // 200 of 600 were due within the pause: a third has waited, a tenth of all for more than 0.7 s.
    assert!(report.latency_ms(0.75) > 100.0, "p75 {} ms", report.latency_ms(0.75));
    assert!(report.latency_ms(0.90) > 500.0, "p90 {} ms", report.latency_ms(0.90));
    assert!(report.latency_ms(1.0) >= 1000.0, "max {} ms", report.latency_ms(1.0));
    assert!(report.to_json()["waiting_peak"].as_u64().unwrap() > 100);
}

#[test]
fn timeouts_enter_the_latencies_with_the_time_waited() {
    let port = server(|_, _| true);
    let mut plan = plan(port, 100.0, 0.2);
    plan.connections_max = 4;
    plan.timeout = Duration::from_millis(300);
    let report = run(&plan);
    let told = report.to_json();
    assert_eq!((report.offered_count(), report.answered_count(), report.late_count()), (20, 0, 20));
    let count = |kind: &str| told["errors"][kind].as_u64().unwrap_or(0);
    assert_eq!(count("timeout") + count("unsent"), 20, "{told}");
    assert!(count("timeout") >= 4, "there were 4 connections: {told}");
    assert!(report.latency_ms(0.5) >= 300.0);
}

#[test]
fn connections_that_the_server_closes_are_replaced() {
    let announced = server(|_, stream| stream.write_all(LAST_ANSWER).is_err());
    let silent = server(|number, stream| stream.write_all(ANSWER).is_ok() && number % 7 != 0);
    let report = run(&plan(announced, 300.0, 0.5));
    assert_eq!((report.answered_count(), report.failed_count()), (150, 0));
    let report = run(&plan(silent, 300.0, 0.5));
    // A request that is sent in the moment in which the server closes fails: one in seven at most.
    assert_eq!(report.answered_count() + report.failed_count(), 150);
    assert!(report.failed_count() <= 150 / 7, "{}", report.failed_count());
}

#[test]
fn failures_have_names() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let report = run(&plan(closed, 100.0, 0.1));
    assert_eq!(report.to_json()["errors"]["connect"], 10, "nobody listens there");

    let busy = server(|_, stream| {
        stream.write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n").is_ok()
    });
    assert_eq!(run(&plan(busy, 100.0, 0.1)).to_json()["errors"]["status_503"], 10);

    let mute = server(|_, _| false);
    assert_eq!(run(&plan(mute, 100.0, 0.1)).to_json()["errors"]["read"], 10);

    let strange = server(|_, stream| stream.write_all(b"SSH-2.0-none\r\n\r\n").is_ok());
    assert_eq!(run(&plan(strange, 100.0, 0.1)).to_json()["errors"]["protocol"], 10);
}
