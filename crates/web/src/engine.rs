//! The engine's handle and its IO thread.

use std::future::poll_fn;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{mpsc, Arc};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use chaton_core::engine::{Engine as _, Feed, Released};
use chaton_core::process::scoreboard::OwnGauges;
use chaton_core::thread;
use parking_lot::Mutex;
use tokio::io::unix::AsyncFd;
use tokio::io::Interest;
use tokio::runtime::{Builder, Runtime};

use crate::accept::Acceptor;
use crate::config::{Config, Listener, ListenerKind};
use crate::disk::DISK_THREADS_MAX;
use crate::error::Error;
use crate::exchange::Exchange;
use crate::resumer::Resumer;
use crate::server_state::ServerState;
use crate::socket;
use crate::static_files::StaticFiles;
use crate::stats::Stats;
use crate::tls::{TicketSecret, TlsListener, TlsSettings};

/// Tasks run before the IO thread polls for new events: a whole batch of
/// responses is written between two polls.
const EVENT_INTERVAL: u32 = 256;

/// A running web engine.
///
/// It belongs to the process that started it: start it after the fork, and
/// leak the handle in a child. Dropping it stops the engine.
pub struct Engine {
    shared: Arc<ServerState>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The listening sockets with TLS.
    tls: Vec<Arc<TlsListener>>,
    pid: u32,
}

impl Engine {
    /// Starts serving on one new thread, `chaton-io`, which blocks all signals.
    /// Returns when that thread runs and the scoreboard shows that it accepts;
    /// otherwise the siblings would take this worker's share.
    ///
    /// # Errors
    /// When the operating system refuses the event loop, a listener, the directory of static files
    /// or the thread.
    pub fn start(mut config: Config, feed: Arc<dyn Feed<Exchange>>) -> Result<Self, Error> {
        let listeners = mem::take(&mut config.listeners);
        let static_files = config.static_files.take().map(StaticFiles::open).transpose()?;
        let mut shared = ServerState::new(config, feed);
        shared.static_files = static_files.map(Arc::new);
        let shared = Arc::new(shared);
        let runtime = runtime(&shared)
            .map_err(|error| Error::new("can't start the web engine's event loop", error))?;
        let acceptors = acceptors(&runtime, &shared, listeners)?;
        let tls = acceptors.iter().filter_map(|acceptor| acceptor.tls.clone()).collect();
        if let Some(slot) = shared.config.own_gauges() {
            // From now on the siblings expect this worker to accept.
            slot.pid.store(std::process::id(), Relaxed);
        }
        let (running, runs) = mpsc::sync_channel(1);
        let run = {
            let shared = Arc::clone(&shared);
            move || {
                shared.publish_accepting(shared.has_capacity());
                // This fails only when the starting thread is gone.
                let _ = running.send(());
                for acceptor in acceptors {
                    runtime.spawn(acceptor.run());
                }
                runtime.block_on(supervise(&shared));
                // Does not wait for the disk.
                runtime.shutdown_background();
                shared.flush_log();
                shared.exchanges.set_io_waker(None);
            }
        };
        let thread = thread::spawn("chaton-io", run)
            .map_err(|error| Error::new("can't start the web engine's thread", error))?;
        // An error means that the thread panicked, which was printed then.
        let _ = runs.recv();
        Ok(Self { shared, thread: Mutex::new(Some(thread)), tls, pid: std::process::id() })
    }

    /// Stops accepting for good and closes the engine's copies of the listening
    /// sockets. Open connections are served on.
    pub fn pause_accept(&self) {
        self.shared.pause_accept();
    }

    /// Reads the files of the certificates again.
    pub fn reload_certificates(&self) {
        self.tls.iter().for_each(|listener| listener.reload());
    }

    /// Has clients that come back to an event stream answered by this; the first one stays.
    pub fn set_resumer(&self, resumer: Arc<dyn Resumer>) {
        let _ = self.shared.resumer.set(resumer);
    }

    /// What the worker shows on the scoreboard, for others that write there.
    pub fn gauges(&self) -> Option<OwnGauges> {
        self.shared.config.shown()
    }

    /// The counters so far.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let budget = &shared.exchanges.budget;
        shared.counters.snapshot(shared.connections(), shared.requests_total(), budget)
    }
}

impl chaton_core::engine::Engine for Engine {
    /// Stops accepting. Responses from now on end their connection, and an idle
    /// connection is closed `drain_idle` after its last response.
    fn quiet(&self) -> usize {
        self.shared.start_drain();
        0
    }

    /// Waits until no connection is left, and none will come.
    fn wait_idle(&self, timeout: Duration) -> bool {
        self.shared.all_closed.wait(timeout, || self.shared.is_idle())
    }

    fn interrupt_wait(&self) {
        self.shared.all_closed.interrupt();
    }

    /// Answers 503 to requests whose response has not begun; the threads of those
    /// that run go on.
    fn give_up(&self) -> Released {
        let waiting = self.shared.feed.take_waiting();
        self.shared.give_up();
        let released = Released { waiting: waiting.len(), running: Vec::new() };
        waiting.into_iter().for_each(Exchange::shed);
        released
    }

    /// Closes every connection and ends the IO thread.
    fn stop(&self) {
        self.shared.start_stop();
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }

    fn stats_json(&self) -> String {
        serde_json::to_string(&self.stats()).unwrap_or_default()
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        // In a forked child the thread does not exist: joining would wait forever.
        if self.pid == std::process::id() {
            self.stop();
        }
    }
}

fn runtime(shared: &Arc<ServerState>) -> io::Result<Runtime> {
    let (before, after) = (Arc::clone(shared), Arc::clone(shared));
    Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .event_interval(EVENT_INTERVAL)
        .max_blocking_threads(DISK_THREADS_MAX)
        .on_thread_park(move || before.before_sleep())
        .on_thread_unpark(move || after.after_sleep())
        .build()
}

fn acceptors(
    runtime: &Runtime,
    shared: &Arc<ServerState>,
    listeners: Vec<Listener>,
) -> Result<Vec<Acceptor>, Error> {
    let _context = runtime.enter();
    let config = &shared.config;
    let shared_secret = config.scoreboard.as_ref().map(|scoreboard| scoreboard.secret());
    let tickets = TicketSecret::new(shared_secret, config.tls_ticket);
    let mut acceptors = Vec::with_capacity(listeners.len());
    for (index, mut listener) in listeners.into_iter().enumerate() {
        let label = listener.label.clone();
        let failed = |error| Error::new(format!("can't serve {label}"), error);
        let load = |settings| {
            let settings = TlsSettings { http2: config.http2, ..settings };
            let gauges = config.shown();
            TlsListener::load(label.clone(), settings, tickets, config.tls_reload, gauges)
        };
        let tls = listener.tls.take().map(load).transpose().map_err(failed)?.map(Arc::new);
        let socket = prepare(listener).map_err(failed)?;
        shared.acceptor_started();
        acceptors.push(Acceptor {
            shared: Arc::clone(shared),
            index,
            label,
            socket,
            tls,
            failing: false,
        });
    }
    Ok(acceptors)
}

fn prepare(listener: Listener) -> io::Result<AsyncFd<OwnedFd>> {
    socket::set_nonblocking(&listener.fd)?;
    if listener.kind == ListenerKind::Tcp {
        socket::set_nodelay(&listener.fd)?;
    }
    socket::watch(listener.fd, Interest::READABLE)
}

/// The IO thread's own task, which other threads wake to stop the engine.
async fn supervise(shared: &Arc<ServerState>) {
    poll_fn(|cx| {
        shared.exchanges.set_io_waker(Some(cx.waker().clone()));
        if shared.is_stopping() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
