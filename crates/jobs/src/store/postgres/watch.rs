//! Waits for changes: one connection that listens, or where there is none, looks from time to time.

use std::collections::BTreeSet;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncBufReadExt;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_postgres::Client;

use super::connection::{args, connect, hear, runtime, Mode, CHANNEL, PLANS};
use super::errors::{self, Failure, Phase};
use super::floors;
use super::jobs::available;
use super::server::Server;
use super::tree::{self, Role};
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};
use crate::store::StoreError;

/// Time between two looks without a connection that listens: half of it is the mean latency of a job then.
const POLL: Duration = Duration::from_millis(500);
/// Names of queues that are kept between two looks; more count as any change.
const NAMES_MAX: usize = 1000;

/// Longest wait of a process that another one tells of changes.
const FOLLOWER_MAX: Duration = Duration::from_secs(600);

/// What was told since the last look.
#[derive(Default)]
struct Told {
    queues: BTreeSet<String>,
    other: bool,
    /// The connection has ended.
    closed: Option<String>,
}

impl Told {
    fn is_any(&self) -> bool {
        self.closed.is_some() || self.other || !self.queues.is_empty()
    }
}

/// What the task of the connection shares with the thread that waits.
#[derive(Default)]
struct Mailbox {
    told: Mutex<Told>,
    arrived: Notify,
}

/// Where changes are told.
struct Listener {
    runtime: Runtime,
    /// The connection that listens; `None`: another process has it, or none listens.
    client: Option<Arc<Client>>,
    mailbox: Arc<Mailbox>,
    /// The name of the tree whose processes share it; `None`: it is alone.
    tree: Option<String>,
}

impl Listener {
    fn without_client(tree: Option<String>) -> errors::Result<Self> {
        Ok(Self { runtime: runtime()?, client: None, mailbox: Arc::default(), tree })
    }
}

impl Mailbox {
    /// A change of a queue, or of anything else (an empty name).
    fn tell(&self, name: &str) {
        let mut told = self.told.lock();
        match name {
            "" => told.other = true,
            _ if told.queues.len() == NAMES_MAX => told.other = true,
            name => drop(told.queues.insert(name.into())),
        }
        self.arrived.notify_one();
    }

    fn close(&self, why: String) {
        self.told.lock().closed = Some(why);
        self.arrived.notify_one();
    }
}

/// A watch of one server.
pub(super) struct PostgresWatch {
    server: Arc<Server>,
    listener: Option<Listener>,
    interrupt: Arc<Wake>,
    /// Jobs that were told may be below the floors.
    looks: bool,
    /// Nothing was told for so long that what was told may have been lost.
    doubts: bool,
}

struct Wake(Notify);

impl Interrupt for Wake {
    fn interrupt(&self) {
        self.0.notify_one();
    }
}

impl PostgresWatch {
    pub fn new(server: Arc<Server>) -> Self {
        let interrupt = Arc::new(Wake(Notify::new()));
        Self { server, listener: None, interrupt, looks: true, doubts: false }
    }

    /// When to look below the floors, if that is to be done.
    fn looks_at(&self) -> Option<Instant> {
        self.server.floors.lock().next_look().filter(|_| self.looks)
    }

    /// Listens, or is told by the process of this tree that does.
    fn join(&self, config: &tokio_postgres::Config) -> errors::Result<Listener> {
        let tree = &self.server.tree;
        let name = tree.name();
        let role = name.as_deref().map_or(Role::Alone, |name| tree.meet(name));
        let (socket, name) = match role {
            Role::Follows(stream) => return self.follow(stream, name),
            Role::Leads(socket) => (Some(socket), name),
            Role::Alone => (None, None),
        };
        Ok(Listener { tree: name, ..self.listen(config, socket)? })
    }

    fn listen(
        &self,
        config: &tokio_postgres::Config,
        socket: Option<UnixListener>,
    ) -> errors::Result<Listener> {
        let runtime = runtime()?;
        let timeout = self.server.options.connect_timeout;
        let connecting = connect(config, &self.server.address.tls, timeout);
        let (client, driver) = runtime.block_on(connecting)?;
        let client = Arc::new(client);
        let answer_timeout = self.server.options.answer_timeout;
        let entered = runtime.enter();
        let tells = socket
            .map(|socket| tree::lead(socket, client.clone(), answer_timeout, self.server.tree.id));
        let tells = tells.transpose().map_err(|error| {
            Failure::Store(StoreError::unavailable(format!("PostgreSQL: {error}")))
        })?;
        let mailbox = Arc::new(Mailbox::default());
        let (shared, server) = (mailbox.clone(), self.server.clone());
        runtime.spawn(async move {
            let ended = hear(driver, |name| {
                server.note_told(name);
                shared.tell(name);
                tells.iter().for_each(|all| drop(all.send(name.into())));
            });
            shared.close(ended.await);
        });
        // It has its server for itself: a bouncer that shares one cannot listen.
        let script = format!("LISTEN {CHANNEL}; {PLANS}");
        let listen = async { tokio::time::timeout(timeout, client.batch_execute(&script)).await };
        runtime.block_on(listen).map_err(|_| Failure::Late(Phase::Statement))??;
        drop(entered);
        Ok(Listener { runtime, client: Some(client), mailbox, tree: None })
    }

    /// Asks the server, on the connection that listens.
    fn ask(
        &self,
        (listener, client): (&Listener, &Client),
        names: &[&str],
        from: &[i64],
    ) -> errors::Result<Availability> {
        let sql = available(names);
        let asked = listener.runtime.block_on(async {
            let args = args![names, from];
            let asked = client.query_typed(&sql, args);
            tokio::time::timeout(self.server.options.answer_timeout, asked).await
        });
        let rows = asked.map_err(|_| Failure::Late(Phase::Statement))??;
        Ok(rows.first().map_or_else(Availability::default, read))
    }

    /// Is told of changes by the process that leads.
    fn follow(&self, stream: UnixStream, tree: Option<String>) -> errors::Result<Listener> {
        let listener = Listener::without_client(tree)?;
        let (shared, server) = (listener.mailbox.clone(), self.server.clone());
        let entered = listener.runtime.enter();
        let stream = tokio::net::UnixStream::from_std(stream).map_err(|error| {
            Failure::Store(StoreError::unavailable(format!("PostgreSQL: {error}")))
        })?;
        listener.runtime.spawn(async move {
            let mut lines = tokio::io::BufReader::new(stream).lines();
            while let Some(name) = tree::told(&mut lines).await {
                server.note_told(&name);
                shared.tell(&name);
            }
            shared.close("the process that listens has ended".into());
        });
        drop(entered);
        Ok(listener)
    }
}

fn read(row: &tokio_postgres::Row) -> Availability {
    Availability { ready: row.get(0), next_at: row.get(1) }
}

impl StoreWatch for PostgresWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        let server = self.server.clone();
        let shown = &server.address.shown;
        // Forgotten before the server is asked, so that a change after that ends the next wait.
        let old = self.listener.as_ref().map(|it| std::mem::take(&mut *it.mailbox.told.lock()));
        self.looks |= old.as_ref().is_none_or(Told::is_any);
        let closed = old.and_then(|old| old.closed);
        if let Some(listener) = &self.listener {
            let follows = listener.client.is_none();
            if closed.is_some() || listener.tree != server.tree.name() {
                self.listener = None;
            }
            // Where the one that led has ended, another one does.
            if let Some(why) = closed.filter(|_| !follows) {
                return Err(StoreError::unavailable(format!("store {shown}: {why}")));
            }
        }
        if self.listener.is_none() {
            // The tables are made by a connection of the pool.
            server.run(Mode::Single, |call| call.rows("SELECT 1", &[]))?;
            let joined = match &server.address.listen {
                Some(config) => self.join(config),
                None => Listener::without_client(server.tree.name()),
            };
            self.listener = Some(joined.map_err(|failure| failure.into_error(shown))?);
        }
        if self.looks_at().is_some_and(|at| at <= Instant::now()) {
            server.run(Mode::Single, |call| floors::look(call, &server.floors))?;
            self.looks = false;
        }
        let names: Vec<&str> = queues.iter().map(|name| &**name).collect();
        let from = server.floors.lock().of(&names);
        // `listen` may name another server than `store`, or another database.
        let doubts = std::mem::take(&mut self.doubts) && server.options.listen.is_some();
        if let Some(own) = self.listener.as_ref().and_then(|it| Some((it, it.client.as_deref()?))) {
            let asked = self.ask(own, &names, &from).map_err(|failure| failure.into_error(shown));
            if asked.is_err() {
                self.listener = None;
            }
            if asked.is_err() || !doubts {
                return asked;
            }
        }
        let sql = available(&names);
        server.run(Mode::Single, |call| {
            let row = call.one(&sql, args![names, from])?;
            Ok(row.as_ref().map_or_else(Availability::default, read))
        })
    }

    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent> {
        let interrupted = async {
            self.interrupt.0.notified().await;
            StoreEvent::Interrupted
        };
        // It is there once it was armed.
        let Some(listener) = &self.listener else { return Ok(StoreEvent::Timeout) };
        let arrived = async {
            loop {
                {
                    let mut told = listener.mailbox.told.lock();
                    if told.is_any() {
                        let queues = std::mem::take(&mut told.queues);
                        let other = std::mem::take(&mut told.other) || told.closed.is_some();
                        let queues = queues.into_iter().map(Arc::from).collect();
                        return StoreEvent::Changed { queues, other };
                    }
                }
                listener.mailbox.arrived.notified().await;
            }
        };
        let polls = self.server.address.listen.is_none() && timeout >= POLL;
        let is_long = timeout >= tree::LOOK_EVERY;
        // The one that leads looks for the others, too.
        let is_told = listener.client.is_none() && is_long;
        let timeout = match (polls, is_told) {
            (true, _) => POLL,
            (false, true) => FOLLOWER_MAX,
            (false, false) => timeout,
        };
        let looks = self.looks_at().map(|at| at.saturating_duration_since(Instant::now()));
        let looks = looks.filter(|looks| *looks < timeout);
        let timed = async {
            tokio::select! {
                () = tokio::time::sleep(looks.unwrap_or(timeout)) => {}
                () = self.server.tree.changed.notified() => return StoreEvent::Interrupted,
            }
            // To look below the floors is to be armed again.
            looks.map_or(StoreEvent::Timeout, |_| StoreEvent::Interrupted)
        };
        let event = listener.runtime.block_on(async {
            tokio::select! {
                biased;
                event = interrupted => event,
                event = arrived => event,
                event = timed => event,
            }
        });
        self.looks |= matches!(event, StoreEvent::Changed { .. });
        if event == StoreEvent::Timeout && (polls || is_long) {
            // To be armed again is one statement; to claim, after a time-out, is many.
            (self.looks, self.doubts) = (true, true);
            return Ok(StoreEvent::Interrupted);
        }
        Ok(event)
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.interrupt.clone()
    }
}
