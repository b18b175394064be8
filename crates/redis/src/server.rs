//! The server that connections are made to, and the sentinels that know where it is and report when there is
//! another one.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use chaton_core::event_fd::{wait_for_any, EventFd};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};

use crate::address::{Endpoint, RedisAddress, SentinelOptions};
use crate::error::{Result, StoreError, StoreErrorKind};
use crate::errors;
use crate::resp::{Pipeline, RespValue};
use crate::resp_stream::RespStream;
use crate::transport::{PollResult, Transport};

/// The channels on which a sentinel reports a new primary. The one that carries out a failover names it when
/// it is promoted, and switches seconds later, when it has told the other replicas.
const SWITCHES: [&[u8]; 2] = [b"+switch-master", b"+promoted-slave"];
/// Silence after which a sentinel that is listened to is asked for a PONG.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Pause before another sentinel is listened to.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

/// Least time between two questions to sentinels whether a primary without replicas was replaced. A planned
/// failover takes a second or two, and each question is a connection.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What all connections to one server share.
pub struct ServerHandle {
    /// Where the server is.
    pub address: RedisAddress,
    /// A warning about the server's settings, set by each connect.
    pub warning: Mutex<Option<String>>,
    /// How often the server said that it cannot be used now: it is a replica, or it loads. Connections
    /// that were made before are closed, so that the next ones look the address up anew.
    pub departures: AtomicU64,
    /// Ends the waits of watches when the server is left.
    watches: Mutex<Vec<Weak<EventFd>>>,
    /// Index of the sentinel that answered last; it is asked first.
    pub sentinel: AtomicUsize,
    /// The primary that sentinels named to the last connection since the last departure.
    primary: Mutex<Option<Endpoint>>,
    /// When they were last asked because it lacks replicas; held while they are.
    asked: Mutex<Option<Instant>>,
    /// Begins with the first connection; only with sentinels.
    switches: Mutex<Option<SwitchListener>>,
    /// Whether threads may be started.
    forks: bool,
    /// Fails the calls that wait for a primary that was replaced; only with sentinels.
    pub cut: Mutex<Option<Arc<EventFd>>>,
}

impl ServerHandle {
    /// The server at this address, for a process that `forks` workers or does not.
    pub fn new(address: RedisAddress, forks: bool) -> Self {
        Self {
            cut: Mutex::new(new_cut(&address)),
            address,
            warning: Mutex::new(None),
            departures: AtomicU64::new(0),
            watches: Mutex::default(),
            sentinel: AtomicUsize::new(0),
            primary: Mutex::new(None),
            asked: Mutex::new(None),
            switches: Mutex::new(None),
            forks,
        }
    }

    /// Where a new connection is made to. With sentinels, a process that has a connection also listens to
    /// one of them.
    pub fn endpoint(self: &Arc<Self>) -> Result<Endpoint> {
        let Some(options) = &self.address.sentinel else {
            return Ok(self.address.endpoints[0].clone());
        };
        let found = find_primary(self, options)?;
        // The switch was not heard of.
        if self.is_left_by(&found) {
            self.leave(self.departures.load(Ordering::Relaxed));
        }
        *self.primary.lock() = Some(found.clone());
        let mut switches = self.switches.lock();
        if switches.is_none() && !self.forks {
            *switches = SwitchListener::start(self);
        }
        Ok(found)
    }

    /// Whether sentinels know another primary than the one that refuses writes for want of replicas. Of many
    /// refusals one asks; the others are refused.
    pub fn is_replaced(&self) -> bool {
        let Some(options) = &self.address.sentinel else { return false };
        let Some(mut asked) = self.asked.try_lock() else { return false };
        if asked.is_some_and(|at| at.elapsed() < ASK_AGAIN) {
            return false;
        }
        let found = find_primary(self, options);
        *asked = Some(Instant::now());
        found.is_ok_and(|primary| self.is_left_by(&primary))
    }

    /// Whether sentinels named another primary than this one to the last connection.
    fn is_left_by(&self, primary: &Endpoint) -> bool {
        self.primary.lock().as_ref().is_some_and(|last| last != primary)
    }

    /// Ends all connections, also those whose call waits for the old primary, since this is the new one; not
    /// again if the last connection was made to it.
    pub fn leave_primary_for(&self, new: &Endpoint) {
        if self.primary.lock().as_ref() == Some(new) {
            return;
        }
        let cut = std::mem::replace(&mut *self.cut.lock(), new_cut(&self.address));
        self.leave(self.departures.load(Ordering::Relaxed));
        cut.iter().for_each(|cut| cut.notify());
    }

    /// Leaving the server ends the waits for this event, too.
    pub fn add_watch(&self, interrupt: &Arc<EventFd>) {
        let mut watches = self.watches.lock();
        watches.retain(|watch| watch.strong_count() > 0);
        watches.push(Arc::downgrade(interrupt));
    }

    /// Ends all connections that were made since `departures` departures. If another thread was
    /// first, they have ended already.
    pub fn leave(&self, departures: u64) {
        let (all, next) = (&self.departures, departures + 1);
        if all.compare_exchange(departures, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            *self.primary.lock() = None;
            self.watches.lock().iter().filter_map(Weak::upgrade).for_each(|watch| watch.notify());
        }
    }
}

fn new_cut(address: &RedisAddress) -> Option<Arc<EventFd>> {
    address.sentinel.as_ref().and_then(|_| EventFd::new().ok().map(Arc::new))
}

/// The primary's address by the first sentinel that knows it. The sentinel that answered last is
/// asked first. All of them share the time to connect.
///
/// # Errors
/// When none knows it: the last error that may pass, if there is one.
pub fn find_primary(server: &ServerHandle, options: &SentinelOptions) -> Result<Endpoint> {
    Ok(first_answer(server, options, false)?.1)
}

fn first_answer(
    server: &ServerHandle,
    options: &SentinelOptions,
    listen: bool,
) -> Result<(RespStream, Endpoint)> {
    let count = server.address.endpoints.len();
    let first = server.sentinel.load(Ordering::Relaxed);
    let mut failure: Option<StoreError> = None;
    for index in (first..first + count).map(|index| index % count) {
        match ask(server, options, &server.address.endpoints[index], listen) {
            Ok(answer) => {
                server.sentinel.store(index, Ordering::Relaxed);
                return Ok(answer);
            }
            Err(error) if failure.is_none() || error.kind == StoreErrorKind::Unavailable => {
                failure = Some(error);
            }
            Err(_) => {}
        }
    }
    Err(failure.unwrap_or_else(|| StoreError::refused("the address names no sentinel")))
}

/// With `listen` the connection also reports new primaries, from before the answer on.
fn ask(
    server: &ServerHandle,
    options: &SentinelOptions,
    sentinel: &Endpoint,
    listen: bool,
) -> Result<(RespStream, Endpoint)> {
    let address = &server.address;
    let timeout = reply_timeout(server);
    let unreachable = |e| errors::sentinel_unreachable(address, sentinel, &e);
    let transport = Transport::connect(address, sentinel, timeout).map_err(unreachable)?;
    let mut stream = RespStream::new(transport, None);
    let mut pipeline = Pipeline::new();
    match &options.password {
        Some(password) => {
            let user = options.username.as_deref().unwrap_or("default");
            pipeline.command(&[b"HELLO", b"3", b"AUTH", user.as_bytes(), password.as_bytes()])
        }
        None => pipeline.command(&[b"HELLO", b"3"]),
    };
    if listen {
        // Its replies are pushed messages.
        pipeline.command(&[b"SUBSCRIBE", SWITCHES[0], SWITCHES[1]]);
    }
    let name = options.primary.as_bytes();
    pipeline.command(&[b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name]);
    let mut replies = stream.exchange(pipeline.bytes(), 2, timeout).map_err(unreachable)?;
    if let Some(RespValue::Error(error)) = replies.iter().find(|r| matches!(r, RespValue::Error(_)))
    {
        return Err(errors::sentinel_refused(address, sentinel, error));
    }
    let found = replies.pop().unwrap_or(RespValue::Nil).items();
    match endpoint(sentinel, &found) {
        Some(primary) => Ok((stream, primary)),
        None => Err(errors::unknown_primary(address, sentinel, &options.primary)),
    }
}

/// The server at the host and port that a sentinel names.
fn endpoint(sentinel: &Endpoint, host_and_port: &[RespValue]) -> Option<Endpoint> {
    let [host, port] = host_and_port else { return None };
    Some(sentinel.sibling(host.clone().text(), u16::try_from(port.int()?).ok()?))
}

fn reply_timeout(server: &ServerHandle) -> Duration {
    server.address.connect_timeout / server.address.endpoints.len().max(1) as u32
}

/// Leaves the old primary as soon as a sentinel reports a new one: it may be cut off and answer
/// nobody, or answer us only. It listens on a thread that ends when this is dropped.
pub struct SwitchListener(Arc<EventFd>);

impl SwitchListener {
    /// `None` without sentinels, and where the system gives no descriptor or thread: connections
    /// then find the new primary when the old one refuses or fails.
    pub fn start(server: &Arc<ServerHandle>) -> Option<Self> {
        let options = server.address.sentinel.clone()?;
        let stop = Arc::new(EventFd::new().ok()?);
        let (server, ended) = (Arc::downgrade(server), stop.clone());
        let run = move || while listen(&server, &options, &ended).is_err() && !rest(&ended) {};
        chaton_core::thread::spawn("chaton switches", run).ok()?;
        Some(Self(stop))
    }
}

impl Drop for SwitchListener {
    fn drop(&mut self) {
        self.0.notify();
    }
}

/// Whether the listener is to end; waits before it listens again.
fn rest(stop: &EventFd) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    wait_for_any(&mut fds, LISTEN_AGAIN).unwrap_or(true)
}

/// Listens to one sentinel until `stop` is notified, or nobody uses the server any more.
fn listen(server: &Weak<ServerHandle>, options: &SentinelOptions, stop: &EventFd) -> Result<()> {
    let Some(handle) = server.upgrade() else { return Ok(()) };
    let (mut stream, primary) = first_answer(&handle, options, true)?;
    let timeout = reply_timeout(&handle);
    // Reports may have been missed before.
    handle.leave_primary_for(&primary);
    drop(handle);
    let broken = |e: io::Error| StoreError::unavailable(e.to_string());
    let mut pinged = false;
    loop {
        for message in std::mem::take(&mut stream.pushes) {
            let found = new_primary(message, &options.primary);
            if let (Some((host, port)), Some(handle)) = (found, server.upgrade()) {
                handle.leave_primary_for(&handle.address.endpoints[0].sibling(host, port));
            }
        }
        let wait = if pinged { timeout } else { PING_EVERY };
        match stream.wait_for_push(&[stop.as_fd()], wait, timeout).map_err(broken)? {
            PollResult::Interrupted => return Ok(()),
            PollResult::Ready => pinged = false,
            PollResult::TimedOut if pinged => return Err(broken(io::ErrorKind::TimedOut.into())),
            PollResult::TimedOut => {
                let mut ping = Pipeline::new();
                stream.send(ping.command(&[b"PING"]).bytes(), timeout).map_err(broken)?;
                pinged = true;
            }
        }
    }
}

/// Host and port of the new primary that a message reports under this name. The texts are
/// `NAME OLD-HOST OLD-PORT HOST PORT` and `slave HOST:PORT HOST PORT @ NAME OLD-HOST OLD-PORT`.
fn new_primary(message: Vec<RespValue>, name: &str) -> Option<(String, u16)> {
    let mut words: Vec<String> = message.into_iter().map(RespValue::text).collect();
    let text = words.pop().filter(|_| words.first().is_some_and(|kind| kind == "message"))?;
    let words: Vec<&str> = text.split(' ').collect();
    let (host, port) = match words[..] {
        [of, _, _, host, port] if of == name => (host, port),
        ["slave", _, host, port, "@", of, ..] if of == name => (host, port),
        _ => return None,
    };
    Some((host.into(), port.parse().ok()?))
}
