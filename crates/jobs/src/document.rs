//! The job document: one JSON object. The members that Chaton needs are read
//! once; the payload keeps its bytes.

mod extra;
mod fields;
mod stamp;

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;

pub use extra::{Extra, FORMAT};
pub use fields::Fields;
pub use stamp::{enqueued_at, stamp, stamped};

/// Bytes of a malformed document that an error shows.
const SHOWN_MAX: usize = 200;

#[derive(Deserialize)]
struct RawDocument<'a> {
    #[serde(borrow)]
    class: Cow<'a, str>,
    #[serde(borrow)]
    args: &'a RawValue,
    #[serde(borrow, default)]
    jid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    queue: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    bid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    chaton: Option<&'a RawValue>,
    #[serde(borrow, default)]
    enqueued_at: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tracestate: Option<&'a RawValue>,
}

/// A parsed document.
#[derive(Clone, Debug)]
pub struct Document {
    payload: Arc<[u8]>,
    class: Span,
    jid: Span,
    queue: Span,
    args: Range<usize>,
    bid: Option<Box<str>>,
    extra: Option<Box<Extra>>,
    enqueued_at_s: Option<f64>,
    trace: Option<Box<TraceMembers>>,
}

/// The span that pushed a job, as the W3C's headers name it.
#[derive(Clone, Debug)]
struct TraceMembers {
    traceparent: String,
    tracestate: Option<String>,
}

impl TraceMembers {
    /// Those that are text; other software may have written anything.
    fn read(traceparent: &RawValue, tracestate: Option<&RawValue>) -> Option<Box<Self>> {
        let text = |raw: &RawValue| serde_json::from_str(raw.get()).ok();
        let (traceparent, tracestate) = (text(traceparent)?, tracestate.and_then(text));
        Some(Box::new(Self { traceparent, tracestate }))
    }
}

/// Text within the payload, or a copy where it has escapes.
#[derive(Clone, Debug)]
enum Span {
    At(Range<usize>),
    Own(Box<str>),
}

/// A payload that is no job document, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Malformed(pub String);

impl Document {
    /// Reads a document.
    ///
    /// # Errors
    /// The reason, with the beginning of the payload.
    pub fn parse(payload: Arc<[u8]>) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(&payload)
            .map_err(|e| malformed(&payload, &format!("is not UTF-8: {e}")))?;
        let wire: RawDocument<'_> = serde_json::from_str(text)
            .map_err(|e| malformed(&payload, &format!("is no job document: {e}")))?;
        let args = range_in(text, wire.args.get());
        if text.as_bytes()[args.start] != b'[' {
            return Err(malformed(&payload, "has args that are no array"));
        }
        let extra = match wire.chaton {
            Some(raw) => Some(Box::new(
                Extra::parse(raw.get())
                    .map_err(|e| malformed(&payload, &format!("key chaton: {e}")))?,
            )),
            None => None,
        };
        let class = span(text, Some(wire.class));
        let jid = span(text, wire.jid);
        let queue = span(text, wire.queue);
        let bid = wire.bid.map(|bid| bid.into_owned().into_boxed_str());
        let enqueued_at_s = wire.enqueued_at.and_then(|at| stamp::read_stamp(at.get()));
        let trace = wire.traceparent.and_then(|one| TraceMembers::read(one, wire.tracestate));
        Ok(Self { class, jid, queue, args, bid, extra, enqueued_at_s, trace, payload })
    }

    /// When it was enqueued (s since 1970), where it says so.
    pub fn enqueued_at_s(&self) -> Option<f64> {
        self.enqueued_at_s
    }

    /// The span that pushed it, as the header `traceparent` names it.
    pub fn traceparent(&self) -> Option<&str> {
        self.trace.as_ref().map(|trace| &*trace.traceparent)
    }

    /// The header `tracestate` that belongs to it.
    pub fn tracestate(&self) -> Option<&str> {
        self.trace.as_ref().and_then(|trace| trace.tracestate.as_deref())
    }

    /// The document's bytes.
    pub fn payload(&self) -> &Arc<[u8]> {
        &self.payload
    }

    /// Name of the class.
    pub fn class(&self) -> &str {
        self.text(&self.class)
    }

    /// Name of the class for people: of an ActiveJob the job's own class. It reads the whole document again.
    pub fn display_class(&self) -> String {
        let fields = Fields::parse(&self.payload).ok();
        let named = fields.and_then(|f| f.text("display_class").or_else(|| f.text("wrapped")));
        named.unwrap_or_else(|| self.class().to_owned())
    }

    /// Id of the job; empty when it has none.
    pub fn jid(&self) -> &str {
        self.text(&self.jid)
    }

    /// Name of its queue; empty when it has none.
    pub fn queue(&self) -> &str {
        self.text(&self.queue)
    }

    /// Its arguments: a JSON array.
    pub fn args(&self) -> &str {
        self.part(&self.args)
    }

    /// The batch it belongs to.
    pub fn bid(&self) -> Option<&str> {
        self.bid.as_deref()
    }

    /// The member `chaton`.
    pub fn extra(&self) -> Option<&Extra> {
        self.extra.as_deref()
    }

    /// Whether a later version wrote it, in a format that this one does not read.
    pub fn is_newer(&self) -> bool {
        self.extra().is_some_and(Extra::is_newer)
    }

    /// The document with these counts of engines; all else in it is kept as it is.
    pub fn counted(&self, extra: &Extra) -> Result<Fields<'_>, serde_json::Error> {
        let mut fields = Fields::parse(&self.payload)?;
        let counted = extra.counted_in(fields.get("chaton"))?;
        fields.set("chaton", counted);
        Ok(fields)
    }

    /// The document with this time since which it waits behind a limit, or without one. `None`: it has it already.
    pub fn waiting(&self, since_s: Option<f64>) -> Option<Vec<u8>> {
        self.extra().filter(|extra| extra.since != since_s)?;
        let mut fields = Fields::parse(&self.payload).ok()?;
        let mut extra = Fields::parse(fields.get("chaton")?.as_bytes()).ok()?;
        match since_s {
            Some(since_s) => extra.set("since", format!("{since_s:?}")),
            None => extra.remove("since"),
        }
        let extra = String::from_utf8(extra.to_vec()).ok()?;
        fields.set("chaton", extra);
        Some(fields.to_vec())
    }

    fn text<'a>(&'a self, span: &'a Span) -> &'a str {
        match span {
            Span::At(range) => self.part(range),
            Span::Own(text) => text,
        }
    }

    fn part(&self, range: &Range<usize>) -> &str {
        // SAFETY: `parse` found the payload to be UTF-8, and this range to hold a part of that text.
        unsafe { std::str::from_utf8_unchecked(&self.payload[range.clone()]) }
    }
}

fn span(text: &str, part: Option<Cow<'_, str>>) -> Span {
    match part {
        Some(Cow::Borrowed(part)) => Span::At(range_in(text, part)),
        Some(Cow::Owned(part)) => Span::Own(part.into()),
        None => Span::Own("".into()),
    }
}

/// Where `part`, a slice of `text`, lies in it.
fn range_in(text: &str, part: &str) -> Range<usize> {
    let start = part.as_ptr() as usize - text.as_ptr() as usize;
    start..start + part.len()
}

fn malformed(payload: &[u8], why: &str) -> Malformed {
    let shown = String::from_utf8_lossy(&payload[..payload.len().min(SHOWN_MAX)]);
    Malformed(format!("a job {why}: {shown:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Document, Malformed> {
        Document::parse(text.as_bytes().into())
    }

    #[test]
    fn reads_its_members_and_keeps_the_payload() {
        let text = r#"{"retry":true,"queue":"low","class":"A::B","args":[1,{"x":[2]}],"jid":"abc","bid":"b1","odd":{"z":1}}"#;
        let job = parse(text).unwrap();
        assert_eq!((job.class(), job.jid(), job.queue()), ("A::B", "abc", "low"));
        assert_eq!(job.args(), r#"[1,{"x":[2]}]"#);
        assert_eq!(job.bid(), Some("b1"));
        assert_eq!(&**job.payload(), text.as_bytes());
    }

    #[test]
    fn reads_escaped_names_and_missing_ones() {
        let job = parse(r#"{"class":"A\u0042","args":[]}"#).unwrap();
        assert_eq!((job.class(), job.jid(), job.queue()), ("AB", "", ""));
        assert!(job.extra().is_none());
        assert_eq!(job.display_class(), "AB");
        let job = parse(r#"{"class":"Wrapper","wrapped":"Mail","args":[]}"#).unwrap();
        assert_eq!(job.display_class(), "Mail");
    }

    #[test]
    fn reads_the_span_that_pushed_it_and_ignores_what_is_no_text() {
        let job = parse(
            r#"{"class":"A","args":[{"traceparent":"x"}],"tracestate":"a=\"1\"","traceparent":"00-1"}"#,
        );
        let job = job.unwrap();
        assert_eq!((job.traceparent(), job.tracestate()), (Some("00-1"), Some("a=\"1\"")));
        let job =
            parse(r#"{"class":"A","args":[{"traceparent":"x"}],"traceparent":{"a":1}}"#).unwrap();
        assert_eq!((job.traceparent(), job.tracestate()), (None, None));
    }

    #[test]
    fn a_place_in_a_line_is_written_and_removed() {
        let without =
            r#"{"class":"A","args":[],"chaton":{"odd":1,"limits":[{"key":"k","max":1}]},"z":1.50}"#;
        let with = without.replace("}]}", r#"}],"since":5.25}"#);
        let written = parse(without).unwrap().waiting(Some(5.25)).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), with);
        let job = parse(&with).unwrap();
        assert_eq!(job.waiting(Some(5.25)), None);
        assert_eq!(job.waiting(None).unwrap(), without.as_bytes());
    }

    #[test]
    fn refuses_malformed_documents() {
        for bad in [
            "",
            "{",
            "[]",
            "null",
            r#"{"class":"A"}"#,
            r#"{"class":1,"args":[]}"#,
            r#"{"class":"A","args":{}}"#,
            r#"{"class":"A","args":[]} x"#,
            r#"{"class":"A","args":[],"chaton":3}"#,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        assert!(Document::parse(b"{\"class\":\"\xff\",\"args\":[]}".as_slice().into()).is_err());
    }
}
