//! One client connection: read a request, hand it over, send the answer, again.

mod close;
mod reply;
mod request;
mod send;
mod wire;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Instant;

use crate::exchange::Exchange;
use crate::outbox::Segment;
use crate::shared::Shared;
use crate::unread::Unread;

use wire::Wire;

/// Why a connection serves no further request.
enum End {
    /// Nobody is there to be told anything, or all is said.
    Close,
    /// All is said, but the client may be sending: let it read before the reset.
    Linger,
    /// The engine answers by itself, then lingers.
    Refuse(Refusal),
}

/// An answer of the engine's own.
struct Refusal {
    status: u16,
    text: &'static str,
    retry_after_s: Option<u32>,
    /// The request's head was read, so it can be named and may be a HEAD.
    has_head: bool,
}

/// One connection and everything it holds.
struct Connection {
    shared: Arc<Shared>,
    wire: Wire,
    waker: Waker,
    /// Place in the registry.
    place: usize,
    listener: usize,
    remote: Arc<str>,
    /// The current request, or the last one, kept for its buffers.
    exchange: Arc<Exchange>,
    /// The exchange was handed over: it needs a reset before the next request.
    used: bool,
    unread: Unread,
    /// Output that the socket has not taken yet.
    sending: VecDeque<Segment>,
    /// A sent buffer that goes back to the exchange.
    recycled: Vec<u8>,
    /// Requests handed over.
    served: u64,
    /// Bytes of the current answer that were sent.
    sent: u64,
    /// When the current request began to arrive, or the connection to idle.
    since: Instant,
}

/// Serves an accepted connection on a task of its own.
pub(crate) fn spawn(shared: Arc<Shared>, socket: OwnedFd, listener: usize, remote: String) {
    let count = Count::new(Arc::clone(&shared));
    tokio::spawn(async move {
        let _count = count;
        let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        // Without a place in the event loop the connection can only be closed.
        let Ok(wire) = Wire::new(socket) else { return };
        Connection::new(shared, wire, waker, listener, remote.into()).serve().await;
    });
}

impl Connection {
    fn new(
        shared: Arc<Shared>,
        wire: Wire,
        waker: Waker,
        listener: usize,
        remote: Arc<str>,
    ) -> Self {
        let place = shared.registry.enter(waker.clone());
        let exchange =
            Arc::new(Exchange::new(Arc::clone(&shared), wire.fd(), listener, Arc::clone(&remote)));
        Self {
            shared,
            wire,
            waker,
            place,
            listener,
            remote,
            exchange,
            used: false,
            unread: Unread::default(),
            sending: VecDeque::new(),
            recycled: Vec::new(),
            served: 0,
            sent: 0,
            since: Instant::now(),
        }
    }

    async fn serve(mut self) {
        let end = loop {
            if let Err(end) = self.serve_one().await {
                break end;
            }
        };
        match end {
            End::Close => {}
            End::Linger => self.linger().await,
            End::Refuse(refusal) => self.refuse(refusal).await,
        }
    }

    async fn serve_one(&mut self) -> Result<(), End> {
        self.read_head().await?;
        self.read_body().await?;
        self.dispatch();
        self.send_answer().await?;
        self.conclude()
    }

    /// The exchange before it is handed over: the last one, unless somebody
    /// still holds that. Called when the next request arrives, not right after
    /// the answer, because its producer may need a moment to let go.
    fn exchange_mut(&mut self) -> &mut Exchange {
        let (shared, remote) = (&self.shared, &self.remote);
        let used = std::mem::take(&mut self.used);
        if used && Arc::get_mut(&mut self.exchange).is_none() {
            let (shared, remote) = (Arc::clone(shared), Arc::clone(remote));
            self.exchange = Arc::new(Exchange::new(shared, self.wire.fd(), self.listener, remote));
        }
        let exchange = Arc::get_mut(&mut self.exchange)
            .expect("a request that was not handed over has one owner");
        if used {
            exchange.reset();
        }
        exchange
    }

    /// Gives back what an idle connection need not hold.
    fn shrink(&mut self) {
        self.exchange_mut().shrink();
        self.sending.shrink_to_fit();
        self.recycled = Vec::new();
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Before the socket is closed: a hijack looks at the phase under the lock.
        self.exchange.close();
        self.shared.registry.leave(self.place);
    }
}

/// Counts an open connection, however it ends.
struct Count(Arc<Shared>);

impl Count {
    fn new(shared: Arc<Shared>) -> Self {
        shared.opened();
        Self(shared)
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.counters.panics.add(1);
        }
        self.0.closed();
    }
}
