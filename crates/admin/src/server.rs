//! Listens, as a process of its own or on a thread.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use chaton_core::process::scoreboard::Scoreboard;
use parking_lot::Mutex;
use rustix::io::Errno;
use rustix::net::{accept_with, SocketFlags};
use rustix::process::{getrlimit, Resource};
use serde::Deserialize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Interest};
use tokio::net::{unix::pipe, TcpStream, UnixStream};
use tokio::sync::Notify;

use crate::config::{AdminListener, Config};
use crate::connection;
use crate::dashboard::sampler;
use crate::state::{runtime, OpenStore, State};
use crate::statsd;
use crate::waiting_clients::{WaitingClient, WaitingClients};

/// Bytes of a line from the supervisor at most: a report of thousands of workers.
const LINE_BYTES_MAX: u64 = 1 << 20;
/// Pause after a failed accept that closing a connection cannot help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Connections of one bind that wait without a place. The head of a probe arrives long before a thousand others
/// have connected; they take about 2 MiB.
const WAITING_MAX: u64 = 1024;
/// As many may wait where the limit of open files is low.
const WAITING_MIN: u64 = 16;
/// One bind's waiting connections may take an eighth of the open files: on a thread of a server without workers,
/// the rest is the application's.
const WAITING_PART: u64 = 8;

/// The first line that the process reads.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ProcessSettings {
    /// Descriptor of the scoreboard.
    scoreboard: RawFd,
    /// No process of this server has done this before.
    first: bool,
    config: Config,
}

/// Serves in this process, which has nothing else to do. Standard input brings the settings in a
/// line, then a report in each; this returns at its end, because then the supervisor has ended.
///
/// # Errors
/// When settings or a report cannot be read, or a socket cannot be watched.
pub fn run_process(open: OpenStore) -> io::Result<()> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        // SAFETY: standard input, which nothing else in this process uses.
        let input = unsafe { BorrowedFd::borrow_raw(0) }.try_clone_to_owned()?;
        let mut lines = BufReader::new(pipe::Receiver::from_owned_fd(input)?);
        let first = line(&mut lines).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let settings: ProcessSettings = serde_json::from_str(&first)?;
        let scoreboard = Scoreboard::open(settings.scoreboard)?;
        let state = State::new(settings.config, scoreboard, open);
        listen(&state, settings.first)?;
        while let Some(line) = line(&mut lines).await? {
            state.take(&line)?;
        }
        Ok(())
    });
    // A call to a store that does not answer may still run.
    runtime.shutdown_background();
    ended
}

async fn line(lines: &mut BufReader<pipe::Receiver>) -> io::Result<Option<String>> {
    let mut line = String::new();
    let read = lines.take(LINE_BYTES_MAX).read_line(&mut line).await?;
    Ok((read > 0).then_some(line))
}

/// The endpoint on a thread of a server without workers.
pub struct AdminThread {
    state: Arc<State>,
    stop: Arc<Notify>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl AdminThread {
    /// Starts it.
    ///
    /// # Errors
    /// When a socket cannot be watched, or the system gives no thread.
    pub fn start(config: Config, scoreboard: &Scoreboard, open: OpenStore) -> io::Result<Self> {
        let runtime = runtime()?;
        let state = State::new(config, Scoreboard::open(scoreboard.fd())?, open);
        let guard = runtime.enter();
        listen(&state, true)?;
        drop(guard);
        let stop = Arc::new(Notify::new());
        let stopped = stop.clone();
        let thread = chaton_core::thread::spawn("chaton-admin", move || {
            runtime.block_on(stopped.notified());
            runtime.shutdown_background();
        })?;
        Ok(Self { state, stop, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a report or a link, which are JSON.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn report(&self, line: &str) -> io::Result<()> {
        self.state.take(line)
    }

    /// Ends the thread; after that the sockets may be closed.
    pub fn stop(&self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // It only panics together with the runtime.
            let _ = thread.join();
        }
    }
}

/// A descriptor of somebody else, who closes it.
struct Lent(RawFd);

impl AsRawFd for Lent {
    fn as_raw_fd(&self) -> RawFd {
        self.0
    }
}

impl Lent {
    fn accept(&self) -> io::Result<OwnedFd> {
        // SAFETY: its owner closes it after this endpoint has ended.
        let socket = unsafe { BorrowedFd::borrow_raw(self.0) };
        Ok(accept_with(socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
    }
}

/// Begins to accept on all sockets, and to send to StatsD. Call it within the runtime.
fn listen(state: &Arc<State>, first: bool) -> io::Result<()> {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let waiting_max = (files / WAITING_PART).clamp(WAITING_MIN, WAITING_MAX) as usize;
    for listener in &state.config.listeners {
        // SAFETY: as in `Lent::accept`.
        rustix::io::ioctl_fionbio(unsafe { BorrowedFd::borrow_raw(listener.fd) }, true)?;
        // SAFETY: the descriptor stays open until the runtime, which drops this, has ended.
        let socket =
            unsafe { AsyncFd::register_with_interest(Lent(listener.fd), Interest::READABLE) };
        let socket = socket.map_err(|error| error.into_parts().1)?;
        let clients = WaitingClients::new(waiting_max);
        tokio::spawn(accept_all(socket, listener.clone(), state.clone(), clients));
    }
    let shared = state.clone();
    tokio::spawn(async move { sampler::run(&shared).await });
    let shared = state.clone();
    tokio::spawn(async move {
        if let Some(config) = &shared.config.statsd {
            statsd::run(config, &shared, first).await;
        }
    });
    Ok(())
}

async fn accept_all(
    socket: AsyncFd<Lent>,
    listener: AdminListener,
    state: Arc<State>,
    clients: Arc<WaitingClients>,
) {
    loop {
        match socket.async_io(Interest::READABLE, Lent::accept).await {
            Ok(stream) => {
                let (listener, state) = (listener.clone(), state.clone());
                clients.spawn(|client| async move {
                    serve(stream, client, &listener, &state).await;
                });
            }
            // The socket is closed when its task runs the next time.
            Err(error) if is_lack(&error) && clients.close_oldest() => {
                tokio::task::yield_now().await;
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Whether descriptors or memory are lacking (accept(2)).
fn is_lack(error: &io::Error) -> bool {
    use Errno as E;
    matches!(Errno::from_io_error(error), Some(E::MFILE | E::NFILE | E::NOBUFS | E::NOMEM))
}

async fn serve(socket: OwnedFd, client: WaitingClient, listener: &AdminListener, state: &State) {
    if listener.unix {
        if let Ok(stream) = UnixStream::from_std(socket.into()) {
            connection::serve(stream, client, listener, state).await;
        }
    } else if let Ok(stream) = TcpStream::from_std(socket.into()) {
        connection::serve(stream, client, listener, state).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn start(sockets: &[TcpListener]) -> AdminThread {
        let listeners = sockets.iter().map(|socket| AdminListener {
            fd: socket.as_raw_fd(),
            unix: false,
            host: "127.0.0.1".to_owned(),
            open: true,
        });
        let config = Config {
            listeners: listeners.collect(),
            token: None,
            hosts: Vec::new(),
            connections_max: 1,
            timeout: Duration::from_secs(60),
            alive_timeout: None,
            queue_age: Duration::from_secs(1),
            lag_max: None,
            statsd: None,
            roles: Vec::new(),
            store: serde_json::Value::Null,
            dashboard: crate::config::DashboardConfig::default(),
        };
        AdminThread::start(config, &Scoreboard::new(1).unwrap(), |_| None).unwrap()
    }

    fn client(socket: &TcpListener, bytes: &str) -> TcpStream {
        let mut client = TcpStream::connect(socket.local_addr().unwrap()).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        client.write_all(bytes.as_bytes()).unwrap();
        client
    }

    /// What is answered until the connection is closed, which it is for a client without a session or token.
    fn ask(socket: &TcpListener, path: &str) -> String {
        let mut answer = String::new();
        let mut client = client(socket, &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn each_listener_serves_with_room_for_one_connection() {
        let sockets = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let admin = start(&sockets);
        for socket in sockets.iter().rev().chain(&sockets) {
            let answer = ask(socket, "/metrics");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        }
        admin.stop();
    }

    #[test]
    fn probes_are_answered_while_others_have_all_places_and_hundreds_send_nothing() {
        let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let admin = start(&sockets);
        let place = admin.state.places.try_acquire().unwrap();
        let metrics = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let mut others: Vec<_> = sockets
            .iter()
            .flat_map(|socket| {
                let begun = ["", "GET /live", metrics].into_iter().cycle().take(90);
                begun.map(|bytes| client(socket, bytes)).collect::<Vec<_>>()
            })
            .collect();
        for socket in &sockets {
            assert!(ask(socket, "/live").starts_with("HTTP/1.1 200 "));
            assert!(ask(socket, "/ready").starts_with("HTTP/1.1 200 "));
        }
        drop(place);
        let mut answer = [0; 12];
        others[2].read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 200");
        admin.stop();
    }
}
