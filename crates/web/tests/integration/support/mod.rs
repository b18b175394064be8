//! A server with an application made of threads, and a client that speaks
//! bytes. Every wait has a limit and every port is picked by the system.

mod client;

use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use chaton_web::{
    BodySize, Config, EncodedHead, Engine, Exchange, Listener, ListenerKind, RequestBody,
    ResponseFraming, ResponseHead,
};

pub use client::Client;

/// Longest wait for anything in a test.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An application: called on one of a few threads for each request.
pub type App = Arc<dyn Fn(Arc<Exchange>) + Send + Sync>;

/// Hands requests to threads; refuses past `room`.
pub struct Threads {
    queue: mpsc::Sender<Arc<Exchange>>,
    app: App,
    waiting: Arc<AtomicUsize>,
    room: usize,
    pub late: AtomicUsize,
    pub warnings: Mutex<Vec<String>>,
}

impl Threads {
    fn new(count: usize, room: usize, app: App) -> Self {
        let (queue, requests) = mpsc::channel::<Arc<Exchange>>();
        let requests = Arc::new(Mutex::new(requests));
        let waiting = Arc::new(AtomicUsize::new(0));
        for _ in 0..count {
            let (requests, app) = (Arc::clone(&requests), Arc::clone(&app));
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || loop {
                let request = requests.lock().unwrap().recv();
                let Ok(exchange) = request else { return };
                waiting.fetch_sub(1, SeqCst);
                app(exchange);
            });
        }
        let (late, warnings) = (AtomicUsize::new(0), Mutex::default());
        Self { queue, app, waiting, room, late, warnings }
    }
}

impl chaton_core::engine::Feed<Exchange> for Threads {
    fn submit(&self, exchange: Arc<Exchange>) -> Result<(), Arc<Exchange>> {
        if exchange.head().header("x-at-once").is_some() {
            // On the IO thread, which looks at the response only when it is whole.
            (self.app)(exchange);
            return Ok(());
        }
        if self.waiting.fetch_add(1, SeqCst) >= self.room {
            self.waiting.fetch_sub(1, SeqCst);
            return Err(exchange);
        }
        assert!(exchange.head().header("x-panic").is_none(), "a panic of the feed, as asked");
        self.queue.send(exchange).map_err(|lost| lost.0)
    }

    fn report_late(&self, _: u64) {
        self.late.fetch_add(1, SeqCst);
    }

    fn warn(&self, message: &str) {
        self.warnings.lock().unwrap().push(message.to_owned());
    }
}

/// A running engine on a port of its own.
pub struct Server {
    pub engine: Engine,
    pub threads: Arc<Threads>,
    pub at: SocketAddr,
}

impl Server {
    /// With every default.
    pub fn start(app: impl Fn(Arc<Exchange>) + Send + Sync + 'static) -> Self {
        Self::with(|_| {}, app)
    }

    /// With settings changed by `set`.
    pub fn with(
        set: impl FnOnce(&mut Config),
        app: impl Fn(Arc<Exchange>) + Send + Sync + 'static,
    ) -> Self {
        Self::with_room(4, usize::MAX, set, app)
    }

    /// With so many threads, and requests refused when more than `room` wait.
    pub fn with_room(
        threads: usize,
        room: usize,
        set: impl FnOnce(&mut Config),
        app: impl Fn(Arc<Exchange>) + Send + Sync + 'static,
    ) -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let mut config = Config::for_tests(vec![listener(socket)]);
        set(&mut config);
        let threads = Arc::new(Threads::new(threads, room, Arc::new(app)));
        let engine = Engine::start(config, threads.clone()).unwrap();
        Self { engine, threads, at }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.at)
    }
}

/// A TCP socket as the engine takes it.
pub fn listener(socket: TcpListener) -> Listener {
    let label = format!("tcp://{}", socket.local_addr().unwrap());
    Listener { fd: socket.into(), kind: ListenerKind::Tcp, label, tls: None }
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "did not happen: {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The head of a 200 response, with the headers a keep-alive connection needs.
pub fn ok_head(exchange: &Exchange, header: &str) -> EncodedHead {
    head(exchange, 200, header)
}

/// The head of a response with one header, or none.
pub fn head(exchange: &Exchange, status: u16, header: &str) -> EncodedHead {
    let context = exchange.response_context(None);
    let mut head = ResponseHead::new(exchange.take_buffer(), status, &context).unwrap();
    if let Some((name, value)) = header.split_once(": ") {
        head.header(name.as_bytes(), value.as_bytes()).unwrap();
    }
    head.finish(BodySize::Unknown).unwrap()
}

/// Answers 200 with `body` at once.
pub fn answer(exchange: Arc<Exchange>, body: &[u8]) {
    let mut head = ok_head(&exchange, &format!("Content-Length: {}", body.len()));
    if head.framing != ResponseFraming::None {
        head.bytes.extend_from_slice(body);
    }
    exchange.complete(head, None);
}

/// An application that answers with what it was asked: method, target, body.
pub fn echo(exchange: Arc<Exchange>) {
    let head = exchange.head();
    let mut text = Vec::new();
    text.extend_from_slice(head.get(head.method));
    text.push(b' ');
    text.extend_from_slice(head.get(head.target));
    text.push(b' ');
    text.extend_from_slice(&body_bytes(exchange.body()));
    answer(exchange, &text);
}

/// A request's body, wherever it lies.
pub fn body_bytes(body: &RequestBody) -> Vec<u8> {
    use std::os::unix::fs::FileExt;
    match body {
        RequestBody::Empty | RequestBody::Streamed(_) => Vec::new(),
        RequestBody::Memory(bytes) => bytes.clone(),
        RequestBody::Spooled { file, len, .. } => {
            let mut bytes = vec![0; *len as usize];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        }
    }
}

/// Bytes that are different everywhere.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}
