//! One connection: made when it is first needed and again after each failure;
//! sends a pipeline of commands and reads their answers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::address::Address;
use super::link::{Link, Ready, Wake};
use super::resp::{Pack, Value};
use super::scripts::{Script, SCRIPTS};
use super::stream::Stream;
use crate::store::{Result, StoreError};

/// Oldest server that is spoken to.
const OLDEST: (u32, u32) = (6, 2);
/// First one whose scripts say what they need (`#!lua flags=`).
const SHEBANG: u32 = 7;
/// A connection that was used within this time is taken to be there still.
const FRESH: Duration = Duration::from_millis(1);
/// What is the same for all connections of a kit.
pub struct Shared {
    /// Where the server is.
    pub address: Address,
    /// What the operator should know of the server; filled at first contact.
    pub warning: Mutex<Option<String>>,
}

/// One connection.
pub struct Conn {
    shared: Arc<Shared>,
    tracking: bool,
    live: Option<Live>,
}

struct Live {
    stream: Stream,
    used: Instant,
    /// Names of [`SCRIPTS`], in their order.
    shas: Vec<Vec<u8>>,
    scripts: Vec<String>,
}

impl Conn {
    /// One that is not yet made. `tracking`: the server says when a key that
    /// was read here changes.
    pub fn new(shared: Arc<Shared>, tracking: bool) -> Self {
        Self { shared, tracking, live: None }
    }

    /// What is the same for all connections of the kit.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Whether it is made.
    pub fn is_live(&self) -> bool {
        self.live.is_some()
    }

    /// Connects if it is not yet, or if the server ended the connection while
    /// nobody used it (it was restarted, or its `timeout` is set): nothing was
    /// sent that could have been lost. A call of a script needs its name first.
    pub fn ensure(&mut self) -> Result<()> {
        let idle = self.live.as_ref().filter(|live| live.used.elapsed() > FRESH);
        if idle.is_some_and(|live| live.stream.is_closed()) {
            self.live = None;
        }
        if self.live.is_none() {
            self.live = Some(self.connect()?);
        }
        Ok(())
    }

    /// Adds the head of a script's call to a pipeline; `args` words must follow.
    pub fn script<'p>(
        &mut self,
        pack: &'p mut Pack,
        script: Script,
        args: usize,
    ) -> Result<&'p mut Pack> {
        self.ensure()?;
        let live = self.live.as_ref().ok_or_else(|| self.lost("was closed"))?;
        Ok(pack.begin(args + 3).word("EVALSHA").word(&live.shas[script as usize]).word("0"))
    }

    /// Sends the commands and answers their replies, of which one may be an
    /// error. A script that the server has forgotten is loaded and sent again,
    /// alone: it has not run.
    ///
    /// # Errors
    /// When the connection failed; what of it ran is not known then.
    pub fn pipeline(&mut self, pack: &Pack) -> Result<Vec<Value>> {
        self.ensure()?;
        let mut replies = self.exchange(pack.bytes(), pack.len())?;
        let forgotten: Vec<usize> = (0..replies.len())
            .filter(|i| matches!(&replies[*i], Value::Error(e) if e.starts_with("NOSCRIPT")))
            .collect();
        if !forgotten.is_empty() {
            self.load()?;
            let bytes: Vec<u8> = forgotten.iter().flat_map(|i| pack.part(*i)).copied().collect();
            let again = self.exchange(&bytes, forgotten.len())?;
            for (index, reply) in forgotten.into_iter().zip(again) {
                replies[index] = reply;
            }
        }
        Ok(replies)
    }

    /// The same when any error fails the whole.
    pub fn run(&mut self, pack: &Pack) -> Result<Vec<Value>> {
        let replies = self.pipeline(pack)?;
        for reply in &replies {
            if let Value::Error(error) = reply {
                return Err(self.server_error(error));
            }
        }
        Ok(replies)
    }

    /// Runs commands between MULTI and EXEC: all or none.
    pub fn atomic(&mut self, pack: &Pack) -> Result<Vec<Value>> {
        let mut multi = Pack::new();
        multi.command(&[b"MULTI"]);
        multi.append(pack);
        multi.command(&[b"EXEC"]);
        let mut replies = self.pipeline(&multi)?;
        // Of the errors the first tells why; the last one only "aborted".
        for reply in &replies {
            if let Value::Error(error) = reply {
                return Err(self.server_error(error));
            }
        }
        let results = replies.pop().unwrap_or(Value::Nil).items();
        for result in &results {
            if let Value::Error(error) = result {
                return Err(self.server_error(error));
            }
        }
        Ok(results)
    }

    /// One command, one answer.
    pub fn one(&mut self, words: &[&[u8]]) -> Result<Value> {
        let mut pack = Pack::new();
        pack.command(words);
        Ok(self.run(&pack)?.pop().unwrap_or(Value::Nil))
    }

    /// Messages that came between answers, oldest first.
    pub fn pushes(&mut self) -> Vec<Vec<Value>> {
        self.live.as_mut().map(|live| std::mem::take(&mut live.stream.pushes)).unwrap_or_default()
    }

    /// Waits for a message that answers no command, or for `wake`.
    pub fn listen(&mut self, wake: &Wake, timeout: Duration) -> Result<Ready> {
        let answer_timeout = self.shared.address.answer_timeout;
        let Some(live) = self.live.as_mut() else { return Err(self.lost("was closed")) };
        let heard = live.stream.listen(wake, timeout, answer_timeout);
        heard.map_err(|e| self.fail(&e))
    }

    /// Sends a command whose answer only says that the server lives.
    pub fn ask(&mut self, words: &[&[u8]]) -> Result<()> {
        let mut pack = Pack::new();
        pack.command(words);
        let timeout = self.shared.address.answer_timeout;
        let Some(live) = self.live.as_mut() else { return Err(self.lost("was closed")) };
        live.stream.ask(pack.bytes(), timeout).map_err(|e| self.fail(&e))
    }

    /// Closes it: the next call makes it anew.
    pub fn close(&mut self) {
        self.live = None;
    }

    /// A server's error as ours.
    pub fn server_error(&self, error: &str) -> StoreError {
        super::failure::server(&self.shared.address, error)
    }

    fn exchange(&mut self, bytes: &[u8], replies: usize) -> Result<Vec<Value>> {
        let timeout = self.shared.address.answer_timeout;
        let Some(live) = self.live.as_mut() else { return Err(self.lost("was closed")) };
        live.used = Instant::now();
        live.stream.exchange(bytes, replies, timeout).map_err(|e| self.fail(&e))
    }

    fn fail(&mut self, error: &io::Error) -> StoreError {
        self.live = None;
        super::failure::broken(&self.shared.address, error)
    }

    fn lost(&self, why: &str) -> StoreError {
        StoreError::unavailable(format!("{}: the connection {why}", self.shared.address.shown))
    }

    fn load(&mut self) -> Result<()> {
        let mut pack = Pack::new();
        if let Some(live) = &self.live {
            for script in &live.scripts {
                pack.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
            }
        }
        for reply in self.exchange(pack.bytes(), pack.len())? {
            if let Value::Error(error) = reply {
                return Err(self.server_error(&error));
            }
        }
        Ok(())
    }

    fn connect(&self) -> Result<Live> {
        let address = &self.shared.address;
        let unreachable = |e: io::Error| super::failure::unreachable(address, &e);
        let link = Link::connect(address).map_err(unreachable)?;
        let (stream, used) = (Stream::new(link), Instant::now());
        let mut live = Live { stream, used, shas: Vec::new(), scripts: Vec::new() };
        let hello = self.hello();
        let timeout = address.answer_timeout.min(address.connect_timeout);
        let mut replies = live
            .stream
            .exchange(hello.bytes(), hello.len(), timeout)
            .map_err(unreachable)?
            .into_iter();
        let version = self.check_hello(replies.next().unwrap_or(Value::Nil))?;
        if let Some(Value::Error(error)) = replies.next() {
            return Err(self.server_error(&error));
        }
        self.check_policy(replies.next().unwrap_or(Value::Nil));
        if self.tracking {
            if let Some(Value::Error(error)) = replies.next() {
                return Err(self.server_error(&error));
            }
            return Ok(live);
        }
        live.scripts = SCRIPTS.iter().map(|parts| parts.text(version.0 >= SHEBANG)).collect();
        let mut pack = Pack::new();
        for script in &live.scripts {
            pack.command(&[b"SCRIPT", b"LOAD", script.as_bytes()]);
        }
        for reply in live
            .stream
            .exchange(pack.bytes(), pack.len(), address.answer_timeout)
            .map_err(unreachable)?
        {
            match reply {
                Value::Bulk(sha) => live.shas.push(sha),
                Value::Error(error) => return Err(self.server_error(&error)),
                _ => return Err(self.lost("gave a script no name")),
            }
        }
        Ok(live)
    }

    fn hello(&self) -> Pack {
        let address = &self.shared.address;
        let mut pack = Pack::new();
        match &address.password {
            Some(password) => pack.command(&[
                b"HELLO",
                b"3",
                b"AUTH",
                address.user().as_bytes(),
                password.as_bytes(),
                b"SETNAME",
                b"chaton",
            ]),
            None => pack.command(&[b"HELLO", b"3", b"SETNAME", b"chaton"]),
        };
        pack.begin(2).word("SELECT").number(address.db);
        pack.command(&[b"INFO", b"memory"]);
        if self.tracking {
            pack.command(&[b"CLIENT", b"TRACKING", b"ON"]);
        }
        pack
    }

    /// The server's version, if it is one that will do.
    fn check_hello(&self, hello: Value) -> Result<(u32, u32)> {
        let shown = &self.shared.address.shown;
        if let Value::Error(error) = &hello {
            return Err(super::failure::hello(&self.shared.address, error));
        }
        let mut version = String::new();
        for (key, value) in hello.pairs() {
            match key.text().as_str() {
                "version" => version = value.text(),
                "mode" if value == Value::Bulk(b"cluster".to_vec()) => {
                    return Err(StoreError::refused(format!(
                        "{shown}: Redis Cluster is not supported, since a job moves between \
                         keys of several slots; use one server, with replicas if need be"
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

    fn check_policy(&self, info: Value) {
        let info = info.text();
        let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:"));
        *self.shared.warning.lock() = match policy.map(str::trim) {
            None | Some("noeviction") => None,
            Some(policy) => Some(format!(
                "{}: maxmemory-policy is {policy}: a full server will throw jobs away; \
                 set it to noeviction",
                self.shared.address.shown
            )),
        };
    }
}
