//! The wire format: commands as RESP arrays of bulk strings, replies as RESP3.

use std::io::Write as _;

/// A reply.
#[derive(Clone, Debug, PartialEq)]
pub enum RespValue {
    /// Null.
    Nil,
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Double(f64),
    /// A string.
    Bulk(Vec<u8>),
    /// An array or a set; a map with its keys and values in turn.
    Array(Vec<RespValue>),
    /// A pushed message.
    Push(Vec<RespValue>),
    /// The server's error, its code first.
    Error(String),
}

impl RespValue {
    /// The integer of a number or a text.
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(n) => Some(*n),
            Self::Double(n) => Some(*n as i64),
            Self::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// A count; 0 for anything that is none.
    pub fn count(&self) -> u64 {
        self.int().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }

    /// The floating-point number of a number or a text.
    pub fn float(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Double(n) => Some(*n),
            Self::Bulk(text) => std::str::from_utf8(text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// The bytes of a string; empty for anything else.
    pub fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bulk(bytes) => bytes,
            _ => Vec::new(),
        }
    }

    /// Text with invalid UTF-8 replaced; empty for anything else.
    pub fn text(self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8(bytes)
                .unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned()),
            Self::Int(n) => n.to_string(),
            _ => String::new(),
        }
    }

    /// Members of an array; empty for anything else.
    pub fn items(self) -> Vec<RespValue> {
        match self {
            Self::Array(items) | Self::Push(items) => items,
            _ => Vec::new(),
        }
    }

    /// Keys and values of a map.
    pub fn pairs(self) -> Vec<(RespValue, RespValue)> {
        let mut items = self.items().into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(key), Some(value)) = (items.next(), items.next()) {
            pairs.push((key, value));
        }
        pairs
    }

    /// Members and scores of `WITHSCORES`: pairs in RESP3.
    pub fn scored(self) -> Vec<(Vec<u8>, f64)> {
        let pair = |item: RespValue| {
            let mut pair = item.items().into_iter();
            let member = pair.next()?.bytes();
            Some((member, pair.next()?.float()?))
        };
        self.items().into_iter().filter_map(pair).collect()
    }
}

/// Commands that are sent together.
#[derive(Debug, Default)]
pub struct Pipeline {
    bytes: Vec<u8>,
    starts: Vec<usize>,
}

impl Pipeline {
    /// Without commands.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for so many further bytes.
    pub fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve(bytes);
    }

    /// Begins a command; calls that add this number of words must follow.
    pub fn begin(&mut self, words: usize) -> &mut Self {
        self.starts.push(self.bytes.len());
        self.head(b'*', words);
        self
    }

    /// Adds one word.
    pub fn word(&mut self, word: impl AsRef<[u8]>) -> &mut Self {
        self.parts(&[word.as_ref()])
    }

    /// Adds one word made of several parts.
    pub fn parts(&mut self, parts: &[&[u8]]) -> &mut Self {
        self.head(b'$', parts.iter().map(|part| part.len()).sum());
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    /// Adds a number as a word.
    pub fn number(&mut self, number: impl Into<i128>) -> &mut Self {
        let mut text = [0u8; 40];
        let mut rest = &mut text[..];
        // 40 bytes hold any number of 128 bits.
        let _ = write!(rest, "{}", number.into());
        let left = rest.len();
        self.word(&text[..40 - left])
    }

    /// Adds a floating-point number as a word, in the shortest form that reads
    /// back to the same number, always with a point (`1700000000.0`).
    pub fn float(&mut self, number: f64) -> &mut Self {
        self.word(format!("{number:?}"))
    }

    /// Adds a whole command.
    pub fn command(&mut self, words: &[&[u8]]) -> &mut Self {
        self.begin(words.len());
        for word in words {
            self.word(word);
        }
        self
    }

    /// Adds another pipeline's commands.
    pub fn append(&mut self, other: &Pipeline) -> &mut Self {
        let base = self.bytes.len();
        self.starts.extend(other.starts.iter().map(|start| base + start));
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    /// Number of commands.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there are no commands.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes of one command.
    pub fn command_bytes(&self, index: usize) -> &[u8] {
        let end = self.starts.get(index + 1).copied().unwrap_or(self.bytes.len());
        &self.bytes[self.starts[index]..end]
    }

    fn head(&mut self, kind: u8, count: usize) {
        self.bytes.push(kind);
        self.bytes.extend_from_slice(decimal(&mut [0; 20], count as u64));
        self.bytes.extend_from_slice(b"\r\n");
    }
}

/// The decimal digits of a number: much faster than `format!`.
pub fn decimal(buffer: &mut [u8; 20], number: u64) -> &[u8] {
    let (mut at, mut rest) = (buffer.len(), number);
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return &buffer[at..];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_commands_one_after_the_other() {
        let mut pipeline = Pipeline::new();
        pipeline.command(&[b"GET", b"a\r\n"]);
        pipeline.begin(3).word("SET").number(-12i64).float(1_700_000_000.0);
        assert_eq!(pipeline.len(), 2);
        assert_eq!(pipeline.command_bytes(0), b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
        assert_eq!(
            pipeline.command_bytes(1),
            b"*3\r\n$3\r\nSET\r\n$3\r\n-12\r\n$12\r\n1700000000.0\r\n"
        );
    }
}
