//! Finds the end of a response (RFC 9112 section 6.3).

/// Bound of a response's head, and of a line between chunks.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// The state of the response after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseProgress {
    /// The response is incomplete.
    Partial,
    /// The response is complete.
    Complete {
        /// The status code.
        status: u16,
        /// Whether the server keeps the connection.
        keep_alive: bool,
    },
    /// The bytes are not a valid response.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Fixed(u64),
    ChunkSize,
    /// Remaining bytes of a chunk and its line end.
    ChunkData(u64),
    Trailer,
    UntilClose,
}

/// Parses one response from pieces of any size. Bodies are counted, not
/// kept.
#[derive(Debug)]
pub struct ResponseParser {
    state: State,
    /// The head or a line between chunks so far.
    text: Vec<u8>,
    status: u16,
    keep_alive: bool,
}

impl Default for ResponseParser {
    fn default() -> Self {
        Self::new()
    }
}

impl ResponseParser {
    /// A parser before the first byte.
    pub fn new() -> Self {
        let text = Vec::with_capacity(512);
        Self { state: State::Head, text, status: 0, keep_alive: true }
    }

    /// Begins with the next response, in the same memory.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.text.clear();
    }

    /// Whether no byte has arrived yet.
    pub fn untouched(&self) -> bool {
        self.state == State::Head && self.text.is_empty()
    }

    /// Parses the next bytes.
    pub fn feed(&mut self, mut bytes: &[u8]) -> ParseProgress {
        while !bytes.is_empty() {
            let taken = match self.state {
                State::UntilClose => bytes.len(),
                State::Fixed(left) => self.skip(bytes, left, State::Fixed),
                State::ChunkData(left) => self.skip(bytes, left, State::ChunkData),
                State::Head => match self.collect(bytes, b"\r\n\r\n") {
                    Some(taken) => taken,
                    None => return self.unfinished(),
                },
                State::ChunkSize | State::Trailer => match self.collect(bytes, b"\r\n") {
                    Some(taken) => taken,
                    None => return self.unfinished(),
                },
            };
            bytes = &bytes[taken..];
            match self.advance() {
                ParseProgress::Partial => {}
                // One request has one response.
                ParseProgress::Complete { .. } if !bytes.is_empty() => {
                    return ParseProgress::Invalid
                }
                ended => return ended,
            }
        }
        ParseProgress::Partial
    }

    /// The result when the server closes the connection.
    pub fn closed(&self) -> ParseProgress {
        match self.state {
            State::UntilClose => ParseProgress::Complete { status: self.status, keep_alive: false },
            _ => ParseProgress::Invalid,
        }
    }

    fn skip(&mut self, bytes: &[u8], left: u64, state: fn(u64) -> State) -> usize {
        let taken = left.min(bytes.len() as u64);
        self.state = state(left - taken);
        taken as usize
    }

    /// Appends bytes up to and including `end`; `None` while it is missing.
    fn collect(&mut self, bytes: &[u8], end: &[u8]) -> Option<usize> {
        let before = self.text.len();
        self.text.extend_from_slice(bytes);
        // The end may be split between two pieces.
        let from = before.saturating_sub(end.len() - 1);
        let at = self.text[from..].windows(end.len()).position(|window| window == end)?;
        let length = from + at + end.len();
        self.text.truncate(length);
        Some(length - before)
    }

    fn unfinished(&self) -> ParseProgress {
        if self.text.len() > HEAD_BYTES_MAX {
            ParseProgress::Invalid
        } else {
            ParseProgress::Partial
        }
    }

    /// Moves on from a state whose bytes are complete.
    fn advance(&mut self) -> ParseProgress {
        let complete = ParseProgress::Complete { status: self.status, keep_alive: self.keep_alive };
        match self.state {
            State::Fixed(0) => return complete,
            State::Fixed(_) | State::UntilClose | State::ChunkData(1..) => {}
            State::ChunkData(0) => self.state = State::ChunkSize,
            State::Trailer if self.text == b"\r\n" => return complete,
            State::Trailer => self.text.clear(),
            State::ChunkSize => match chunk_size(&self.text) {
                Some(0) => self.next(State::Trailer),
                Some(size) => self.next(State::ChunkData(size + 2)),
                None => return ParseProgress::Invalid,
            },
            State::Head => match self.read_head() {
                Some(State::Fixed(0)) => {
                    return ParseProgress::Complete {
                        status: self.status,
                        keep_alive: self.keep_alive,
                    }
                }
                Some(state) => self.next(state),
                None => return ParseProgress::Invalid,
            },
        }
        ParseProgress::Partial
    }

    fn next(&mut self, state: State) {
        self.state = state;
        self.text.clear();
    }

    fn read_head(&mut self) -> Option<State> {
        let head = std::str::from_utf8(&self.text).ok()?;
        let mut lines = head.split("\r\n");
        let first = lines.next()?;
        let mut words = first.split(' ');
        let old = words.next()? == "HTTP/1.0";
        self.status = words.next()?.parse().ok()?;
        self.keep_alive = !old;
        let mut state = State::UntilClose;
        for line in lines.filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':')?;
            let value = value.trim();
            if name.eq_ignore_ascii_case("connection") {
                self.keep_alive = !value.eq_ignore_ascii_case("close")
                    && (!old || value.eq_ignore_ascii_case("keep-alive"));
            } else if name.eq_ignore_ascii_case("content-length") {
                state = State::Fixed(value.parse().ok()?);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                state = State::ChunkSize;
            }
        }
        // An interim response is followed by the final one.
        Some(match self.status {
            100..=199 => State::Head,
            204 | 304 => State::Fixed(0),
            _ => state,
        })
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(line).ok()?.trim_end();
    u64::from_str_radix(text.split(';').next()?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: ParseProgress = ParseProgress::Complete { status: 200, keep_alive: true };

    /// Parses the text in one piece, and split at every position.
    fn in_all_ways(text: &str) -> ParseProgress {
        let whole = ResponseParser::new().feed(text.as_bytes());
        for cut in 1..text.len() {
            let mut answer = ResponseParser::new();
            assert_eq!(
                answer.feed(&text.as_bytes()[..cut]),
                ParseProgress::Partial,
                "cut at {cut}"
            );
            assert_eq!(answer.feed(&text.as_bytes()[cut..]), whole, "cut at {cut}");
        }
        whole
    }

    #[test]
    fn a_response_ends_after_its_content_length() {
        assert_eq!(in_all_ways("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), KEPT);
        assert_eq!(in_all_ways("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), KEPT);
        let none = ParseProgress::Complete { status: 204, keep_alive: true };
        assert_eq!(in_all_ways("HTTP/1.1 204 No Content\r\n\r\n"), none);
    }

    #[test]
    fn a_chunked_response_ends_with_the_last_chunk() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(in_all_ways(&format!("{head}5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n")), KEPT);
        assert_eq!(in_all_ways(&format!("{head}0\r\nX-Sum: 1\r\n\r\n")), KEPT);
    }

    #[test]
    fn an_interim_response_is_not_the_end() {
        let text = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n\
                    Content-Length: 1\r\n\r\nx";
        assert_eq!(in_all_ways(text), KEPT);
    }

    #[test]
    fn the_result_tells_whether_the_connection_stays_open() {
        let text = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(in_all_ways(text), ParseProgress::Complete { status: 200, keep_alive: false });
        let mut answer = ResponseParser::new();
        assert_eq!(answer.feed(b"HTTP/1.0 500 Oh\r\n\r\nsorry"), ParseProgress::Partial);
        assert_eq!(answer.closed(), ParseProgress::Complete { status: 500, keep_alive: false });
    }

    #[test]
    fn two_responses_to_one_request_are_invalid() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK";
        assert_eq!(ResponseParser::new().feed(text.as_bytes()), ParseProgress::Invalid);
        assert_eq!(ResponseParser::new().feed(b"SSH-2.0-x\r\n\r\n"), ParseProgress::Invalid);
        assert_eq!(ResponseParser::new().closed(), ParseProgress::Invalid);
    }

    #[test]
    fn a_parser_can_be_reused() {
        let mut answer = ResponseParser::new();
        assert!(answer.untouched());
        assert_eq!(answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), KEPT);
        answer.reset();
        assert!(answer.untouched());
        assert_eq!(answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), KEPT);
    }
}
