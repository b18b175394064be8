//! Compression of the application's answers.
//!
//! The length of a compressed page that holds both a secret and text of a client tells that client, over many
//! requests, what the secret is (BREACH). So each answer is made longer by a number of bytes that depends on all of it
//! (of a streamed one, on its first part) and on a key of this process: repeating a request does not average it out.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use parking_lot::Mutex;
use serde::Deserialize;

use crate::content_coding::ContentCoding;

/// Compressors kept for the next answers; each has about 300 KB.
const IDLE_MAX: usize = 4;
/// The level while as many answers are being compressed as there are processors.
const BUSY_LEVEL: u32 = 1;

/// The settings of compression.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompressionSettings {
    /// Smaller answers of known length are sent as they are.
    pub bytes_min: u64,
    /// 1 is fastest, 9 smallest.
    pub level: u32,
    /// Most bytes by which an answer is made longer; 0: none.
    pub jitter_bytes_max: u32,
}

/// Makes encoders.
pub(crate) struct Encoders {
    settings: CompressionSettings,
    idle: Mutex<Vec<(u32, Compress)>>,
    active: AtomicUsize,
    processors: usize,
    key: RandomState,
}

impl Encoders {
    pub fn new(settings: CompressionSettings) -> Self {
        Self {
            settings,
            idle: Mutex::default(),
            active: AtomicUsize::new(0),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            key: RandomState::new(),
        }
    }

    pub fn settings(&self) -> &CompressionSettings {
        &self.settings
    }

    /// The encoder of one answer. Only gzip is made.
    pub fn encoder(self: &Arc<Self>, coding: ContentCoding) -> Encoder {
        debug_assert_eq!(coding, ContentCoding::Gzip);
        let is_busy = self.active.fetch_add(1, Relaxed) >= self.processors;
        let level = if is_busy { BUSY_LEVEL } else { self.settings.level };
        let mut idle = self.idle.lock();
        let kept = idle.iter().position(|(kept, _)| *kept == level);
        let kept = kept.map(|at| idle.swap_remove(at).1);
        drop(idle);
        Encoder {
            encoders: Arc::clone(self),
            level,
            deflate: Some(kept.unwrap_or_else(|| Compress::new(Compression::new(level), false))),
            crc: Crc::new(),
            has_begun: false,
        }
    }

    /// 0 to `jitter_bytes_max`.
    fn jitter(&self, bytes: &[u8]) -> usize {
        (self.key.hash_one(bytes) % (u64::from(self.settings.jitter_bytes_max) + 1)) as usize
    }
}

/// Encodes one answer as gzip (RFC 1952).
pub(crate) struct Encoder {
    encoders: Arc<Encoders>,
    level: u32,
    /// None once it was given back.
    deflate: Option<Compress>,
    crc: Crc,
    has_begun: bool,
}

impl Encoder {
    /// Encodes a part so that the client can decode all of it at once.
    pub fn part(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() / 3 + 64);
        self.run(bytes, FlushCompress::Sync, &mut out);
        out
    }

    /// Encodes the last part.
    pub fn finish(mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len() / 3 + 64);
        self.run(bytes, FlushCompress::Finish, &mut out);
        out.extend_from_slice(&self.crc.sum().to_le_bytes());
        out.extend_from_slice(&self.crc.amount().to_le_bytes());
        out
    }

    fn run(&mut self, bytes: &[u8], flush: FlushCompress, out: &mut Vec<u8>) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.begin(bytes, out);
        }
        self.crc.update(bytes);
        let Some(deflate) = &mut self.deflate else { return };
        let start = deflate.total_in();
        loop {
            let taken = (deflate.total_in() - start) as usize;
            out.reserve(((bytes.len() - taken) / 4).max(1024));
            // It fails only after its end.
            let status = deflate.compress_vec(&bytes[taken..], out, flush);
            let is_taken = (deflate.total_in() - start) as usize == bytes.len();
            let is_done = match flush {
                FlushCompress::Finish => matches!(status, Ok(Status::StreamEnd) | Err(_)),
                // With room left, everything has been flushed.
                _ => is_taken && out.len() < out.capacity(),
            };
            if is_done {
                return;
            }
        }
    }

    /// The header, whose comment has the additional length.
    fn begin(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        const HAS_COMMENT: u8 = 16;
        let jitter = self.encoders.jitter(bytes);
        let flags = if jitter > 0 { HAS_COMMENT } else { 0 };
        out.extend_from_slice(&[0x1f, 0x8b, 8, flags, 0, 0, 0, 0, 0, 255]);
        if jitter > 0 {
            // The length of the comment counts, with the zero behind it.
            out.extend(std::iter::repeat_n(b'.', jitter - 1));
            out.push(0);
        }
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.encoders.active.fetch_sub(1, Relaxed);
        let mut idle = self.encoders.idle.lock();
        if let Some(mut deflate) = self.deflate.take().filter(|_| idle.len() < IDLE_MAX) {
            deflate.reset();
            idle.push((self.level, deflate));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use flate2::read::{GzDecoder, MultiGzDecoder};

    use super::*;

    fn encoders(jitter_bytes_max: u32) -> Arc<Encoders> {
        Arc::new(Encoders::new(CompressionSettings { bytes_min: 0, level: 6, jitter_bytes_max }))
    }

    fn encoder(encoders: &Arc<Encoders>) -> Encoder {
        encoders.encoder(ContentCoding::Gzip)
    }

    fn decoded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        MultiGzDecoder::new(bytes).read_to_end(&mut out).unwrap();
        out
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let encoders = encoders(32);
        for len in [0, 1, 100, 5_000, 70_000, 3_000_000] {
            let bytes: Vec<u8> = (0..len).map(|i: u32| (i.wrapping_mul(i) / 7) as u8).collect();
            assert!(decoded(&encoder(&encoders).finish(&bytes)) == bytes, "{len}");
        }
        assert_eq!(encoders.active.load(Relaxed), 0);
        assert_eq!(encoders.idle.lock().len(), 1, "one compressor did it all");
    }

    #[test]
    fn each_part_can_be_decoded_when_it_is_there() {
        let encoders = encoders(32);
        let mut encoder = encoder(&encoders);
        let (mut sent, mut plain) = (Vec::new(), Vec::new());
        for part in [&b"hello "[..], b"", b"world", &[b'x'; 100_000]] {
            sent.extend(encoder.part(part));
            plain.extend_from_slice(part);
            let mut out = vec![0; plain.len()];
            GzDecoder::new(&sent[..]).read_exact(&mut out).unwrap();
            assert!(out == plain);
        }
        sent.extend(encoder.finish(b"!"));
        plain.push(b'!');
        assert!(decoded(&sent) == plain);
    }

    #[test]
    fn equal_answers_have_equal_lengths_and_others_vary() {
        let encoders = encoders(32);
        let len = |text: String| encoder(&encoders).finish(text.as_bytes()).len();
        assert_eq!(len("a".repeat(5_000)), len("a".repeat(5_000)));
        let lens: std::collections::BTreeSet<_> =
            (0..200).map(|i| len(format!("{i:05}{}", "a".repeat(5_000)))).collect();
        assert!(
            lens.len() > 10 && lens.last().unwrap() - lens.first().unwrap() <= 32 + 8,
            "{lens:?}"
        );
        // The guess may stand behind a long beginning that is always the same.
        let same = "a".repeat(100_000);
        let lens: std::collections::BTreeSet<_> =
            (0..200).map(|i| len(format!("{same}{i:05}"))).collect();
        assert!(lens.len() > 10, "{lens:?}");
        let plain = self::encoders(0);
        assert_eq!(encoder(&plain).finish(b"a")[3], 0, "without a comment");
    }

    #[test]
    fn many_answers_at_once_are_encoded_fast() {
        let encoders = encoders(0);
        let held: Vec<_> = (0..encoders.processors).map(|_| encoder(&encoders)).collect();
        assert!(held.iter().all(|one| one.level == 6));
        assert_eq!(encoder(&encoders).level, BUSY_LEVEL);
        drop(held);
        assert_eq!(encoder(&encoders).level, 6);
        assert!(encoders.idle.lock().len() <= IDLE_MAX);
    }
}
