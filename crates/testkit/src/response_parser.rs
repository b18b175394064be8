//! Finding the end of a response, RFC 9112 section 6.3.

/// Longest head of a response, and longest line between chunks.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// What is known after some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseProgress {
    /// The answer goes on.
    Partial,
    /// It has ended; `keep_alive`: the connection can carry another request.
    Complete {
        /// The status code.
        status: u16,
        /// Whether the server keeps the connection.
        keep_alive: bool,
    },
    /// This is not a response that can be read.
    Invalid,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Fixed(u64),
    ChunkSize,
    /// So many bytes are left of a chunk and the line end behind it.
    ChunkData(u64),
    Trailer,
    UntilClose,
}

/// Reads one answer in pieces, however they are cut. Bodies are counted, not
/// kept.
#[derive(Debug)]
pub struct ResponseParser {
    state: State,
    /// The head, or a line between chunks, so far.
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
    /// A response of which nothing has come.
    pub fn new() -> Self {
        let text = Vec::with_capacity(512);
        Self { state: State::Head, text, status: 0, keep_alive: true }
    }

    /// Begins with the next one, in the same memory.
    pub fn reset(&mut self) {
        self.state = State::Head;
        self.text.clear();
    }

    /// Whether nothing of it has come yet.
    pub fn untouched(&self) -> bool {
        self.state == State::Head && self.text.is_empty()
    }

    /// Takes the next bytes.
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
                // Nobody asked for more than one answer.
                ParseProgress::Complete { .. } if !bytes.is_empty() => {
                    return ParseProgress::Invalid
                }
                ended => return ended,
            }
        }
        ParseProgress::Partial
    }

    /// The server closed the connection.
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

    /// Appends up to and with `end`; `None` while that has not come.
    fn collect(&mut self, bytes: &[u8], end: &[u8]) -> Option<usize> {
        let before = self.text.len();
        self.text.extend_from_slice(bytes);
        // The end may have been cut in two.
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

    /// What follows once a state has all it needs.
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
        // An interim answer is followed by the real one.
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

    /// The same in one piece, and cut at every place.
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
    fn ends_where_its_length_says() {
        assert_eq!(in_all_ways("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), KEPT);
        assert_eq!(in_all_ways("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), KEPT);
        let none = ParseProgress::Complete { status: 204, keep_alive: true };
        assert_eq!(in_all_ways("HTTP/1.1 204 No Content\r\n\r\n"), none);
    }

    #[test]
    fn ends_with_the_last_chunk() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert_eq!(in_all_ways(&format!("{head}5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n")), KEPT);
        assert_eq!(in_all_ways(&format!("{head}0\r\nX-Sum: 1\r\n\r\n")), KEPT);
    }

    #[test]
    fn an_interim_answer_is_not_the_end() {
        let text = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\n\
                    Content-Length: 1\r\n\r\nx";
        assert_eq!(in_all_ways(text), KEPT);
    }

    #[test]
    fn says_whether_the_connection_stays() {
        let text = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(in_all_ways(text), ParseProgress::Complete { status: 200, keep_alive: false });
        let mut answer = ResponseParser::new();
        assert_eq!(answer.feed(b"HTTP/1.0 500 Oh\r\n\r\nsorry"), ParseProgress::Partial);
        assert_eq!(answer.closed(), ParseProgress::Complete { status: 500, keep_alive: false });
    }

    #[test]
    fn two_answers_to_one_request_are_invalid() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK";
        assert_eq!(ResponseParser::new().feed(text.as_bytes()), ParseProgress::Invalid);
        assert_eq!(ResponseParser::new().feed(b"SSH-2.0-x\r\n\r\n"), ParseProgress::Invalid);
        assert_eq!(ResponseParser::new().closed(), ParseProgress::Invalid);
    }

    #[test]
    fn is_used_again() {
        let mut answer = ResponseParser::new();
        assert!(answer.untouched());
        assert_eq!(answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"), KEPT);
        answer.reset();
        assert!(answer.untouched());
        assert_eq!(answer.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), KEPT);
    }
}
