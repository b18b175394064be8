//! Reads the log for the hub of a process, on a thread of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chaton_embedded::Error;

use crate::hub::{Hub, Item};
use crate::log::Reader;
use crate::message::encode;
use crate::row::{Extent, Position, Row};
use crate::subscriber::{Event, Page, Subscriber};

/// Messages read in one turn, after which pages are read too.
const TURN_MESSAGES: usize = 512;
/// Messages of a page: as many as wait for a connection.
const PAGE_MESSAGES: usize = 256;
/// Bytes of a page, but for its last message.
const PAGE_BYTES: usize = 256 << 10;
/// Longest wait for a change, should a notification be lost.
const WAIT: Duration = Duration::from_secs(30);
/// The same while the log cannot be read.
const WAIT_BROKEN: Duration = Duration::from_secs(1);
/// Time between two looks at how far clients are behind: it takes a millisecond for ten thousand.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

struct Tail<'a> {
    hub: &'a Hub,
    reader: Reader<'a>,
    /// All messages up to here are in the inbox, as far as they are subscribed.
    at: Position,
    /// The log could not be read, and a line says so.
    is_broken: bool,
    /// When it is measured how far clients are behind; none while nothing is said and none is.
    measures_at: Option<Instant>,
}

/// Reads until the hub stops.
pub(crate) fn run(hub: &Hub, at: Position) {
    let reader = hub.log.reader();
    let mut tail = Tail { hub, reader, at, is_broken: false, measures_at: None };
    while !hub.stops() {
        let turn = tail.turn();
        tail.measure();
        match turn {
            Ok(true) => {}
            Ok(false) => tail.wait(WAIT),
            Err(error) => {
                tail.report(&error);
                tail.wait_broken();
            }
        }
    }
}

impl Tail<'_> {
    /// Reads what is new, and then the pages that are asked for; true if there is more.
    fn turn(&mut self) -> chaton_embedded::Result<bool> {
        self.reader.watch(self.at)?;
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

    fn read_new(&mut self) -> chaton_embedded::Result<bool> {
        let (hub, mut left) = (self.hub, TURN_MESSAGES);
        let extent = self.reader.read_all(
            self.at,
            |epoch| hub.replace(epoch),
            |row| {
                pass_on(hub, row);
                left -= 1;
                left > 0
            },
        )?;
        let read = Position { epoch: extent.epoch, offset: extent.read };
        if read != self.at {
            self.at = read;
            self.measure_soon();
            hub.show_history(&extent);
            hub.put(Item::Read { offset: read.offset, deleted: extent.deleted });
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
            extent = self.reader.read_names(names, range, |row| {
                if row.is_end {
                    subscriber.end(row.offset);
                    return true;
                }
                let event = event_of(row);
                bytes += event.body.len();
                events.push(Arc::new(event));
                events.len() < PAGE_MESSAGES && bytes < PAGE_BYTES
            })?;
        }
        // Messages between the two were deleted; some may have been for this one.
        let gap = !is_same || (is_behind && range.0 < extent.deleted);
        let read = Position { epoch: self.at.epoch, offset: extent.read };
        let is_last = extent.read >= range.1;
        let page = Page { events, asked: from.epoch, read, gap, is_last };
        self.hub.put(Item::Page(Arc::clone(subscriber), page));
        Ok(())
    }

    /// Waits before the log is tried again. Until it can be reached the streams get what this machine says.
    fn wait_broken(&mut self) {
        let (hub, until) = (self.hub, Instant::now() + WAIT_BROKEN);
        while !hub.stops() {
            // An error is that of a file beside the log; the log's own was reported.
            let keeps = self.reader.read_kept(|row| pass_on(hub, row)).unwrap_or(false);
            hub.end_turn();
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.wait(left);
            if !keeps {
                break;
            }
        }
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
    fn wait(&mut self, time: Duration) {
        let until_measured =
            self.measures_at.map(|at| at.saturating_duration_since(Instant::now()));
        let time = time.min(until_measured.unwrap_or(time));
        self.reader.wait(&self.hub.wake_up, time);
        self.hub.wake_up.clear();
    }
}

/// Puts a row into the inbox, if somebody is subscribed to its name.
fn pass_on(hub: &Hub, row: &Row<'_>) {
    if row.is_end {
        // One that is not in the log yet is behind all positions.
        let offset = if row.offset == 0 { u64::MAX } else { row.offset };
        hub.put(Item::End(row.name.into(), offset));
    } else if let Some(name) = hub.subscribed(row.name) {
        hub.put(Item::Event(name, Arc::new(event_of(row))));
    }
}

fn event_of(row: &Row<'_>) -> Event {
    Event { offset: row.offset, kept: row.kept, body: encode(row.event, row.data) }
}
