//! Sentinels: servers that know where the primary is, and report when there is another one.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use chaton_core::event_fd::EventFd;
use rustix::event::{PollFd, PollFlags};

use super::connection::ServerHandle;
use super::errors;
use super::redis_address::{Endpoint, SentinelOptions};
use super::resp::{Pipeline, RespValue};
use super::resp_stream::RespStream;
use super::transport::{PollResult, Transport};
use crate::store::error::{StoreError, StoreErrorKind};
use crate::store::poll::wait_for_any;
use crate::store::traits::Result;

/// The channels on which a sentinel reports a new primary. The one that carries out a failover names it when
/// it is promoted, and switches seconds later, when it has told the other replicas.
const SWITCHES: [&[u8]; 2] = [b"+switch-master", b"+promoted-slave"];
/// Silence after which a sentinel that is listened to is asked for a PONG.
const PING_EVERY: Duration = Duration::from_secs(10);
/// Pause before another sentinel is listened to.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);

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
        match stream.wait_for_push(stop, wait, timeout).map_err(broken)? {
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
