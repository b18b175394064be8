//! Reads one partition from a position on, and passes over damaged batches.

use std::ops::Range;

use chaton_embedded::Reader;
use rusqlite::{params, Connection, OptionalExtension};

use super::log_dir::{Done, LogDir};
use super::topics::{self, PartitionRow};
use super::{batches, errors, frames};
use crate::log::{Limits, LostRecords, Partition, Position, Result};
use crate::record::{Chunk, ChunkBuilder};

/// Where a partition is read.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub dir: &'a LogDir,
    pub reader: &'a Reader,
    pub partition: &'a Partition,
}

/// There may be very many, so the [`Source`] is not part of it.
pub(super) struct PartitionCursor {
    /// The partition as last seen.
    seen: PartitionRow,
    /// The offset of the next record.
    next: i64,
    /// Lost records that were passed over and are not reported yet.
    lost: Option<Box<LostRecords>>,
}

impl PartitionCursor {
    /// Begins to read there.
    ///
    /// # Errors
    /// `UnknownTopic`; when the log cannot be read.
    pub fn open(source: Source<'_>, from: Position) -> Result<Self> {
        let seen = PartitionRow { id: 0, start: 0, next: 0, bytes: 0 };
        let mut cursor = Self { seen, next: 0, lost: None };
        cursor.seek(source, from)?;
        Ok(cursor)
    }

    /// The lost records before the last ones that were fetched; each is returned once.
    pub fn take_lost(&mut self) -> Option<LostRecords> {
        self.lost.take().map(|lost| *lost)
    }

    /// The log start offset, as last seen.
    pub fn start(&self) -> i64 {
        self.seen.start
    }

    /// The log end offset, as last seen.
    pub fn end(&self) -> i64 {
        self.seen.next
    }

    pub fn seek(&mut self, source: Source<'_>, position: Position) -> Result<()> {
        let Source { dir, reader, partition: one } = source;
        let read = dir.read_by(Some(reader), |conn| {
            let row = topics::get_partition(conn, &dir.settings, one)?;
            let next = match position {
                Position::Latest => row.next,
                Position::Earliest => row.start,
                // An offset behind the end means the end, as with Kafka.
                Position::Offset(offset) => offset.clamp(row.start, row.next),
                Position::Time(time_ms) => find_time(conn, &row, time_ms)?.unwrap_or(row.next),
            };
            Ok((row, next))
        })?;
        (self.seen, self.next) = read.ok_or_else(|| errors::unknown_topic(&one.topic))?;
        self.lost = None;
        Ok(())
    }

    /// The next records; `None` if there are none.
    pub fn fetch(&mut self, source: Source<'_>, limits: Limits) -> Result<Option<Chunk>> {
        let read = source.dir.read_by(Some(source.reader), |conn| {
            let Some(row) = topics::named(conn, source.partition)? else { return Ok(None) };
            if row.id != self.seen.id {
                // The topic was deleted and created again.
                self.next = row.start;
            }
            self.seen = row;
            // The records before have expired.
            self.next = self.next.max(row.start);
            if self.next >= row.next {
                return Ok(None);
            }
            self.read(source, conn, limits).map(Some)
        })?;
        Ok(read.flatten().filter(|chunk| !chunk.is_empty()))
    }

    fn read(&mut self, source: Source<'_>, conn: &Connection, limits: Limits) -> Done<Chunk> {
        let (row, mut chunk) = (self.seen, ChunkBuilder::default());
        let ids = batches::ids(row.id);
        let mut select = conn.prepare_cached(
            "SELECT id, count, crc, frames FROM record_batches WHERE id>=?1 AND id<?2 ORDER BY id",
        )?;
        let from = batch_of(conn, &ids, self.next)?.unwrap_or(ids.start + self.next);
        let mut rows = select.query([from, ids.start + row.next])?;
        while let Some(batch) = rows.next()? {
            let (id, count, crc): (i64, i64, u32) = (batch.get(0)?, batch.get(1)?, batch.get(2)?);
            let base = id - ids.start;
            if base > self.next {
                if !chunk.is_empty() {
                    break;
                }
                self.lose(source, base, "the batches before it are not there", id);
            }
            let bytes = batch.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
            let is_whole = crc32c::crc32c(bytes) == crc;
            if !is_whole && !chunk.is_empty() {
                break;
            }
            if !is_whole {
                self.lose(source, base + count, "its checksum is wrong", id);
                continue;
            }
            if !self.take(&mut chunk, bytes, base, limits) {
                break;
            }
        }
        if chunk.is_empty() && self.next < row.next {
            self.lose(source, row.next, "the last batches are not there", ids.start + row.next);
        }
        Ok(chunk.finish())
    }

    /// Takes the records of a batch as far as the limits allow; whether there is room for more.
    fn take(&mut self, chunk: &mut ChunkBuilder, bytes: &[u8], base: i64, limits: Limits) -> bool {
        let (mut at, mut offset) = (0, base);
        let (mut taken, mut first) = (Vec::new(), None);
        let mut has_room = true;
        while let Some(frame) = frames::parse(bytes, at) {
            if offset >= self.next {
                let from = *first.get_or_insert(at);
                let records = chunk.len() + taken.len();
                let size = chunk.bytes() + frame.end - from;
                if records > 0 && (records >= limits.records || size > limits.bytes) {
                    has_room = false;
                    break;
                }
                taken.push((offset, frame));
            }
            (at, offset) = (frame.end, offset + 1);
        }
        let Some(from) = first else { return has_room };
        let moved = chunk.append(&bytes[from..at]) as i64 - from as i64;
        for (offset, frame) in taken {
            let headers = frames::headers(bytes, &frame)
                .map(|(name, value)| (name.moved(moved), value.moved(moved)));
            let (key, value) = (frame.key.moved(moved), frame.value.moved(moved));
            chunk.push_spans(offset, frame.timestamp_ms, key, value, headers);
        }
        self.next = offset;
        has_room && chunk.len() < limits.records
    }

    /// Passes over lost records up to this offset.
    fn lose(&mut self, source: Source<'_>, until: i64, what: &str, batch: i64) {
        let why = errors::damaged(source.dir.path(), batch, source.partition, what).message;
        let lost = Box::new(LostRecords { from: self.next, until, why });
        self.lost.get_or_insert(lost).until = until;
        self.next = until;
    }
}

/// The id of the batch that contains this offset or comes before it.
fn batch_of(conn: &Connection, ids: &Range<i64>, offset: i64) -> rusqlite::Result<Option<i64>> {
    let mut select =
        conn.prepare_cached("SELECT max(id) FROM record_batches WHERE id>=?1 AND id<=?2")?;
    select.query_row([ids.start, ids.start + offset], |row| row.get(0))
}

/// The offset of the first record of this time or later.
fn find_time(conn: &Connection, row: &PartitionRow, time_ms: i64) -> rusqlite::Result<Option<i64>> {
    let ids = batches::ids(row.id);
    let mut select = conn.prepare_cached(
        "SELECT id, frames FROM record_batches WHERE id>=?1 AND id<?2 AND newest_ms>=?3
         ORDER BY id LIMIT 1",
    )?;
    let found = select.query_row(params![ids.start, ids.start + row.next, time_ms], |found| {
        let (mut at, mut offset) = (0, found.get::<_, i64>(0)? - ids.start);
        let bytes = found.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        while let Some(frame) = frames::parse(bytes, at).filter(|one| one.timestamp_ms < time_ms) {
            (at, offset) = (frame.end, offset + 1);
        }
        Ok(offset)
    });
    found.optional()
}
