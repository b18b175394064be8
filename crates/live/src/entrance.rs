//! How a client gets its subscription: let in by the application, or with the id of the last event that it got.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;

use chaton_embedded::Result;

use crate::hub::{Client, Hub, Refused, Wish};
use crate::position::{RequestDigest, Ticket, Verified};
use crate::row::{unavailable, Position};
use crate::subscription::Subscription;
use crate::tail;

/// A subscription, or why there is none.
pub type Admission = std::result::Result<Subscription, Refused>;

impl Hub {
    /// Opens the log and starts the thread that reads it, with the first call.
    ///
    /// # Errors
    /// When the log cannot be read, or the operating system gives no thread.
    pub fn open(self: &Arc<Self>) -> Result<()> {
        let mut is_tailing = self.is_tailing.lock();
        if !*is_tailing {
            // Fails at once if the log was away a moment ago.
            self.log.extent()?;
            let (end, signer) = self.load()?;
            *self.signer.lock() = Some(signer);
            let hub = Arc::clone(self);
            chaton_core::thread::spawn("chaton-live", move || tail::run(&hub, end))
                .map_err(|error| unavailable(format!("no thread for event streams: {error}")))?;
            *is_tailing = true;
        }
        Ok(())
    }

    /// The id of a page that was made from what was there at a position, or from anything that the log still keeps. With
    /// it a client that the application lets in gets what came after it. It permits nothing by itself.
    ///
    /// # Errors
    /// When the log cannot be read, or the operating system gives no thread.
    pub fn page_id(self: &Arc<Self>, names: &[&str], at: Option<Position>) -> Result<Vec<u8>> {
        self.open()?;
        let (begin, _) = self.reach()?;
        let at = at.filter(|at| at.epoch == begin.epoch).unwrap_or(begin);
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        // It has expired from the beginning.
        let ticket = Ticket::new(&names, RequestDigest::new([]), Some(Duration::ZERO));
        let mut id = Vec::new();
        if let Some(signer) = self.signer() {
            signer.append_id(&ticket, at.offset, &mut id);
        }
        Ok(id)
    }

    /// Subscribes a client that the application has let in: behind the position of the last id that it got of these
    /// names; without an id from now on, or with all that the log keeps.
    ///
    /// # Errors
    /// When the log cannot be read, or the operating system gives no thread.
    pub fn subscribe(
        self: &Arc<Self>,
        names: &[&str],
        wish: &Wish<'_>,
        client: Client,
    ) -> Result<Admission> {
        self.open()?;
        let (begin, end) = self.reach()?;
        let begin = if wish.history { begin } else { end };
        let names: Vec<Arc<str>> = names.iter().map(|name| Arc::from(*name)).collect();
        let known = wish.last_id.and_then(|id| self.signer()?.position(id, &names));
        let mut ticket = Ticket::new(&names, client.request, wish.max_age);
        ticket.set_refreshes(wish.refreshes);
        let gap = wish.last_id.is_some() && known.is_none();
        let from = known.unwrap_or(begin);
        let added = self.add(&names, (from, end.offset), gap, client.address);
        Ok(added
            .map(|subscriber| Subscription::new(Arc::clone(self), subscriber, ticket, from.offset)))
    }

    /// Subscribes a client that comes back with the id of the last event that it got, if that still permits it.
    pub fn resume(self: &Arc<Self>, id: &[u8], client: Client) -> Option<Admission> {
        let Verified { position, names, ticket } = self.signer()?.verify(id, client.request)?;
        let ends = self.ends.lock();
        let has_ended = names.iter().any(|name| ends.get(&**name) > Some(&position.offset));
        drop(ends);
        // An end that is deleted may be behind it.
        if has_ended || position.offset < self.deleted.load(Relaxed) {
            return None;
        }
        let added = self.add(&names, (position, position.offset), false, client.address);
        Some(added.map(|subscriber| {
            self.count(|live| &live.resumed, 1);
            Subscription::new(Arc::clone(self), subscriber, ticket, position.offset)
        }))
    }
}
