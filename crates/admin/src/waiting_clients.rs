//! The open connections of one bind that hold no place: those whose head is not complete, those that wait for
//! a place, and those that are answered without one.
//!
//! Clients that connect and send nothing could fill any bound. So a new connection is always accepted, and at
//! the bound the one that has waited longest is closed: a probe sends its head at once and seldom is that one.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::AbortHandle;

#[derive(Default)]
struct State {
    next: u64,
    /// By number, so that the one that has waited longest comes first.
    tasks: BTreeMap<u64, AbortHandle>,
}

/// The connections of one bind that hold no place. The tasks must run on the thread that calls these methods.
pub(crate) struct WaitingClients {
    max: usize,
    state: Mutex<State>,
}

/// One connection. It no longer waits when this is dropped.
pub(crate) struct WaitingClient {
    clients: Arc<WaitingClients>,
    number: u64,
    /// The connection's task, while it has a place.
    placed: Option<AbortHandle>,
}

impl WaitingClients {
    /// Keeps `max` of them at most.
    pub fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Serves a new connection on a task.
    pub fn spawn<F>(self: &Arc<Self>, serve: impl FnOnce(WaitingClient) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let number = self.number();
        let client = WaitingClient { clients: self.clone(), number, placed: None };
        self.insert(number, tokio::spawn(serve(client)).abort_handle());
    }

    /// Closes the connection that has waited longest; false: none waits.
    pub fn close_oldest(&self) -> bool {
        let oldest = self.state.lock().tasks.pop_first();
        oldest.map(|(_, task)| task.abort()).is_some()
    }

    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    fn insert(&self, number: u64, task: AbortHandle) {
        if self.state.lock().tasks.len() >= self.max {
            self.close_oldest();
        }
        self.state.lock().tasks.insert(number, task);
    }
}

impl WaitingClient {
    /// The connection has got a place: it is not closed for others.
    pub fn leave(&mut self) {
        self.placed = self.clients.state.lock().tasks.remove(&self.number);
    }

    /// The connection has given its place back, and waits behind all others.
    pub fn join(&mut self) {
        if let Some(task) = self.placed.take() {
            self.number = self.clients.number();
            self.clients.insert(self.number, task);
        }
    }
}

impl Drop for WaitingClient {
    fn drop(&mut self) {
        self.clients.state.lock().tasks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot::{channel, Receiver, Sender};

    /// Tells when its task is dropped.
    type Client = Receiver<WaitingClient>;

    async fn client(clients: &Arc<WaitingClients>) -> (Client, Sender<()>) {
        let (give, taken) = channel();
        let (keep, kept) = channel();
        clients.spawn(|client| async {
            let _ = give.send(client);
            let _ = kept.await;
        });
        tokio::task::yield_now().await;
        (taken, keep)
    }

    #[tokio::test]
    async fn at_the_bound_the_connection_that_has_waited_longest_is_closed() {
        let clients = WaitingClients::new(2);
        let (mut first, first_kept) = client(&clients).await;
        let mut placed = first.try_recv().unwrap();
        placed.leave();
        let (_second, second_kept) = client(&clients).await;
        let (_third, third_kept) = client(&clients).await;
        // It waits again, behind the third.
        placed.join();
        tokio::task::yield_now().await;
        let closed = || [&first_kept, &second_kept, &third_kept].map(|kept| kept.is_closed());
        assert_eq!(closed(), [false, true, false]);
        assert!(clients.close_oldest());
        tokio::task::yield_now().await;
        assert_eq!(closed(), [false, true, true]);
        drop(placed);
        assert!(!clients.close_oldest(), "none waits");
    }
}
