//! Waits for changes: one connection that listens, or where there is none, looks from time to time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio_postgres::{AsyncMessage, Client};

use super::connection::{args, runtime, Mode, Server, CHANNEL, PLANS};
use super::errors::{Failure, Phase};
use super::floors;
use super::jobs::available;
use crate::store::error::StoreError;
use crate::store::traits::{Interrupt, Result, StoreWatch};
use crate::store::types::{Availability, StoreEvent};

/// Time between two looks without a connection that listens: half of it is the mean latency of a job then.
const POLL: Duration = Duration::from_millis(500);
/// Names of queues that are kept between two looks; more count as any change.
const NAMES_MAX: usize = 1000;

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

/// A connection that listens.
struct Listener {
    runtime: Runtime,
    client: Client,
    mailbox: Arc<Mailbox>,
}

/// A watch of one server.
pub(super) struct PostgresWatch {
    server: Arc<Server>,
    listener: Option<Listener>,
    /// Turns where nothing listens.
    idle: Option<Runtime>,
    interrupt: Arc<Wake>,
    /// Jobs that were told may be below the floors.
    looks: bool,
}

struct Wake(Notify);

impl Interrupt for Wake {
    fn interrupt(&self) {
        self.0.notify_one();
    }
}

impl PostgresWatch {
    pub fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            listener: None,
            idle: None,
            interrupt: Arc::new(Wake(Notify::new())),
            looks: true,
        }
    }

    /// When to look below the floors, if that is to be done.
    fn looks_at(&self) -> Option<Instant> {
        self.server.floors.lock().next_look().filter(|_| self.looks)
    }

    fn listen(&self, config: &tokio_postgres::Config) -> std::result::Result<Listener, Failure> {
        let runtime = runtime()?;
        let timeout = self.server.options.connect_timeout;
        let connecting = config.connect(self.server.address.tls.clone());
        let connected = runtime.block_on(async { tokio::time::timeout(timeout, connecting).await });
        let (client, mut driver) = connected.map_err(|_| Failure::Late(Phase::Connect))??;
        let mailbox = Arc::new(Mailbox::default());
        let shared = mailbox.clone();
        runtime.spawn(async move {
            loop {
                let message = std::future::poll_fn(|cx| driver.poll_message(cx)).await;
                let mut told = shared.told.lock();
                let ended = message.is_none();
                match message {
                    Some(Ok(AsyncMessage::Notification(one))) => match one.payload() {
                        "" => told.other = true,
                        _ if told.queues.len() == NAMES_MAX => told.other = true,
                        name => drop(told.queues.insert(name.into())),
                    },
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => told.closed = Some(error.to_string()),
                    None => {}
                }
                if ended && told.closed.is_none() {
                    told.closed = Some("the server closed the connection".into());
                }
                shared.arrived.notify_one();
                if told.closed.is_some() {
                    break;
                }
            }
        });
        // It has its server for itself: a bouncer that shares one cannot listen.
        let script = format!("LISTEN {CHANNEL}; {PLANS}");
        let listen = async { tokio::time::timeout(timeout, client.batch_execute(&script)).await };
        runtime.block_on(listen).map_err(|_| Failure::Late(Phase::Statement))??;
        Ok(Listener { runtime, client, mailbox })
    }

    /// Asks the server, on the connection that listens.
    fn ask(
        &self,
        listener: &Listener,
        names: &[&str],
        from: &[i64],
    ) -> std::result::Result<Availability, Failure> {
        let sql = available();
        let asked = listener.runtime.block_on(async {
            let args = args![names, from];
            let asked = listener.client.query_typed(&sql, args);
            tokio::time::timeout(self.server.options.answer_timeout, asked).await
        });
        let rows = asked.map_err(|_| Failure::Late(Phase::Statement))??;
        Ok(rows.first().map_or_else(Availability::default, read))
    }
}

fn read(row: &tokio_postgres::Row) -> Availability {
    Availability { ready: row.get(0), next_at: row.get(1) }
}

impl StoreWatch for PostgresWatch {
    fn arm(&mut self, queues: &[Arc<str>]) -> Result<Availability> {
        let server = self.server.clone();
        let shown = &server.address.shown;
        if let (None, Some(config)) = (&self.listener, &server.address.listen) {
            // The tables are made by a connection of the pool.
            server.run(Mode::Single, |call| call.rows("SELECT 1", &[]))?;
            let listener = self.listen(config).map_err(|failure| failure.into_error(shown))?;
            self.listener = Some(listener);
        }
        // Forgotten before the server is asked, so that a change after that ends the next wait.
        let old = self.listener.as_ref().map(|it| std::mem::take(&mut *it.mailbox.told.lock()));
        self.looks |= old.as_ref().is_none_or(Told::is_any);
        if let Some(why) = old.and_then(|old| old.closed) {
            self.listener = None;
            return Err(StoreError::unavailable(format!("store {shown}: {why}")));
        }
        if self.looks_at().is_some_and(|at| at <= Instant::now()) {
            server.run(Mode::Planned, |call| floors::look(call, &server.floors))?;
            self.looks = false;
        }
        let names: Vec<&str> = queues.iter().map(|name| &**name).collect();
        let from = server.floors.lock().of(&names);
        let Some(listener) = &self.listener else {
            let sql = available();
            return server.run(Mode::Planned, |call| {
                let row = call.one(&sql, args![names, from])?;
                Ok(row.as_ref().map_or_else(Availability::default, read))
            });
        };
        let asked = self.ask(listener, &names, &from).map_err(|failure| failure.into_error(shown));
        if asked.is_err() {
            self.listener = None;
        }
        asked
    }

    fn wait(&mut self, timeout: Duration) -> Result<StoreEvent> {
        let interrupted = async {
            self.interrupt.0.notified().await;
            StoreEvent::Interrupted
        };
        let looks = self.looks_at().map(|at| at.saturating_duration_since(Instant::now()));
        let looks = looks.filter(|looks| *looks < timeout);
        let Some(listener) = &self.listener else {
            if self.idle.is_none() {
                let shown = &self.server.address.shown;
                self.idle = Some(runtime().map_err(|failure| failure.into_error(shown))?);
            }
            let Some(idle) = &self.idle else { return Ok(StoreEvent::Timeout) };
            let is_short = timeout < POLL;
            let looks = async {
                tokio::time::sleep(timeout.min(POLL)).await;
                if is_short {
                    StoreEvent::Timeout
                } else {
                    StoreEvent::Changed { queues: vec![], other: true }
                }
            };
            return Ok(idle.block_on(async {
                tokio::select! { biased; event = interrupted => event, event = looks => event }
            }));
        };
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
        let timed = async {
            tokio::time::sleep(looks.unwrap_or(timeout)).await;
            // To look below the floors is to be armed again.
            if looks.is_some() {
                StoreEvent::Interrupted
            } else {
                StoreEvent::Timeout
            }
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
        Ok(event)
    }

    fn interrupter(&self) -> Arc<dyn Interrupt> {
        self.interrupt.clone()
    }
}
