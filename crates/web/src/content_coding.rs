//! Content codings, and which of them a client accepts (RFC 9110 section 12.5.3).

use crate::head::class::trim;
use crate::head::RequestHead;

/// A content coding that the server can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentCoding {
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
    /// `gzip`
    Gzip,
}

impl ContentCoding {
    /// All of them; the server prefers the first one.
    pub const ALL: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Its name in `Accept-Encoding` and `Content-Encoding`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Brotli => "br",
            Self::Zstd => "zstd",
            Self::Gzip => "gzip",
        }
    }

    /// What the name of a file that was compressed beforehand ends with.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    fn from_name(name: &[u8]) -> Option<Self> {
        if name.eq_ignore_ascii_case(b"x-gzip") {
            return Some(Self::Gzip);
        }
        Self::ALL.into_iter().find(|coding| name.eq_ignore_ascii_case(coding.name().as_bytes()))
    }
}

/// The weights that a client gives to codings, in thousandths. A coding of weight 0 is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcceptedCodings {
    weights: [Option<u16>; 3],
    identity: Option<u16>,
    others: Option<u16>,
}

impl AcceptedCodings {
    /// Those of a request. Without `Accept-Encoding` the client gets the bytes as they are.
    pub fn of(head: &RequestHead) -> Self {
        let mut accepted = Self::default();
        for &(name, value) in &head.headers {
            let name = head.get(name);
            if name.len() == 15 && name.eq_ignore_ascii_case(b"accept-encoding") {
                accepted.add(head.get(value));
            }
        }
        accepted
    }

    /// Adds one line of the header.
    pub fn add(&mut self, value: &[u8]) {
        for element in value.split(|&byte| byte == b',') {
            let mut parts = element.split(|&byte| byte == b';');
            let name = trim(parts.next().unwrap_or_default());
            let weight = Some(weight(parts));
            if name == b"*" {
                self.others = weight;
            } else if name.eq_ignore_ascii_case(b"identity") {
                self.identity = weight;
            } else if let Some(coding) = ContentCoding::from_name(name) {
                self.weights[coding as usize] = weight;
            }
        }
    }

    fn weight(&self, coding: ContentCoding) -> u16 {
        self.weights[coding as usize].or(self.others).unwrap_or(0)
    }

    /// The coding that the client prefers among those available; `None`: the bytes as they are.
    pub fn best(&self, available: impl Fn(ContentCoding) -> bool) -> Option<ContentCoding> {
        let mut best = None;
        let mut best_weight = self.identity.unwrap_or(0);
        // From the last one on, so that an earlier one wins with the same weight.
        for coding in ContentCoding::ALL.into_iter().rev() {
            let weight = self.weight(coding);
            if weight > 0 && weight >= best_weight && available(coding) {
                (best, best_weight) = (Some(coding), weight);
            }
        }
        best
    }
}

/// The weight among the parameters of an element; one that is malformed refuses the coding.
fn weight<'a>(parameters: impl Iterator<Item = &'a [u8]>) -> u16 {
    for parameter in parameters {
        let Some((name, value)) = split_once(parameter, b'=') else { continue };
        if trim(name).eq_ignore_ascii_case(b"q") {
            return thousandths(trim(value)).unwrap_or(0);
        }
    }
    1000
}

pub(crate) fn split_once(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let position = memchr::memchr(at, bytes)?;
    Some((&bytes[..position], &bytes[position + 1..]))
}

/// `0.8` → 800.
fn thousandths(text: &[u8]) -> Option<u16> {
    let (whole, fraction) = split_once(text, b'.').unwrap_or((text, b""));
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digit = |index: usize| fraction.get(index).map_or(0, |digit| u16::from(digit - b'0'));
    let parts = digit(0) * 100 + digit(1) * 10 + digit(2);
    match whole {
        b"0" => Some(parts),
        b"1" if parts == 0 => Some(1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_coding_follows_the_weights_and_then_the_servers_order() {
        use ContentCoding::{Brotli, Gzip, Zstd};
        let all: &[_] = &[Brotli, Zstd, Gzip];
        for (header, available, best) in [
            ("gzip, deflate, br, zstd", all, Some(Brotli)),
            ("gzip, deflate, br", &[Gzip][..], Some(Gzip)),
            ("GZIP", all, Some(Gzip)),
            ("x-gzip", all, Some(Gzip)),
            ("gzip;q=0.5, zstd;q=0.8, br ; Q=0.1", all, Some(Zstd)),
            ("br;q=0, *", all, Some(Zstd)),
            ("*;q=0", all, None),
            ("identity, gzip;q=0.5", all, None),
            ("identity;q=0.5, gzip;q=0.5", all, Some(Gzip)),
            ("identity;q=0, gzip;q=0.001", all, Some(Gzip)),
            ("gzip;q=1.001", all, None),
            ("gzip;q=2", all, None),
            ("gzip;q=.5", all, None),
            ("gzip;q=0.1234", all, None),
            ("gzip;q=", all, None),
            ("gzip;q=-1", all, None),
            ("gzip;level=9", all, Some(Gzip)),
            ("gzip;q=1.000", all, Some(Gzip)),
            ("gzipped, deflate", all, None),
            (",,;;,", all, None),
            ("", all, None),
        ] {
            let mut accepted = AcceptedCodings::default();
            accepted.add(header.as_bytes());
            assert_eq!(accepted.best(|coding| available.contains(&coding)), best, "{header}");
        }
    }
}
