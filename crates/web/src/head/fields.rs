//! Header lines, byte by byte: of a head that arrives in pieces, and of the
//! trailers of a chunked body. Stricter than any line reader: CRLF only, no
//! folding, no space around names, no control bytes.

use super::class::{is_token, is_value};
use super::error::HeadError;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    LineStart,
    Name,
    Value,
    /// After the CR that ends a line.
    LineCr,
    /// After the CR of the blank line.
    EndCr,
}

/// Where a scan of header lines stands between two reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldScan {
    state: State,
    count: usize,
}

impl FieldScan {
    /// Header lines begun so far.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Scans `bytes`, none of which was seen before. Returns how many belong to
    /// the section if its blank line is among them, else `None`.
    pub(crate) fn run(
        &mut self,
        bytes: &[u8],
        count_max: usize,
    ) -> Result<Option<usize>, HeadError> {
        let mut at = 0;
        while at < bytes.len() {
            let byte = bytes[at];
            at += 1;
            match self.state {
                State::LineStart => self.begin_line(byte, count_max)?,
                State::Name => {
                    let rest = &bytes[at - 1..];
                    let run = rest.iter().position(|&b| !is_token(b)).unwrap_or(rest.len());
                    if run == rest.len() {
                        break;
                    }
                    end_name(rest[run])?;
                    at += run;
                    self.state = State::Value;
                }
                State::Value => {
                    let rest = &bytes[at - 1..];
                    let run = rest.iter().position(|&b| !is_value(b)).unwrap_or(rest.len());
                    if run == rest.len() {
                        break;
                    }
                    end_value(rest[run])?;
                    at += run;
                    self.state = State::LineCr;
                }
                State::LineCr if byte == b'\n' => self.state = State::LineStart,
                State::EndCr if byte == b'\n' => return Ok(Some(at)),
                State::LineCr | State::EndCr => return Err(HeadError::BareCr),
            }
        }
        Ok(None)
    }

    fn begin_line(&mut self, byte: u8, count_max: usize) -> Result<(), HeadError> {
        match byte {
            b'\r' => self.state = State::EndCr,
            b'\n' => return Err(HeadError::BareLf),
            b' ' | b'\t' => return Err(HeadError::Folded),
            b':' => return Err(HeadError::EmptyName),
            _ if !is_token(byte) => return Err(HeadError::Name),
            _ if self.count >= count_max => return Err(HeadError::TooManyHeaders),
            _ => {
                self.count += 1;
                self.state = State::Name;
            }
        }
        Ok(())
    }
}

fn end_name(byte: u8) -> Result<(), HeadError> {
    match byte {
        b':' => Ok(()),
        b' ' | b'\t' => Err(HeadError::SpaceBeforeColon),
        b'\r' | b'\n' => Err(HeadError::NoColon),
        _ => Err(HeadError::Name),
    }
}

fn end_value(byte: u8) -> Result<(), HeadError> {
    match byte {
        b'\r' => Ok(()),
        b'\n' => Err(HeadError::BareLf),
        _ => Err(HeadError::Value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
        let whole = FieldScan::default().run(bytes, 3);
        let mut scan = FieldScan::default();
        let mut chopped = Ok(None);
        for (at, byte) in bytes.iter().enumerate() {
            chopped = scan.run(std::slice::from_ref(byte), 3).map(|end| end.map(|n| n + at));
            if chopped != Ok(None) {
                break;
            }
        }
        assert_eq!(whole, chopped, "{:?} byte by byte", bytes.escape_ascii().to_string());
        whole
    }

    #[test]
    fn sections_end_at_their_blank_line() {
        assert_eq!(scan(b"\r\n"), Ok(Some(2)));
        assert_eq!(scan(b"a: b\r\n\r\nrest"), Ok(Some(8)));
        assert_eq!(scan(b"a:\r\nb: \tc d \r\n\r\n"), Ok(Some(16)));
        assert_eq!(scan(b"a: \xff\r\n\r\n"), Ok(Some(8)));
        for partial in [&b""[..], b"\r", b"a", b"a:", b"a: b", b"a: b\r", b"a: b\r\n\r"] {
            assert_eq!(scan(partial), Ok(None));
        }
    }

    #[test]
    fn each_fault_is_named() {
        use HeadError::*;
        for (bytes, fault) in [
            (&b"\n"[..], BareLf),
            (b"a: b\n", BareLf),
            (b"a: b\rc", BareCr),
            (b"\rx", BareCr),
            (b" a: b", Folded),
            (b"a: b\r\n\tc", Folded),
            (b":", EmptyName),
            (b"a b", SpaceBeforeColon),
            (b"a\t:", SpaceBeforeColon),
            (b"a\r", NoColon),
            (b"a\n", NoColon),
            (b"a(: b", Name),
            (b"\x80: b", Name),
            (b"a: \0", Value),
            (b"a: \x7f", Value),
            (b"a:\x0bb", Value),
            (b"a:\r\na:\r\na:\r\na", TooManyHeaders),
        ] {
            assert_eq!(scan(bytes), Err(fault), "{:?}", bytes.escape_ascii().to_string());
        }
    }
}
