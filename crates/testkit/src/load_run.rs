//! A run of one constant rate against one server.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use crate::client_connection::{
    ClientConnection, ConnectionEvent, RequestFailure, ScheduledRequest,
};
use crate::epoll::{self, Epoll};
use crate::load_report::LoadReport;
use crate::schedule::Schedule;
use crate::server_address::ServerAddress;

/// How often requests are checked for timeouts.
const EXPIRY_EVERY_NS: u64 = 50_000_000;
/// The size of the read buffer.
const SCRATCH_BYTES: usize = 64 * 1024;

/// The plan of a run.
#[derive(Clone, Debug)]
pub struct LoadPlan {
    /// The server.
    pub server: ServerAddress,
    /// Requests a second.
    pub rate: f64,
    /// How long requests are measured.
    pub seconds: f64,
    /// How long requests are sent before that at the same rate.
    pub warmup_s: f64,
    /// Connections at a time; further requests wait, which counts as
    /// latency.
    pub connections_max: usize,
    /// A request without a response for so long after it was due has failed.
    pub timeout: Duration,
}

struct ConnectionSlot {
    /// Distinguishes events of this connection from those of its predecessor in the slot.
    generation: u32,
    connection: Option<ClientConnection>,
}

/// A run, on one thread because it shares the machine with the server.
pub struct LoadRun<'a> {
    plan: &'a LoadPlan,
    poll: Epoll,
    slots: Vec<ConnectionSlot>,
    /// Idle connections. The last one used is used next, so that
    /// no more are open than needed.
    idle: Vec<usize>,
    /// Slots without a connection.
    vacant: Vec<usize>,
    /// Due requests without a connection.
    waiting: VecDeque<ScheduledRequest>,
    report: LoadReport,
    start: Instant,
    scratch: Vec<u8>,
}

impl<'a> LoadRun<'a> {
    /// Runs the whole schedule, and then until every request has
    /// its response or has timed out.
    ///
    /// # Errors
    /// When the plan has no requests, or the kernel has no epoll. Failed
    /// requests are in the report.
    pub fn run(plan: &'a LoadPlan) -> io::Result<LoadReport> {
        let refused = || io::Error::new(io::ErrorKind::InvalidInput, "not a single request is due");
        let schedule =
            Schedule::new(plan.rate, plan.warmup_s + plan.seconds).ok_or_else(refused)?;
        let window = ((plan.warmup_s * 1e9) as u64, ((plan.warmup_s + plan.seconds) * 1e9) as u64);
        epoll::set_precise_timers();
        let load = Self {
            plan,
            poll: Epoll::new()?,
            slots: Vec::new(),
            idle: Vec::new(),
            vacant: Vec::new(),
            waiting: VecDeque::new(),
            report: LoadReport::new(plan.rate, window),
            start: Instant::now(),
            scratch: vec![0; SCRATCH_BYTES],
        };
        load.drive(schedule)
    }

    fn drive(mut self, schedule: Schedule) -> io::Result<LoadReport> {
        let mut tokens = Vec::new();
        let mut number = 0;
        let mut expiry_ns = EXPIRY_EVERY_NS;
        loop {
            let mut now_ns = self.now_ns();
            while number < schedule.count() && schedule.due_ns(number) <= now_ns {
                self.offer(ScheduledRequest {
                    number,
                    due_ns: schedule.due_ns(number),
                    resent: false,
                });
                number += 1;
                now_ns = self.now_ns();
            }
            if now_ns >= expiry_ns {
                self.expire(now_ns);
                expiry_ns = now_ns + EXPIRY_EVERY_NS;
            }
            if number == schedule.count() && self.is_quiet() {
                return Ok(self.report);
            }
            let due_ns = if number < schedule.count() { schedule.due_ns(number) } else { u64::MAX };
            let timeout_ns = due_ns.min(expiry_ns).saturating_sub(now_ns);
            self.poll.wait(timeout_ns, &mut tokens)?;
            for token in tokens.drain(..) {
                self.on_event(token);
            }
        }
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn is_quiet(&self) -> bool {
        let busy =
            |slot: &ConnectionSlot| slot.connection.as_ref().is_some_and(|c| c.request().is_some());
        self.waiting.is_empty() && !self.slots.iter().any(busy)
    }

    fn offer(&mut self, request: ScheduledRequest) {
        let now_ns = self.now_ns();
        self.report.offered(request, now_ns);
        self.waiting.push_back(request);
        self.dispatch();
        self.report.pressure(self.slots.len() - self.vacant.len(), self.waiting.len());
    }

    /// Assigns connections to waiting requests, the oldest first.
    fn dispatch(&mut self) {
        while !self.waiting.is_empty() {
            let Some(index) = self.idle.pop().or_else(|| self.open()) else { return };
            let Some(request) = self.waiting.pop_front() else { return };
            let bytes = self.plan.server.request();
            let Some(connection) = self.slots[index].connection.as_mut() else { continue };
            let event = connection.send(request, bytes);
            self.handle(index, event);
        }
    }

    /// Opens another connection if the limit allows it.
    fn open(&mut self) -> Option<usize> {
        if self.vacant.is_empty() && self.slots.len() >= self.plan.connections_max {
            return None;
        }
        match self.connect() {
            Ok(index) => Some(index),
            Err(_) => {
                // The server does not listen, or descriptors have run out: the oldest
                // request fails, and the next one tries again.
                let now_ns = self.now_ns();
                if let Some(request) = self.waiting.pop_front() {
                    self.report.failed(request, RequestFailure::Connect, now_ns);
                }
                None
            }
        }
    }

    fn connect(&mut self) -> io::Result<usize> {
        let connection = ClientConnection::open(self.plan.server.address())?;
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot { generation: 0, connection: None });
            self.slots.len() - 1
        });
        let slot = &mut self.slots[index];
        let token = (u64::from(slot.generation) << 32) | index as u64;
        if let Err(error) = self.poll.watch(connection.fd(), token) {
            self.vacant.push(index);
            return Err(error);
        }
        slot.connection = Some(connection);
        Ok(index)
    }

    fn on_event(&mut self, token: u64) {
        let (generation, index) = ((token >> 32) as u32, token as u32 as usize);
        let slot = &mut self.slots[index];
        let Some(connection) = slot.connection.as_mut() else { return };
        if slot.generation != generation {
            return;
        }
        let event = connection.poll(self.plan.server.request(), &mut self.scratch);
        self.handle(index, event);
        self.dispatch();
    }

    fn handle(&mut self, index: usize, event: ConnectionEvent) {
        match event {
            ConnectionEvent::Nothing => {}
            ConnectionEvent::Responded { status, keep_alive } => {
                let now_ns = self.now_ns();
                let done =
                    self.slots[index].connection.as_mut().and_then(ClientConnection::release);
                if let Some(request) = done {
                    self.report.answered(request, status, now_ns);
                }
                if keep_alive {
                    self.idle.push(index);
                } else {
                    self.close(index);
                }
            }
            ConnectionEvent::Closed(failure) => self.lose(index, failure),
        }
    }

    /// Closes a connection after a failure.
    fn lose(&mut self, index: usize, failure: RequestFailure) {
        let Some(connection) = self.slots[index].connection.as_mut() else { return };
        let raced =
            connection.raced() && matches!(failure, RequestFailure::Read | RequestFailure::Write);
        let request = connection.release();
        self.close(index);
        match request {
            None => self.idle.retain(|other| *other != index),
            Some(request) if raced && !request.resent => {
                self.report.resent(request);
                self.waiting.push_front(ScheduledRequest { resent: true, ..request });
            }
            Some(request) => {
                let now_ns = self.now_ns();
                self.report.failed(request, failure, now_ns);
            }
        }
    }

    fn close(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        slot.connection = None;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(index);
    }

    fn expire(&mut self, now_ns: u64) {
        let limit_ns = self.plan.timeout.as_nanos() as u64;
        let old = |request: &ScheduledRequest| request.due_ns.saturating_add(limit_ns) <= now_ns;
        while let Some(request) = self.waiting.front().copied().filter(old) {
            self.waiting.pop_front();
            self.report.failed(request, RequestFailure::Unsent, now_ns);
        }
        for index in 0..self.slots.len() {
            let connection = self.slots[index].connection.as_mut();
            let Some(request) = connection.and_then(|c| c.request()).filter(old) else { continue };
            // Its response may still arrive, so the connection cannot be reused.
            self.close(index);
            self.report.failed(request, RequestFailure::Timeout, now_ns);
        }
        self.dispatch();
    }
}
