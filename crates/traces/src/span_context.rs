//! What names a span in other processes: the W3C's `traceparent` and `tracestate`.

/// Bytes of a `traceparent`.
pub const TRACEPARENT_BYTES: usize = 55;
/// A longer `tracestate` is not passed on, as the standard allows.
const STATE_BYTES_MAX: usize = 512;

/// A span of this or another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanContext {
    /// The trace, never 0.
    pub trace_id: u128,
    /// The span, never 0.
    pub span_id: u64,
    /// Whether it is recorded.
    pub sampled: bool,
    /// `tracestate`, passed on as it came.
    pub state: Option<Box<str>>,
}

impl SpanContext {
    /// Reads both headers; `None` when the first one is not of the standard's form.
    pub fn parse(traceparent: &[u8], tracestate: Option<&[u8]>) -> Option<Self> {
        let at = |from: usize, to: usize| hex(traceparent.get(from..to)?);
        let dash = |index: usize| traceparent.get(index) == Some(&b'-');
        let version = at(0, 2)?;
        let whole = match version {
            0 => traceparent.len() == TRACEPARENT_BYTES,
            // A later version may add fields.
            1..=0xfe => traceparent.len() == TRACEPARENT_BYTES || dash(TRACEPARENT_BYTES),
            _ => false,
        };
        if !(whole && dash(2) && dash(35) && dash(52)) {
            return None;
        }
        let (trace_id, span_id) = (at(3, 35)?, at(36, 52)? as u64);
        let sampled = at(53, 55)? & 1 == 1;
        let state = tracestate.and_then(state);
        (trace_id != 0 && span_id != 0).then_some(Self { trace_id, span_id, sampled, state })
    }

    /// The header `traceparent`.
    pub fn traceparent(&self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], &self.trace_id.to_be_bytes());
        write_hex(&mut text[36..52], &self.span_id.to_be_bytes());
        text[54] = if self.sampled { b'1' } else { b'0' };
        text
    }

    /// The trace's id as it is written: 32 digits.
    pub fn trace_id_text(&self) -> String {
        format!("{:032x}", self.trace_id)
    }
}

fn state(text: &[u8]) -> Option<Box<str>> {
    let fits = !text.is_empty() && text.len() <= STATE_BYTES_MAX;
    let plain = text.iter().all(|byte| (0x20..=0x7e).contains(byte));
    (fits && plain).then(|| std::str::from_utf8(text).ok().map(Into::into)).flatten()
}

/// Small letters only, as the standard demands.
fn hex(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

fn write_hex(text: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (pair, byte) in text.chunks_exact_mut(2).zip(bytes) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parse(text: &str) -> Option<SpanContext> {
        SpanContext::parse(text.as_bytes(), None)
    }

    #[test]
    fn the_standards_example_is_read_and_written() {
        let context = parse(EXAMPLE).unwrap();
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert_eq!((context.span_id, context.sampled), (0x00f0_67aa_0ba9_02b7, true));
        assert_eq!(context.traceparent(), EXAMPLE.as_bytes());
        assert_eq!(context.trace_id_text(), "4bf92f3577b34da6a3ce929d0e0e4736");
        let unsampled = parse(&EXAMPLE.replace("-01", "-00")).unwrap();
        assert!(!unsampled.sampled && unsampled.traceparent().ends_with(b"-00"));
        assert!(parse(&EXAMPLE.replace("-01", "-ff")).unwrap().sampled);
    }

    #[test]
    fn a_later_version_may_be_longer() {
        let later = format!("01{}-more", &EXAMPLE[2..]);
        assert_eq!(parse(&later).unwrap().traceparent(), EXAMPLE.as_bytes());
        assert!(parse(&format!("01{}", &EXAMPLE[2..])).is_some());
        assert!(parse(&format!("01{}more", &EXAMPLE[2..])).is_none());
    }

    #[test]
    fn what_is_not_of_the_form_is_ignored() {
        for text in [
            "",
            "00",
            &EXAMPLE[1..],
            &format!("{EXAMPLE}-"),
            &EXAMPLE.to_uppercase(),
            &format!("ff{}", &EXAMPLE[2..]),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473g-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_passed_on_unless_it_is_too_long_or_no_text() {
        let state = |text: &[u8]| SpanContext::parse(EXAMPLE.as_bytes(), Some(text)).unwrap().state;
        assert_eq!(state(b"a=1,b=2").as_deref(), Some("a=1,b=2"));
        assert_eq!(state(b""), None);
        assert_eq!(state(b"a=\xff"), None);
        assert_eq!(state(b"a=1\r\nX: 1"), None);
        assert_eq!(state(&[b'a'; STATE_BYTES_MAX + 1]), None);
    }
}
