//! The processes of one supervisor share a connection that listens, and their heartbeats.
//!
//! The one that binds an abstract socket, whose name is the supervisor's, leads: its watch listens, tells the others by
//! that socket what was told, and writes the heartbeats that they send there, many in one statement. It keeps nobody alive
//! that sends none. When it dies, its socket is closed, which ends the others' waits, and one of them binds it at once. One
//! that leads but does not answer (it is stopped, say) is left alone for a while: each of the others listens and sends its
//! heartbeats by itself, as do processes without a supervisor.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_core::clock::boot_ns;
use parking_lot::Mutex;
use rustix::net::{sockopt, AddressFamily, SocketFlags, SocketType};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, Lines};
use tokio::sync::{broadcast, mpsc, oneshot, Notify, Semaphore};
use tokio_postgres::Client;

use super::connection::args;
use super::owners::{beats, read_beat, Beat, BeatReply, BEAT};
use crate::store::line::LOOK_S;
use crate::store::options::StoreOptions;

/// Longest wait for an answer of the one that leads: more than a slow statement takes, less than a lease.
const ANSWER_MAX: Duration = Duration::from_secs(2);
/// Longest wait until it has read what it is asked: nothing but a process that is stopped, or a starved machine, takes so long.
const READ_MAX: Duration = Duration::from_millis(500);
/// Time without the others after that.
const ALONE: Duration = Duration::from_secs(30);
/// How long heartbeats are collected. Those of a tree come about at once, since each begins with the last answer.
const COLLECT: Duration = Duration::from_millis(30);
/// Connections that are served at once, two for each process: further ones wait.
const MEMBERS_MAX: usize = 512;
/// Notifications that a slow member may be behind; beyond, it learns that anything may have changed.
const BEHIND_MAX: usize = 256;
/// Longest line: a heartbeat with the documents of all running jobs.
const LINE_MAX: u64 = 64 << 20;
/// How often one tries to lead or to find who does, and the mean pause between.
const TRIES: u32 = 5;
const TRY_PAUSE: Duration = Duration::from_millis(10);
/// Longest time without a look for jobs of which no notification has come, as it is for a process that listens.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });
/// What a member sends to be told of changes.
const WATCH: &str = "watch";
/// What the one that leads says when it has read a line.
const READ: &[u8; 3] = b"ok\n";

/// What a process knows of its tree.
pub(super) struct Tree {
    /// Tells the process from the others.
    pub id: u64,
    state: Mutex<State>,
    /// The watch should choose anew whom it asks.
    pub changed: Notify,
}

#[derive(Default)]
struct State {
    name: Option<String>,
    alone_until: Option<Instant>,
}

/// The role of a watch.
pub(super) enum Role {
    Leads(UnixListener),
    Follows(UnixStream),
    Alone,
}

impl Default for Tree {
    fn default() -> Self {
        Self { id: fastrand::u64(..), state: Mutex::default(), changed: Notify::new() }
    }
}

impl Tree {
    /// Notes where the process is (see `ProcessReport::process_key`): that names its supervisor.
    pub fn note(&self, place: &str, options: &StoreOptions) {
        let parts: Vec<&str> = place.split(' ').collect();
        let [boot, namespace, _, _, parent, started, ..] = parts[..] else { return };
        let name = (parent != "0").then(|| {
            let mut hash = DefaultHasher::new();
            (boot, namespace, parent, started, &options.url, &options.listen).hash(&mut hash);
            format!("chaton-jobs-{:016x}", hash.finish())
        });
        let mut state = self.state.lock();
        if state.name != name {
            state.name = name;
            self.changed.notify_one();
        }
    }

    /// The name of the socket; `None`: the process does without the others.
    pub fn name(&self) -> Option<String> {
        let state = self.state.lock();
        state.name.clone().filter(|_| state.alone_until.is_none_or(|until| until <= Instant::now()))
    }

    /// Does without the others for a while.
    fn leave(&self) {
        self.state.lock().alone_until = Some(Instant::now() + ALONE);
        self.changed.notify_one();
    }

    /// Leads, or finds who does.
    pub fn meet(&self, name: &str) -> Role {
        for _ in 0..TRIES {
            let bound = SocketAddr::from_abstract_name(name);
            match bound.and_then(|address| UnixListener::bind_addr(&address)) {
                Ok(socket) => return Role::Leads(socket),
                Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                Err(_) => break,
            }
            match watch(name) {
                Ok(stream) => return Role::Follows(stream),
                Err(error) if is_late(&error) => break,
                Err(_) => std::thread::sleep(TRY_PAUSE.mul_f64(2.0 * fastrand::f64())),
            }
        }
        self.leave();
        Role::Alone
    }

    /// Sends a heartbeat by the one that leads; `None`: it has to be written without it.
    pub fn beat(&self, beat: &Beat) -> Option<BeatReply> {
        let name = self.name()?;
        let send = || -> std::io::Result<BeatReply> {
            let stream = ask(&name, &serde_json::to_string(beat)?)?;
            sockopt::set_socket_timeout(&stream, sockopt::Timeout::Recv, Some(ANSWER_MAX))?;
            let mut answer = String::new();
            BufReader::new(stream.take(LINE_MAX)).read_line(&mut answer)?;
            Ok(serde_json::from_str(&answer)?)
        };
        let asked = send();
        if asked.as_ref().is_err_and(is_late) {
            self.leave();
        }
        asked.ok()
    }
}

fn is_late(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// A connection to a process of the same user. No call on it blocks for longer than [`READ_MAX`], nor does this one.
fn connect(name: &str) -> std::io::Result<UnixStream> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    for kind in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
        sockopt::set_socket_timeout(&socket, kind, Some(READ_MAX))?;
    }
    let address = rustix::net::SocketAddrUnix::new_abstract_name(name.as_bytes())?;
    rustix::net::connect(&socket, &address)?;
    if sockopt::socket_peercred(&socket)?.uid.as_raw() != own_uid() {
        return Err(ErrorKind::TimedOut.into());
    }
    Ok(socket.into())
}

fn own_uid() -> u32 {
    // SAFETY: it has no arguments and cannot fail.
    unsafe { libc::geteuid() }
}

/// A connection on which the one that leads has read this line.
fn ask(name: &str, line: &str) -> std::io::Result<UnixStream> {
    let mut stream = connect(name)?;
    stream.write_all(format!("{line}\n").as_bytes())?;
    stream.read_exact(&mut [0; READ.len()])?;
    Ok(stream)
}

/// A connection by which changes are told.
fn watch(name: &str) -> std::io::Result<UnixStream> {
    let stream = ask(name, WATCH)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// The names of queues that the one that leads tells, as they come; `None`: it has ended.
pub(super) async fn told(
    lines: &mut Lines<tokio::io::BufReader<tokio::net::UnixStream>>,
) -> Option<String> {
    let line = lines.next_line().await.ok().flatten()?;
    serde_json::from_str(&line).ok()
}

/// A heartbeat and whom to answer.
type Asked = (Beat, oneshot::Sender<BeatReply>);

/// Serves the other processes, by tasks of the runtime of the connection that listens. Returns where to tell changes.
pub(super) fn lead(
    socket: UnixListener,
    client: Arc<Client>,
    timeout: Duration,
    id: u64,
) -> std::io::Result<broadcast::Sender<String>> {
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UnixListener::from_std(socket)?;
    let tells = broadcast::channel(BEHIND_MAX).0;
    let (beats, asked) = mpsc::channel(MEMBERS_MAX);
    tokio::spawn(write_beats(asked, client.clone(), timeout, id));
    tokio::spawn(look(client, tells.clone()));
    let told = tells.clone();
    tokio::spawn(async move {
        let room = Arc::new(Semaphore::new(MEMBERS_MAX));
        while let Ok(permit) = room.clone().acquire_owned().await {
            let Ok((stream, _)) = socket.accept().await else {
                // Descriptors are used up, say.
                tokio::time::sleep(TRY_PAUSE).await;
                continue;
            };
            if stream.peer_cred().is_ok_and(|peer| peer.uid() == own_uid()) {
                let (beats, told) = (beats.clone(), told.clone());
                tokio::spawn(async move {
                    drop(serve(stream, beats, told).await);
                    drop(permit);
                });
            }
        }
    });
    Ok(tells)
}

async fn serve(
    stream: tokio::net::UnixStream,
    beats: mpsc::Sender<Asked>,
    told: broadcast::Sender<String>,
) -> std::io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut reader = tokio::io::BufReader::new(reader.take(LINE_MAX));
    let mut line = String::new();
    tokio::time::timeout(ANSWER_MAX, reader.read_line(&mut line)).await??;
    // Who watches misses no change after that.
    let mut changes = told.subscribe();
    writer.write_all(READ).await?;
    if line.trim_end() != WATCH {
        let beat = serde_json::from_str(&line)?;
        let (answer, answered) = oneshot::channel();
        drop(beats.send((beat, answer)).await);
        let Ok(reply) = answered.await else { return Ok(()) };
        return writer.write_all(format!("{}\n", serde_json::to_string(&reply)?).as_bytes()).await;
    }
    let mut rest = [0];
    loop {
        let name = tokio::select! {
            change = changes.recv() => match change {
                Ok(name) => name,
                Err(broadcast::error::RecvError::Lagged(_)) => String::new(),
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            },
            // It says nothing more: it has ended.
            _ = reader.read(&mut rest) => return Ok(()),
        };
        writer.write_all(format!("{}\n", serde_json::to_string(&name)?).as_bytes()).await?;
    }
}

/// Writes the heartbeats that come about at once, in one statement. Those that have waited for so long that their
/// process has written them by itself are left out. Without an answer a process writes its own.
async fn write_beats(
    mut asked: mpsc::Receiver<Asked>,
    client: Arc<Client>,
    timeout: Duration,
    id: u64,
) {
    while let Some(first) = asked.recv().await {
        tokio::time::sleep(COLLECT).await;
        let mut all = vec![first];
        while let (true, Ok(next)) = (all.len() < MEMBERS_MAX, asked.try_recv()) {
            all.retain(|(beat, _)| beat.identity != next.0.identity);
            all.push(next);
        }
        let late = ANSWER_MAX.as_nanos() as u64;
        all.retain(|(beat, _)| boot_ns().saturating_sub(beat.sent_ns) < late);
        let beats = beats(all.iter().map(|(beat, _)| beat));
        let written =
            tokio::time::timeout(timeout, client.query_typed(BEAT, args![beats, LOOK_S])).await;
        let Ok(Ok(rows)) = written else { continue };
        for (identity, reply) in rows.iter().map(|row| read_beat(row, id)) {
            if let Some(at) = all.iter().position(|(beat, _)| beat.identity == identity) {
                drop(all.swap_remove(at).1.send(reply));
            }
        }
    }
}

/// Tells from time to time that jobs wait, with no queue's name, since nobody was notified: the others look less often by
/// themselves.
async fn look(client: Arc<Client>, tells: broadcast::Sender<String>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let waiting = "SELECT 1 FROM chaton.queues k WHERE NOT paused
            AND EXISTS(SELECT 1 FROM chaton.jobs WHERE place=0 AND queue=k.name) LIMIT 1";
        if client.query_typed(waiting, &[]).await.is_ok_and(|rows| !rows.is_empty()) {
            drop(tells.send(String::new()));
        }
    }
}
