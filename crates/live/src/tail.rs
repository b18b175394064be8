//! Reads the log for the hub of a process, on a thread of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_embedded::{inode, ChangeWatch, Error, Reader};
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use crate::hub::{Hub, Item};
use crate::log::{unavailable, Extent, Position, CHANNEL};
use crate::message::encode;
use crate::subscriber::{Event, Page, Subscriber};

/// Messages read in one turn, after which pages are read too.
const TURN_MESSAGES: usize = 512;
/// Messages of a page: as many as wait for a connection.
const PAGE_MESSAGES: usize = 256;
/// Bytes of a page, but for its last message.
const PAGE_BYTES: usize = 256 << 10;
/// Longest wait for a change, should a notification be lost.
const WAIT: Duration = Duration::from_secs(30);
/// The same while the file cannot be read or watched.
const WAIT_BROKEN: Duration = Duration::from_secs(1);
/// Time between two looks at how far clients are behind: it takes a millisecond for ten thousand.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

struct Tail<'a> {
    hub: &'a Hub,
    reader: Arc<Reader>,
    watch: Option<ChangeWatch>,
    /// All messages up to here are in the inbox, as far as they are subscribed.
    at: Position,
    /// The log could not be read, and a line says so.
    is_broken: bool,
    /// When it is measured how far clients are behind; none while nothing is said and none is.
    measures_at: Option<Instant>,
}

/// Reads until the hub stops.
pub(crate) fn run(hub: &Hub, at: Position) {
    let reader = hub.log.database().reader();
    let mut tail = Tail { hub, reader, watch: None, at, is_broken: false, measures_at: None };
    while !hub.stops() {
        let turn = tail.turn();
        tail.measure();
        let wait = match turn {
            Ok(true) => continue,
            Ok(false) => WAIT,
            Err(error) => {
                tail.report(&error);
                WAIT_BROKEN
            }
        };
        tail.wait(wait);
    }
}

impl Tail<'_> {
    /// Reads what is new, and then the pages that are asked for; true if there is more.
    fn turn(&mut self) -> chaton_embedded::Result<bool> {
        self.watch_file()?;
        // Before the pages, which reach up to what was read.
        let has_more = self.read_new()?;
        let wanted = self.hub.take_wanted();
        if !wanted.is_empty() {
            self.measure_soon();
        }
        for (subscriber, from) in wanted {
            self.read_page(&subscriber, from)?;
        }
        self.hub.end_turn();
        if std::mem::take(&mut self.is_broken) {
            chaton_core::log::warn("event streams can be read again");
        }
        Ok(has_more)
    }

    /// Watches the file that is there, and forgets earlier changes: what they have changed is read now.
    fn watch_file(&mut self) -> chaton_embedded::Result<()> {
        let database = self.hub.log.database();
        let path = &database.file().path;
        if self.watch.as_ref().is_none_or(|watch| !watch.is_current()) {
            self.watch = None;
            // Not made again here, because a person may be removing the files beside it as well.
            if inode(path).is_none() {
                return Err(unavailable(format!("{} was removed", database.file())));
            }
            let watch = ChangeWatch::open(path, CHANNEL);
            self.watch = Some(watch.map_err(|error| database.file().io("its wake file", &error))?);
        }
        if let Some(watch) = &self.watch {
            watch.drain();
        }
        Ok(())
    }

    fn read_new(&mut self) -> chaton_embedded::Result<bool> {
        let (hub, at) = (self.hub, self.at);
        let mut left = TURN_MESSAGES;
        let begin = |extent: &Extent| match at.epoch == extent.epoch {
            true => at.offset,
            false => {
                hub.replace(extent.epoch);
                0
            }
        };
        let extent = hub.log.read_all(&self.reader, begin, |row| {
            if row.is_end {
                hub.put(Item::End(row.name.into(), row.offset));
            } else if let Some(name) = hub.subscribed(row.name) {
                let body = encode(row.event, row.data);
                hub.put(Item::Event(name, Arc::new(Event { offset: row.offset, body })));
            }
            left -= 1;
            left > 0
        })?;
        let read = Position { epoch: extent.epoch, offset: extent.read };
        if read != self.at {
            self.at = read;
            self.measure_soon();
            hub.show_history(&extent);
            hub.put(Item::Read { offset: read.offset, first: extent.first });
        }
        Ok(left == 0)
    }

    /// Reads the messages of a subscriber from its position up to where the tail is.
    fn read_page(
        &mut self,
        subscriber: &Arc<Subscriber>,
        from: Position,
    ) -> chaton_embedded::Result<()> {
        let (mut events, mut bytes) = (Vec::new(), 0);
        let is_same = from.epoch == self.at.epoch;
        let range = (if is_same { from.offset } else { 0 }, self.at.offset);
        let mut extent = Extent { read: range.1.max(range.0), ..Extent::default() };
        let is_behind = range.0 < range.1;
        if is_behind {
            let names = &subscriber.names;
            extent = self.hub.log.read_names(&self.reader, names, range, |row| {
                if row.is_end {
                    subscriber.end(row.offset);
                    return true;
                }
                let body = encode(row.event, row.data);
                bytes += body.len();
                events.push(Arc::new(Event { offset: row.offset, body }));
                events.len() < PAGE_MESSAGES && bytes < PAGE_BYTES
            })?;
        }
        // Messages between the two were deleted; some may have been for this one.
        let gap = !is_same || (is_behind && range.0 + 1 < extent.first);
        let read = Position { epoch: self.at.epoch, offset: extent.read };
        let is_last = extent.read >= range.1;
        let page = Page { events, asked: from.epoch, read, gap, is_last };
        self.hub.put(Item::Page(Arc::clone(subscriber), page));
        Ok(())
    }

    fn measure_soon(&mut self) {
        self.measures_at.get_or_insert_with(|| Instant::now() + MEASURED_EVERY);
    }

    fn measure(&mut self) {
        if self.measures_at.is_some_and(|at| at <= Instant::now()) {
            self.measures_at = None;
            if self.hub.show_lag() > 0 {
                self.measure_soon();
            }
        }
    }

    fn report(&mut self, error: &Error) {
        if !std::mem::replace(&mut self.is_broken, true) {
            chaton_core::log::warn(&format!("event streams cannot be read now: {error}"));
        }
    }

    /// Waits until the log or what is asked for has changed.
    fn wait(&self, time: Duration) {
        let mut fds = vec![PollFd::new(&self.hub.wake_up, PollFlags::IN)];
        if let Some(watch) = &self.watch {
            fds.push(PollFd::new(watch, PollFlags::IN));
        }
        let until_measured =
            self.measures_at.map(|at| at.saturating_duration_since(Instant::now()));
        let time = time.min(until_measured.unwrap_or(time));
        let time = Timespec::try_from(time).unwrap_or_default();
        // An error is an interrupted call.
        let _ = poll(&mut fds, Some(&time));
        self.hub.wake_up.clear();
    }
}
