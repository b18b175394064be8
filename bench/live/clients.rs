//! Clients of event streams: one thread holds thousands of connections, and reads what they get.
//! Usage: `clients PORT COUNT STREAMS STALE`; client N asks for `/s/N`, modulo STREAMS.
//!
//! It prints `open SECONDS` once all have got their response. Each message is `SEQUENCE NANOSECONDS`: its number among
//! those of its stream, from 0 on, and the monotonic time at which it was said. For each line on its standard input it
//! prints what came since the last one, as JSON. A connection that ends is made again after the time that the server has
//! asked for, with the id of its last event, as browsers do; if STALE is 1, with an id that the server has not signed.
#![deny(missing_docs)]

use std::collections::BTreeMap;
use std::env;
use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Events that one wait returns.
const EVENTS_MAX: usize = 1024;
/// Time between two looks at what is due.
const TICK_MS: i32 = 5;

#[repr(C, packed)]
#[derive(Clone, Copy)]
struct Event {
    flags: u32,
    key: u64,
}

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn epoll_create1(flags: i32) -> i32;
    fn epoll_ctl(epoll: i32, what: i32, fd: i32, event: *mut Event) -> i32;
    fn epoll_wait(epoll: i32, events: *mut Event, max: i32, milliseconds: i32) -> i32;
    fn clock_gettime(clock: i32, time: *mut Timespec) -> i32;
}

/// The monotonic clock, as the one who says a message reads it.
fn now_ns() -> u64 {
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    // SAFETY: the kernel fills the struct.
    unsafe { clock_gettime(1, &mut time) };
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

struct Epoll(i32);

impl Epoll {
    fn add(&self, fd: RawFd, key: u64) {
        let mut event = Event { flags: 1, key };
        // SAFETY: both descriptors are open.
        assert_eq!(unsafe { epoll_ctl(self.0, 1, fd, &mut event) }, 0, "epoll");
    }

    fn wait(&self, events: &mut [Event]) -> usize {
        // SAFETY: there is room for as many.
        let found =
            unsafe { epoll_wait(self.0, events.as_mut_ptr(), events.len() as i32, TICK_MS) };
        usize::try_from(found).unwrap_or(0)
    }
}

#[derive(Default)]
struct Client {
    socket: Option<TcpStream>,
    /// What came of a line that has not ended.
    line: Vec<u8>,
    id: Vec<u8>,
    kind: Vec<u8>,
    retry: Duration,
    /// The number of the next message, once there was one.
    next: Option<u64>,
    has_head: bool,
    lost_at: Option<Instant>,
    connects_at: Option<Instant>,
}

/// What came since the last line of the input.
#[derive(Default)]
struct Seen {
    latencies_us: Vec<u32>,
    first_ns: u64,
    last_ns: u64,
    missed: u64,
    repeated: u64,
    gaps: u64,
    lost: u64,
    back_ms: Vec<u32>,
    refused: u64,
}

struct Clients {
    port: u16,
    streams: usize,
    stale: bool,
    epoll: Epoll,
    all: Vec<Client>,
    seen: Seen,
    open: usize,
}

impl Clients {
    fn connect(&mut self, at: usize) {
        let client = &mut self.all[at];
        client.connects_at = None;
        client.has_head = false;
        client.line.clear();
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.port)) else {
            client.connects_at = Some(Instant::now() + Duration::from_millis(100));
            return;
        };
        let id = match self.stale && !client.id.is_empty() {
            true => "stale".into(),
            false => String::from_utf8_lossy(&client.id),
        };
        let id = if id.is_empty() { String::new() } else { format!("Last-Event-ID: {id}\r\n") };
        let stream = at % self.streams;
        let request = format!(
            "GET /s/{stream} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{id}\r\n"
        );
        let written = socket.write_all(request.as_bytes());
        socket.set_nonblocking(true).expect("a socket that does not block");
        self.epoll.add(socket.as_raw_fd(), at as u64);
        client.socket = Some(socket);
        if written.is_err() {
            self.lose(at);
        }
    }

    fn lose(&mut self, at: usize) {
        let client = &mut self.all[at];
        client.socket = None;
        if mem::take(&mut client.has_head) {
            self.open -= 1;
            self.seen.lost += 1;
            client.lost_at = Some(Instant::now());
        }
        client.connects_at = Some(Instant::now() + client.retry.max(Duration::from_millis(50)));
    }

    fn read(&mut self, at: usize, buffer: &mut [u8]) {
        loop {
            let Some(socket) = &mut self.all[at].socket else { return };
            match socket.read(buffer) {
                Ok(0) => return self.lose(at),
                Ok(bytes) => {
                    self.take(at, &buffer[..bytes]);
                    // What comes behind a short read is another event.
                    if bytes < buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => return self.lose(at),
            }
        }
    }

    /// Chunks of HTTP/1 are read as lines, too: none of theirs looks like a field.
    fn take(&mut self, at: usize, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.all[at].line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = mem::take(&mut self.all[at].line);
                self.field(at, line.trim_ascii_end());
                self.all[at].line = line;
                self.all[at].line.clear();
            }
        }
    }

    fn field(&mut self, at: usize, line: &[u8]) {
        let client = &mut self.all[at];
        if !client.has_head && line.starts_with(b"HTTP/1.1 ") {
            if !line.starts_with(b"HTTP/1.1 200") {
                self.seen.refused += 1;
                return self.lose(at);
            }
            client.has_head = true;
            self.open += 1;
            if let Some(lost_at) = client.lost_at.take() {
                self.seen.back_ms.push(lost_at.elapsed().as_millis() as u32);
            }
        } else if let Some(id) = line.strip_prefix(b"id: ") {
            client.id = id.to_vec();
        } else if let Some(kind) = line.strip_prefix(b"event: ") {
            client.kind = kind.to_vec();
        } else if let Some(retry) = line.strip_prefix(b"retry: ") {
            let retry = String::from_utf8_lossy(retry).parse().unwrap_or(1000);
            client.retry = Duration::from_millis(retry);
        } else if let Some(data) = line.strip_prefix(b"data: ") {
            match client.kind.is_empty() {
                true => self.message(at, data),
                false => self.seen.gaps += 1,
            }
        } else if line.starts_with(b"data:") {
            self.seen.gaps += 1;
        } else if line.is_empty() {
            client.kind.clear();
        }
    }

    fn message(&mut self, at: usize, data: &[u8]) {
        let (now, text) = (now_ns(), String::from_utf8_lossy(data));
        let mut numbers = text.split(' ').map(|number| number.parse::<u64>().expect("a number"));
        let (sequence, said) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(now));
        let (client, seen) = (&mut self.all[at], &mut self.seen);
        let next = client.next.unwrap_or(sequence);
        seen.missed += sequence.saturating_sub(next);
        seen.repeated += u64::from(sequence < next);
        client.next = Some(next.max(sequence + 1));
        seen.latencies_us.push((now.saturating_sub(said) / 1000) as u32);
        if seen.first_ns == 0 {
            seen.first_ns = now;
        }
        seen.last_ns = now;
    }

    fn report(&mut self) {
        let mut seen = mem::take(&mut self.seen);
        let mut shown: BTreeMap<&str, f64> = BTreeMap::new();
        shown.insert("open", self.open as f64);
        shown.insert("messages", seen.latencies_us.len() as f64);
        shown.insert("spread_ms", (seen.last_ns - seen.first_ns) as f64 / 1e6);
        for (name, count) in
            [("missed", seen.missed), ("repeated", seen.repeated), ("gaps", seen.gaps)]
        {
            shown.insert(name, count as f64);
        }
        shown.insert("lost_connections", seen.lost as f64);
        shown.insert("refused", seen.refused as f64);
        for (prefix, values, unit) in [
            (["p50_ms", "p99_ms", "max_ms"], &mut seen.latencies_us, 1000.0),
            (["back_p50_ms", "back_p99_ms", "back_max_ms"], &mut seen.back_ms, 1.0),
        ] {
            values.sort_unstable();
            for (name, share) in prefix.into_iter().zip([0.5, 0.99, 1.0]) {
                let at = ((values.len() as f64 * share) as usize).min(values.len().max(1) - 1);
                if let Some(value) = values.get(at) {
                    shown.insert(name, f64::from(*value) / unit);
                }
            }
        }
        let fields: Vec<_> =
            shown.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
        println!("{{{}}}", fields.join(","));
    }
}

fn main() {
    let numbers: Vec<usize> =
        env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [port, count, streams, stale] = numbers[..] else {
        panic!("usage: clients PORT COUNT STREAMS STALE")
    };
    // SAFETY: it has no pointers.
    let epoll = Epoll(unsafe { epoll_create1(0) });
    epoll.add(0, u64::MAX);
    let all = (0..count).map(|_| Client::default()).collect();
    let port = u16::try_from(port).expect("a port");
    let stale = stale == 1;
    let mut clients = Clients { port, streams, stale, epoll, all, seen: Seen::default(), open: 0 };
    let (began, mut opened, mut connected) = (Instant::now(), false, 0);
    let mut looked_at = began;
    let mut events = vec![Event { flags: 0, key: 0 }; EVENTS_MAX];
    let mut buffer = vec![0; 64 * 1024];
    loop {
        // As many wait for their response as a server's queue takes.
        while connected < count && connected - clients.open < 200 {
            clients.connect(connected);
            connected += 1;
        }
        for at in 0..clients.epoll.wait(&mut events) {
            match { events[at].key } {
                u64::MAX => {
                    let mut line = [0; 64];
                    if std::io::stdin().read(&mut line).unwrap_or(0) == 0 {
                        return;
                    }
                    clients.report();
                }
                key => clients.read(key as usize, &mut buffer),
            }
        }
        let now = Instant::now();
        if now - looked_at >= Duration::from_millis(TICK_MS as u64) {
            looked_at = now;
            for at in 0..connected {
                if clients.all[at].connects_at.is_some_and(|due| due <= now) {
                    clients.connect(at);
                }
            }
        }
        if !opened && clients.open == count {
            opened = true;
            println!("open {}", began.elapsed().as_secs_f64());
        }
    }
}
