//! One connection, made at its first use and again after each failure. It sends
//! a pipeline of commands and reads their replies.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::address::RedisAddress;
use crate::error::{Result, StoreError};
use crate::errors;
use crate::resp::{Pipeline, RespValue};
use crate::resp_stream::RespStream;
use crate::scripts::ScriptSource;
use crate::server::ServerHandle;
use crate::transport::{PollResult, Transport};

/// Oldest supported server.
const OLDEST: (u32, u32) = (6, 2);
/// First version whose scripts declare flags (`#!lua flags=`).
const SHEBANG: u32 = 7;
/// How long a push waits for a replica to have it. One that is connected answers within a round trip.
const CONFIRM: Duration = Duration::from_secs(1);
/// A connection used within this time is not checked for a close.
const FRESH: Duration = Duration::from_millis(1);

/// One connection.
pub struct RedisConnection {
    server: Arc<ServerHandle>,
    tracking: bool,
    /// See [`RedisConnection::staying`].
    stays: bool,
    scripts: &'static [ScriptSource],
    open: Option<OpenConnection>,
    /// Connections made so far.
    made: u64,
}

struct OpenConnection {
    stream: RespStream,
    used: Instant,
    /// [`ServerHandle::departures`] when it was made.
    departures: u64,
    /// Whether the server refuses writes without a replica (`min-replicas-to-write`).
    needs_replicas: bool,
    /// Names of the scripts, in their order.
    shas: Vec<Vec<u8>>,
    scripts: Vec<String>,
}

impl RedisConnection {
    /// A connection for commands and scripts. It does not connect yet.
    pub fn new(server: Arc<ServerHandle>, scripts: &'static [ScriptSource]) -> Self {
        Self { server, tracking: false, stays: false, scripts, open: None, made: 0 }
    }

    /// A connection on which the server reports changes of keys that were read on it. It does not connect yet.
    pub fn tracking(server: Arc<ServerHandle>) -> Self {
        Self { tracking: true, ..Self::new(server, &[]) }
    }

    /// Only [`RedisConnection::ensure`] connects, no command: what the caller has found out about the server then is
    /// true for all that it sends. Another connection may be to a server that was started again, without its last data.
    pub fn staying(self) -> Self {
        Self { stays: true, ..self }
    }

    /// The server's address.
    pub fn address(&self) -> &RedisAddress {
        &self.server.address
    }

    /// A warning about the server's settings, such as an eviction policy that drops jobs.
    pub fn warning(&self) -> Option<String> {
        self.server.warning.lock().clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> u64 {
        self.made
    }

    /// Whether it is connected.
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Connects if it is not connected, if the server closed the idle connection (a restart, or its
    /// `timeout`), or if the server was left since. Nothing is in flight then.
    pub fn ensure(&mut self) -> Result<()> {
        let departures = self.server.departures.load(Ordering::Relaxed);
        let is_over = |open: &OpenConnection| {
            open.departures != departures || open.used.elapsed() > FRESH && open.stream.is_closed()
        };
        if self.open.as_ref().is_some_and(is_over) {
            self.open = None;
        }
        if self.open.is_none() {
            self.open = Some(self.connect()?);
            self.made += 1;
        }
        Ok(())
    }

    /// [`RedisConnection::ensure`], but for one that stays.
    fn ready(&mut self) -> Result<()> {
        match self.stays {
            true if self.open.is_none() => Err(self.lost("was closed")),
            true => Ok(()),
            false => self.ensure(),
        }
    }

    /// Adds the head of a script's call to a pipeline; `args` words must follow.
    /// Connects if needed, to know the script's name.
    pub fn script<'p>(
        &mut self,
        pipeline: &'p mut Pipeline,
        script: impl Into<usize>,
        args: usize,
    ) -> Result<&'p mut Pipeline> {
        self.ready()?;
        let open = self.open.as_ref().ok_or_else(|| self.lost("was closed"))?;
        Ok(pipeline.begin(args + 3).word("EVALSHA").word(&open.shas[script.into()]).word("0"))
    }

    /// Sends the commands and returns their replies, which may be errors. A server that cannot be used
    /// now (a replica, or one that loads) is left. If it ran nothing, the commands are sent once more,
    /// to the server that the address stands for by then, unless the connection stays.
    ///
    /// # Errors
    /// When the connection failed; it is not known which commands ran.
    pub fn pipeline(&mut self, pipeline: &Pipeline) -> Result<Vec<RespValue>> {
        let replies = self.send_all(pipeline)?;
        if !self.leave_unusable(&replies) || !nothing_ran(&replies) || self.stays {
            return Ok(replies);
        }
        let replies = self.send_all(pipeline)?;
        self.leave_unusable(&replies);
        Ok(replies)
    }

    /// Closes this connection, and at their next use all others to the server, if a reply says that
    /// the server cannot be used now, or lacks replicas because it was replaced.
    fn leave_unusable(&mut self, replies: &[RespValue]) -> bool {
        let unusable = match replies.iter().find_map(refusal) {
            None => false,
            Some(error) => !errors::lacks_replicas(error) || self.is_replaced(),
        };
        if let Some(open) = self.open.take_if(|_| unusable) {
            self.server.leave(open.departures);
        }
        unusable
    }

    fn is_replaced(&self) -> bool {
        let now = self.server.departures.load(Ordering::Relaxed);
        self.open.as_ref().is_some_and(|open| open.departures != now) || self.server.is_replaced()
    }

    /// A script that the server has forgotten did not run: it is loaded and called again.
    fn send_all(&mut self, pipeline: &Pipeline) -> Result<Vec<RespValue>> {
        self.ready()?;
        let mut replies = self.exchange(pipeline.bytes(), pipeline.len())?;
        let forgotten: Vec<usize> = (0..replies.len())
            .filter(|i| matches!(&replies[*i], RespValue::Error(e) if e.starts_with("NOSCRIPT")))
            .collect();
        if !forgotten.is_empty() {
            self.reload_scripts()?;
            let bytes: Vec<u8> =
                forgotten.iter().flat_map(|i| pipeline.command_bytes(*i)).copied().collect();
            let again = self.exchange(&bytes, forgotten.len())?;
            for (index, reply) in forgotten.into_iter().zip(again) {
                replies[index] = reply;
            }
        }
        Ok(replies)
    }

    /// Sends the commands; any error among the replies fails the whole.
    pub fn run(&mut self, pipeline: &Pipeline) -> Result<Vec<RespValue>> {
        let replies = self.pipeline(pipeline)?;
        replies.iter().try_for_each(|reply| self.check(reply))?;
        Ok(replies)
    }

    /// Runs commands between MULTI and EXEC: all or none.
    pub fn atomic(&mut self, pipeline: &Pipeline) -> Result<Vec<RespValue>> {
        let mut multi = Pipeline::new();
        multi.command(&[b"MULTI"]);
        multi.append(pipeline);
        multi.command(&[b"EXEC"]);
        let mut replies = self.pipeline(&multi)?;
        // The first error has the cause; the last one only says "aborted".
        replies.iter().try_for_each(|reply| self.check(reply))?;
        let results = replies.pop().unwrap_or(RespValue::Nil).items();
        results.iter().try_for_each(|result| self.check(result))?;
        Ok(results)
    }

    /// One command, one reply.
    pub fn one(&mut self, words: &[&[u8]]) -> Result<RespValue> {
        let mut pipeline = Pipeline::new();
        pipeline.command(words);
        Ok(self.run(&pipeline)?.pop().unwrap_or(RespValue::Nil))
    }

    /// Messages that the server pushed, oldest first.
    pub fn pushes(&mut self) -> Vec<Vec<RespValue>> {
        self.open.as_mut().map(|open| std::mem::take(&mut open.stream.pushes)).unwrap_or_default()
    }

    /// Waits for a pushed message, or until one of the `interrupts` can be read.
    pub fn wait_for_push(
        &mut self,
        interrupts: &[BorrowedFd<'_>],
        timeout: Duration,
    ) -> Result<PollResult> {
        let answer_timeout = self.server.address.answer_timeout;
        let Some(open) = self.open.as_mut() else { return Err(self.lost("was closed")) };
        let result = open.stream.wait_for_push(interrupts, timeout, answer_timeout);
        result.map_err(|e| self.fail(&e))
    }

    /// Sends a command whose reply is only awaited by [`RedisConnection::wait_for_push`].
    pub fn send(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut pipeline = Pipeline::new();
        pipeline.command(words);
        let timeout = self.server.address.answer_timeout;
        let Some(open) = self.open.as_mut() else { return Err(self.lost("was closed")) };
        open.stream.send(pipeline.bytes(), timeout).map_err(|e| self.fail(&e))
    }

    /// Waits until a replica has what this connection wrote, where the server's `min-replicas-to-write` asks for
    /// replicas. The server only refuses writes while it has none, and answers before they have a write: what it
    /// confirms at the moment of a failover would be lost.
    ///
    /// # Errors
    /// No replica has it in time: it may be stored, or lost.
    pub fn confirm(&mut self) -> Result<()> {
        if !self.open.as_ref().is_some_and(|open| open.needs_replicas) {
            return Ok(());
        }
        let mut pipeline = Pipeline::new();
        pipeline.begin(3).word("WAIT").number(1).number(CONFIRM.as_millis() as u64);
        let reply = self.exchange(pipeline.bytes(), 1)?.pop().unwrap_or(RespValue::Nil);
        // A user without the right to wait is answered as before.
        if matches!(&reply, RespValue::Error(error) if error.starts_with("NOPERM")) {
            return Ok(());
        }
        self.check(&reply)?;
        if reply.count() > 0 {
            return Ok(());
        }
        let why = format!("no replica has confirmed a push within {} s", CONFIRM.as_secs());
        Err(StoreError {
            in_doubt: true,
            ..StoreError::unavailable(format!("{}: {why}", self.server.address.shown))
        })
    }

    /// Closes it; the next call connects again.
    pub fn close(&mut self) {
        self.open = None;
    }

    /// An error reply of the server.
    pub fn server_error(&self, error: &str) -> StoreError {
        errors::server(&self.server.address, error)
    }

    fn exchange(&mut self, bytes: &[u8], replies: usize) -> Result<Vec<RespValue>> {
        let timeout = self.server.address.answer_timeout;
        let Some(open) = self.open.as_mut() else { return Err(self.lost("was closed")) };
        open.used = Instant::now();
        open.stream.exchange(bytes, replies, timeout).map_err(|e| self.fail(&e))
    }

    fn fail(&mut self, error: &io::Error) -> StoreError {
        self.open = None;
        StoreError { in_doubt: true, ..errors::broken(&self.server.address, error) }
    }

    fn lost(&self, why: &str) -> StoreError {
        StoreError::unavailable(format!("{}: the connection {why}", self.server.address.shown))
    }

    fn reload_scripts(&mut self) -> Result<()> {
        let load = self.open.as_ref().map(|open| load_commands(&open.scripts)).unwrap_or_default();
        self.exchange(load.bytes(), load.len())?.iter().try_for_each(|reply| self.check(reply))
    }

    fn check(&self, reply: &RespValue) -> Result<()> {
        match reply {
            RespValue::Error(error) => Err(self.server_error(error)),
            _ => Ok(()),
        }
    }

    fn connect(&self) -> Result<OpenConnection> {
        let address = &self.server.address;
        // Read before connecting: a departure in between closes this connection, too.
        let cut = self.server.cut.lock().clone();
        let departures = self.server.departures.load(Ordering::Relaxed);
        let endpoint = self.server.endpoint()?;
        let unreachable = |e: io::Error| errors::unreachable(address, &e);
        let link = Transport::connect(address, &endpoint, address.connect_timeout);
        let (stream, used) = (RespStream::new(link.map_err(unreachable)?, cut), Instant::now());
        let (shas, scripts) = (Vec::new(), Vec::new());
        let needs_replicas = false;
        let mut open = OpenConnection { stream, used, departures, needs_replicas, shas, scripts };
        let hello = self.hello();
        let timeout = address.answer_timeout.min(address.connect_timeout);
        let mut replies = open
            .stream
            .exchange(hello.bytes(), hello.len(), timeout)
            .map_err(unreachable)?
            .into_iter();
        let version = self.check_hello(replies.next().unwrap_or(RespValue::Nil))?;
        replies.next().map_or(Ok(()), |selected| self.check(&selected))?;
        self.check_eviction_policy(replies.next().unwrap_or(RespValue::Nil));
        if self.tracking {
            replies.next().map_or(Ok(()), |tracked| self.check(&tracked))?;
            return Ok(open);
        }
        // The line is only there where the setting is.
        let replication = replies.next().unwrap_or(RespValue::Nil).text();
        open.needs_replicas = replication.contains("\nmin_slaves_good_slaves:");
        open.scripts =
            self.scripts.iter().map(|script| script.text(version.0 >= SHEBANG)).collect();
        let load = load_commands(&open.scripts);
        let shas = open.stream.exchange(load.bytes(), load.len(), address.answer_timeout);
        for sha in shas.map_err(unreachable)? {
            self.check(&sha)?;
            open.shas.push(sha.bytes());
        }
        Ok(open)
    }

    fn hello(&self) -> Pipeline {
        let address = &self.server.address;
        let mut pipeline = Pipeline::new();
        match &address.password {
            Some(password) => pipeline.command(&[
                b"HELLO",
                b"3",
                b"AUTH",
                address.user().as_bytes(),
                password.as_bytes(),
                b"SETNAME",
                b"chaton",
            ]),
            None => pipeline.command(&[b"HELLO", b"3", b"SETNAME", b"chaton"]),
        };
        pipeline.begin(2).word("SELECT").number(address.db);
        pipeline.command(&[b"INFO", b"memory"]);
        if self.tracking {
            pipeline.command(&[b"CLIENT", b"TRACKING", b"ON"]);
        } else {
            pipeline.command(&[b"INFO", b"replication"]);
        }
        pipeline
    }

    /// The server's version, if it is supported and takes writes.
    fn check_hello(&self, hello: RespValue) -> Result<(u32, u32)> {
        let shown = &self.server.address.shown;
        if let RespValue::Error(error) = &hello {
            return Err(errors::hello(&self.server.address, error));
        }
        let mut version = String::new();
        for (key, value) in hello.pairs() {
            match key.text().as_str() {
                "version" => version = value.text(),
                // HELLO says what ROLE says, and every user may send it.
                "role" if value == RespValue::Bulk(b"replica".to_vec()) => {
                    return Err(errors::replica(&self.server.address))
                }
                "mode" if value == RespValue::Bulk(b"cluster".to_vec()) => {
                    return Err(StoreError::refused(format!(
                        "{shown}: Redis Cluster is not supported, since a script changes \
                         keys of several slots; use one server, with replicas if need be"
                    )))
                }
                "mode" if value == RespValue::Bulk(b"sentinel".to_vec()) => {
                    return Err(StoreError::refused(format!(
                        "{shown}: this is a sentinel; write redis+sentinel://HOST:PORT,HOST:PORT/NAME/DB"
                    )))
                }
                _ => {}
            }
        }
        let mut numbers = version.split('.').map(|n| n.parse().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < OLDEST {
            return Err(StoreError::refused(format!(
                "{shown}: the server is version {version:?}; Redis {}.{} or newer, or Valkey, is needed",
                OLDEST.0, OLDEST.1
            )));
        }
        Ok(found)
    }

    fn check_eviction_policy(&self, info: RespValue) {
        let info = info.text();
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        *self.server.warning.lock() = match policy.map(str::trim) {
            None | Some("noeviction") => None,
            Some(policy) => Some(format!(
                "{}: maxmemory-policy is {policy}: a full server will throw data away; \
                 set it to noeviction",
                self.server.address.shown
            )),
        };
    }
}

/// The error with which the server refused a command because it cannot be used now. The reply to EXEC has
/// its errors within.
fn refusal(reply: &RespValue) -> Option<&str> {
    match reply {
        RespValue::Error(error) => errors::is_unusable(error).then_some(error),
        RespValue::Array(items) => items.iter().find_map(refusal),
        _ => None,
    }
}

/// Whether no command ran: all were refused, or EXEC was, for what came after MULTI.
fn nothing_ran(replies: &[RespValue]) -> bool {
    let is_error = |reply: &RespValue| matches!(reply, RespValue::Error(_));
    let aborted = |reply: &RespValue| matches!(reply, RespValue::Error(error) if error.starts_with("EXECABORT"));
    replies.last().is_some_and(aborted) || replies.iter().all(is_error)
}

fn load_commands(scripts: &[String]) -> Pipeline {
    let mut pipeline = Pipeline::new();
    for script in scripts {
        pipeline.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
    }
    pipeline
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use crate::AddressOptions;

    use super::*;

    static SCRIPTS: [ScriptSource; 1] = [ScriptSource { uses: &[], body: "return 1", adds: false }];
    const HELLO: &[u8] = b"%1\r\n$7\r\nversion\r\n$5\r\n7.2.0\r\n+OK\r\n$0\r\n\r\n$0\r\n\r\n";

    const SHA: &[u8] = b"$3\r\nsha\r\n";

    #[test]
    fn no_command_on_a_staying_connection_makes_another_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("redis://{}/0", listener.local_addr().unwrap());
        // The first connection is closed once it was greeted.
        let serving = thread::spawn(move || {
            for replies in [&[HELLO, SHA][..], &[HELLO, SHA, b"+PONG\r\n"]] {
                let (mut socket, _) = listener.accept().unwrap();
                for reply in replies {
                    assert!(socket.read(&mut [0; 4096]).unwrap() > 0);
                    socket.write_all(reply).unwrap();
                }
            }
        });
        let address = RedisAddress::read(AddressOptions::at(&url)).unwrap();
        let server = Arc::new(ServerHandle::new(address, false));
        let mut connection = RedisConnection::new(server, &SCRIPTS).staying();
        connection.ensure().unwrap();
        while !connection.open.as_ref().unwrap().stream.is_closed() {
            thread::sleep(FRESH);
        }
        assert!(connection.one(&[b"PING"]).is_err());
        assert!(connection.one(&[b"PING"]).is_err());
        assert_eq!(connection.connections(), 1);
        connection.ensure().unwrap();
        assert_eq!(connection.one(&[b"PING"]).unwrap().text(), "PONG");
        serving.join().unwrap();
    }
}
