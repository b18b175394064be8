//! The body of a request, complete before the request is handed over, unless its path is one of
//! `stream_bodies`.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use crate::budget::{BudgetShare, ConnectionBudget, SPOOLED_BYTES_MIN};
use crate::chunked::{ChunkError, ChunkedDecoder};
use crate::head::{BodyFraming, Version};
use crate::limits::Limits;
use crate::streamed_body::StreamedBody;

/// Bytes gathered before they are written to the file.
const STAGED_BYTES_MAX: usize = 64 * 1024;

/// The body of a request.
#[derive(Debug, Default)]
pub enum RequestBody {
    /// No body, or an empty one.
    #[default]
    Empty,
    /// Held in memory.
    Memory(Vec<u8>),
    /// Larger than `body_memory_bytes_max`: in a temporary file without a name.
    Spooled {
        /// The file.
        file: File,
        /// Bytes in it.
        len: u64,
        /// Counts the file until it is dropped.
        held: Option<BudgetShare>,
    },
    /// Handed over while it arrives.
    Streamed(Arc<StreamedBody>),
}

impl RequestBody {
    /// Number of bytes; 0 if it is streamed.
    pub fn body_len(&self) -> u64 {
        match self {
            Self::Empty | Self::Streamed(_) => 0,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::Spooled { len, .. } => *len,
        }
    }

    /// Whether all of it has arrived.
    pub fn is_complete(&self) -> bool {
        match self {
            Self::Streamed(body) => body.is_complete(),
            _ => true,
        }
    }
}

/// Why a body could not be read.
#[derive(Debug)]
pub(crate) enum BodyError {
    /// More than `body_bytes_max`.
    TooLarge,
    /// Not the chunked coding of RFC 9112.
    Chunk(ChunkError),
    /// The temporary file could not be made or written.
    Spool(io::Error),
    /// Clients make the server hold too much already.
    NoRoom,
}

/// Finds the end of the body.
#[derive(Debug)]
enum BodyDecoder {
    /// Bytes still to come.
    Length(u64),
    Chunked(ChunkedDecoder),
    /// All of it is the body: HTTP/2 says where it ends.
    All,
}

/// Reads a body as it arrives: into memory first, into a file past a bound. The caller
/// writes the file ([`BodyReader::write`]), because a disk may take long.
#[derive(Debug)]
pub(crate) struct BodyReader {
    decoder: BodyDecoder,
    /// The body, or the part that is not in the file yet.
    memory: Vec<u8>,
    file: Option<File>,
    /// Bytes in the file, or handed out.
    filed: u64,
    /// None for a body that is streamed: the queue counts it.
    held: Option<BudgetShare>,
}

impl BodyReader {
    /// Starts the body that `framing` announces, reusing the capacity of
    /// `memory`; None when there is nothing to read.
    pub fn new(
        version: Version,
        framing: BodyFraming,
        mut memory: Vec<u8>,
        limits: &Limits,
    ) -> Result<Option<Self>, BodyError> {
        let decoder = match framing {
            _ if version == Version::Http2 => BodyDecoder::All,
            BodyFraming::None | BodyFraming::Length(0) => return Ok(None),
            BodyFraming::Length(len) if len > limits.body_bytes_max => {
                return Err(BodyError::TooLarge)
            }
            BodyFraming::Length(len) => BodyDecoder::Length(len),
            BodyFraming::Chunked => BodyDecoder::Chunked(ChunkedDecoder::new(limits)),
        };
        memory.clear();
        Ok(Some(Self { decoder, memory, file: None, filed: 0, held: None }))
    }

    /// Counts the body while it is not complete. One that cannot fit is refused before it arrives.
    pub fn counted(
        self,
        framing: BodyFraming,
        budget: &Arc<ConnectionBudget>,
        limits: &Limits,
    ) -> Result<Self, BodyError> {
        let len = if let BodyFraming::Length(len) = framing { len } else { 0 };
        if len > limits.body_memory_bytes_max as u64 && !budget.can_spool(len) {
            budget.worker.count_refused();
            return Err(BodyError::NoRoom);
        }
        Ok(Self { held: Some(BudgetShare::new(budget)), ..self })
    }

    fn count(&mut self) {
        if let Some(held) = &mut self.held {
            held.set(self.memory.capacity(), self.filed);
        }
    }

    /// Takes the bytes that belong to the body; returns how many those were and
    /// whether the body is complete.
    pub fn feed(&mut self, input: &[u8], limits: &Limits) -> Result<(usize, bool), BodyError> {
        let taken = match &mut self.decoder {
            BodyDecoder::Length(left) => {
                let len = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                self.memory.extend_from_slice(&input[..len]);
                *left -= len as u64;
                (len, *left == 0)
            }
            BodyDecoder::All => {
                self.memory.extend_from_slice(input);
                (input.len(), false)
            }
            BodyDecoder::Chunked(decoder) => {
                decoder.feed(input, &mut self.memory).map_err(BodyError::Chunk)?
            }
        };
        if self.filed + self.memory.len() as u64 > limits.body_bytes_max {
            return Err(BodyError::TooLarge);
        }
        if !taken.1 {
            self.count();
        }
        Ok(taken)
    }

    /// Whether what it holds in memory is to be written before it takes more, or before
    /// the `complete` body is used.
    pub fn must_write(&self, complete: bool, limits: &Limits) -> bool {
        let budget = self.held.as_ref().map(BudgetShare::budget).filter(|_| !complete);
        let staged_max = match &self.file {
            None if budget.is_some_and(|budget| budget.worker.is_full()) => 0,
            None if budget.is_some_and(|budget| budget.is_short()) => SPOOLED_BYTES_MIN - 1,
            Some(_) if budget.is_some_and(|budget| budget.is_short()) => 0,
            None => usize::MAX,
            Some(_) if complete => 0,
            Some(_) => STAGED_BYTES_MAX,
        };
        self.memory.len() > staged_max.min(limits.body_memory_bytes_max)
    }

    /// Moves what it holds in memory to the file. Blocks as long as the disk takes.
    pub fn write(&mut self) -> Result<(), BodyError> {
        let is_small = self.file.is_none() && self.memory.len() < SPOOLED_BYTES_MIN;
        let fits = |held: &BudgetShare| {
            let budget = held.budget();
            let room = budget.can_spool(self.memory.len() as u64);
            room && !(is_small && budget.worker.is_full())
        };
        if !self.held.as_ref().is_none_or(fits) {
            self.held.iter().for_each(|held| held.budget().worker.count_refused());
            return Err(BodyError::NoRoom);
        }
        let written = self.write_to_file().map_err(BodyError::Spool);
        self.count();
        written
    }

    /// Moves what it holds in memory to the end of `into`, for a body that is streamed.
    pub fn hand_out(&mut self, into: &mut VecDeque<u8>) {
        self.filed += self.memory.len() as u64;
        into.extend(&self.memory);
        self.memory.clear();
    }

    fn write_to_file(&mut self) -> io::Result<()> {
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(tempfile::tempfile()?),
        };
        file.write_all_at(&self.memory, self.filed)?;
        self.filed += self.memory.len() as u64;
        let is_short = self.held.as_ref().is_some_and(|held| held.budget().is_short());
        if is_short || self.memory.capacity() > 2 * STAGED_BYTES_MAX {
            self.memory = Vec::new();
        }
        self.memory.clear();
        Ok(())
    }

    /// Ends the complete body, of which nothing is unwritten.
    pub fn finish(mut self) -> RequestBody {
        match self.file {
            Some(file) => {
                self.held.iter_mut().for_each(|held| held.set(0, self.filed));
                RequestBody::Spooled { file, len: self.filed, held: self.held }
            }
            None if self.memory.is_empty() => RequestBody::Empty,
            None => RequestBody::Memory(self.memory),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn read_all(body: &[u8], step: usize, limits: &Limits) -> RequestBody {
        let framing = BodyFraming::Length(body.len() as u64);
        let mut reader =
            BodyReader::new(Version::Http11, framing, Vec::new(), limits).unwrap().unwrap();
        let mut done = false;
        for part in body.chunks(step) {
            assert!(!done);
            let (taken, complete) = reader.feed(part, limits).unwrap();
            assert_eq!(taken, part.len());
            done = complete;
            if reader.must_write(done, limits) {
                reader.write().unwrap();
            }
        }
        assert!(done);
        reader.finish()
    }

    #[test]
    fn a_small_body_stays_in_memory_and_a_large_one_goes_to_a_file() {
        let limits = Limits { body_memory_bytes_max: 1_000, ..Limits::for_tests() };
        let body: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        assert!(
            matches!(read_all(&body[..1_000], 7, &limits), RequestBody::Memory(m) if m == body[..1_000])
        );
        let RequestBody::Spooled { mut file, len, .. } = read_all(&body, 777, &limits) else {
            panic!("not spooled")
        };
        let mut read = Vec::new();
        file.read_to_end(&mut read).unwrap();
        assert_eq!(len, 200_000);
        assert!(read == body);
    }

    #[test]
    fn bytes_past_the_length_belong_to_the_next_request() {
        let limits = Limits::for_tests();
        let mut reader =
            BodyReader::new(Version::Http11, BodyFraming::Length(3), Vec::new(), &limits)
                .unwrap()
                .unwrap();
        assert_eq!(reader.feed(b"abcGET /", &limits).unwrap(), (3, true));
    }

    #[test]
    fn a_body_over_the_limit_is_refused_before_it_arrives() {
        let limits = Limits { body_bytes_max: 10, ..Limits::for_tests() };
        let refused =
            BodyReader::new(Version::Http11, BodyFraming::Length(11), Vec::new(), &limits);
        assert!(matches!(refused, Err(BodyError::TooLarge)));
    }
}
