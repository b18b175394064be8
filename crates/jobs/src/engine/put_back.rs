//! Jobs that this release cannot run, because it does not know their class or the format of their document. In a
//! rolling deploy, or after a deploy was taken back, another release can: they wait for it in the schedule.

use super::orphans;
use crate::document::Document;
use crate::outcome::Outcome;

/// How soon such a job is claimed again: after as long as it has waited, within these bounds (s). The shorter one is
/// longer than a claim takes, the longer one shorter than a deploy that somebody waits for.
const AGAIN_S: (f64, f64) = (5.0, 600.0);
/// How long it waits (s). After that nobody deploys its release any more.
const WAIT_MAX_S: f64 = 24.0 * 3600.0;

/// How a job is put back; `None` when it has waited for too long.
pub(super) fn put_back(doc: &Document, now_s: f64) -> Option<Outcome> {
    let mut extra = doc.extra().cloned().unwrap_or_default();
    let since_s = extra.unknown_since.unwrap_or(now_s).min(now_s);
    let waited_s = now_s - since_s;
    if waited_s > WAIT_MAX_S {
        return None;
    }
    extra.unknown_since = Some(since_s);
    let payload = orphans::mark(doc, &extra, None);
    Some(Outcome::Reschedule { at: now_s + waited_s.clamp(AGAIN_S.0, AGAIN_S.1), payload })
}

/// The end of a job of a newer format that has waited for too long.
pub(super) fn bury(doc: &Document, now_s: f64) -> Outcome {
    let mut extra = doc.extra().cloned().unwrap_or_default();
    extra.unknown_since = None;
    let message = format!(
        "its document has the format {} of a later version, which no process has run for a day",
        extra.format
    );
    let error = ("Chaton::Jobs::NewerFormat", message, now_s);
    Outcome::Dead { at: now_s, payload: orphans::mark(doc, &extra, Some(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(chaton: &str, now_s: f64) -> Option<(f64, Document)> {
        let text = format!(r#"{{"class":"A","args":[],"later":[1.0],"chaton":{chaton}}}"#);
        match put_back(&Document::parse(text.as_bytes().into()).unwrap(), now_s)? {
            Outcome::Reschedule { at, payload } => {
                Some((at, Document::parse(payload.unwrap().into()).unwrap()))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_is_put_back_for_longer_and_longer_and_for_a_day() {
        let rows = [
            ("{}", 100.0, 105.0),
            (r#"{"unknown_since":99.0}"#, 100.0, 105.0),
            (r#"{"unknown_since":40.0}"#, 100.0, 160.0),
            (r#"{"unknown_since":0.0}"#, 2_000.0, 2_600.0),
            (r#"{"unknown_since":500.0}"#, 100.0, 105.0),
        ];
        for (chaton, now_s, due_s) in rows {
            let (at, doc) = put(chaton, now_s).unwrap();
            assert_eq!(at, due_s, "{chaton}");
            assert!(doc.extra().unwrap().unknown_since.unwrap() <= now_s);
            assert!(String::from_utf8_lossy(doc.payload()).contains(r#""later":[1.0]"#));
        }
        assert!(put(r#"{"unknown_since":0.0}"#, WAIT_MAX_S + 1.0).is_none());
    }

    #[test]
    fn a_document_without_the_member_gets_one() {
        let doc = Document::parse(br#"{"class":"A","args":[]}"#.as_slice().into()).unwrap();
        let Some(Outcome::Reschedule { payload: Some(payload), .. }) = put_back(&doc, 7.0) else {
            panic!("not put back");
        };
        assert_eq!(payload, br#"{"class":"A","args":[],"chaton":{"unknown_since":7.000}}"#);
    }
}
