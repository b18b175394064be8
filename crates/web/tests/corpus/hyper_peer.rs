//! hyper's server over the same tables. Where it and we disagree, the table `hyper.txt` names the
//! reason; a disagreement it does not name fails, and so does one it names that is gone.

use std::convert::Infallible;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::{pin, Pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use chaton_web::limits::Limits;
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::outcome::{of, ParseOutcome};
use crate::table::{fields, hostile, valid, CorpusCase};

/// A connection whose client has sent everything and closed its side.
struct MemoryStream {
    unread: Vec<u8>,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Read for MemoryStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let bytes = self.unread.len().min(buf.remaining());
        let rest = self.unread.split_off(bytes);
        buf.put_slice(&self.unread);
        self.unread = rest;
        Poll::Ready(Ok(()))
    }
}

impl Write for MemoryStream {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written.lock().unwrap().extend_from_slice(buf);
        Poll::Ready(Ok(buf.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }
}

/// The body, or `None` if it is broken.
async fn read_body(mut body: Incoming) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    Some(whole)
}

/// Method, target and body of the first request, if hyper serves it.
fn served_by_hyper(bytes: &[u8]) -> Option<(String, String, Vec<u8>)> {
    let first = Arc::new(Mutex::new(None));
    let seen = first.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = seen.clone();
        async move {
            let (parts, body) = request.into_parts();
            let body = read_body(body).await;
            let found =
                body.clone().map(|body| (parts.method.to_string(), parts.uri.to_string(), body));
            seen.lock().unwrap().get_or_insert(found);
            body.map(|_| Response::new(NoBody)).ok_or("broken body")
        }
    });
    let wire = MemoryStream { unread: bytes.to_vec(), written: Arc::default() };
    let mut connection = pin!(hyper::server::conn::http1::Builder::new()
        .half_close(true)
        .serve_connection(wire, service));
    // Nothing ever waits: all bytes are there, and so is the end behind them.
    let mut context = Context::from_waker(Waker::noop());
    let done = (0..100_000).any(|_| connection.as_mut().poll(&mut context).is_ready());
    assert!(done, "hyper waits though its input has ended");
    let found = first.lock().unwrap().take();
    found.flatten()
}

#[test]
fn every_disagreement_with_hyper_has_a_reason() {
    let reasons: Vec<_> = fields(include_str!("hyper.txt")).collect();
    let mut unexplained = Vec::new();
    let mut explained = Vec::new();
    for CorpusCase { name, bytes, .. } in hostile().into_iter().chain(valid()) {
        let ours = matches!(of(&bytes, [], &Limits::for_tests()), ParseOutcome::Accepted(..));
        let found = match (ours, served_by_hyper(&bytes).is_some()) {
            (true, false) => "refused",
            (false, true) => "served",
            _ => continue,
        };
        match reasons.iter().find(|[of, ..]| *of == name) {
            Some([_, hyper, _]) if *hyper == found => explained.push(name),
            _ => unexplained.push(format!("{name} | {found} | ")),
        }
    }
    assert!(unexplained.is_empty(), "hyper disagrees:\n{}", unexplained.join("\n"));
    for [name, ..] in reasons {
        assert!(explained.iter().any(|found| found == name), "hyper agrees on {name:?}");
    }
}

#[test]
fn what_both_serve_both_understand_alike() {
    for CorpusCase { name, bytes, .. } in valid() {
        let ParseOutcome::Accepted(head, body, _) = of(&bytes, [], &Limits::for_tests()) else {
            panic!("{name} is refused");
        };
        if let Some((method, target, hyper_body)) = served_by_hyper(&bytes) {
            assert_eq!(method.as_bytes(), head.get(head.method), "{name}");
            // hyper adds the slash that a bare authority means.
            let sent = String::from_utf8_lossy(head.get(head.target));
            if head.authority.is_none() {
                assert_eq!(target, sent, "{name}");
            }
            assert_eq!(hyper_body, body, "{name}");
        }
    }
}
