//! One connection: reads requests one after the other and answers them.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::SemaphorePermit;
use tokio::time::timeout;

use crate::answer::{Answer, HEADERS, TOO_MANY};
use crate::config::AdminListener;
use crate::request_head::{parse, AdminRequest, HeadState};
use crate::routes::{answer, is_probe};
use crate::state::State;
use crate::waiting_clients::WaitingClient;

/// Room for one read: the head of a probe or a scraper.
const READ_BYTES: usize = 512;

/// Serves a connection until its client leaves, sends what is refused, or takes too long.
pub(crate) async fn serve<S>(
    mut stream: S,
    mut client: WaitingClient,
    listener: &AdminListener,
    state: &State,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let within = state.config.timeout;
    let mut bytes = Vec::new();
    loop {
        let Ok(Some(parsed)) = timeout(within, read(&mut stream, &mut bytes)).await else { return };
        let mut place = None;
        let (answer, keep_alive, body) = match parsed {
            Ok(request) => {
                let answer = match take_place(&request, &mut place, &mut client, state).await {
                    Ok(()) => answer(&request, listener, state).await,
                    Err(refusal) => refusal,
                };
                let keep_alive = request.keep_alive && answer.to_known_client;
                (answer, keep_alive, request.method != "HEAD")
            }
            Err(refusal) => (refusal, false, true),
        };
        let response = response(&answer, keep_alive, body);
        let sent = timeout(within, stream.write_all(response.as_bytes())).await;
        if !matches!(sent, Ok(Ok(()))) || !keep_alive {
            let _ = timeout(within, stream.shutdown()).await;
            return;
        }
        drop(place);
        client.join();
    }
}

/// Waits for a place, which the connection holds until its answer is sent. Probes need none, so that nobody can
/// take theirs: their answers are made from memory, and small enough for the buffer of the socket.
async fn take_place<'a>(
    request: &AdminRequest,
    place: &mut Option<SemaphorePermit<'a>>,
    client: &mut WaitingClient,
    state: &'a State,
) -> Result<(), Answer> {
    if !is_probe(request) {
        let got = timeout(state.config.timeout, state.places.acquire()).await;
        let got = got.map_err(|_| Answer::error(503, "too many requests are under way"))?;
        // The semaphore is never closed.
        *place = got.ok();
        client.leave();
    }
    Ok(())
}

/// Reads one head; `None` at the end of the connection.
async fn read<S: AsyncRead + Unpin>(
    stream: &mut S,
    bytes: &mut Vec<u8>,
) -> Option<Result<AdminRequest, Answer>> {
    loop {
        if !bytes.is_empty() {
            match parse(bytes) {
                HeadState::Complete(request, length) => {
                    bytes.drain(..length);
                    return Some(Ok(request));
                }
                HeadState::Refused(status, message) => {
                    return Some(Err(Answer::error(status, message)))
                }
                HeadState::Partial => {}
            }
        }
        bytes.reserve(READ_BYTES);
        stream.read_buf(bytes).await.ok().filter(|read| *read > 0)?;
    }
}

fn response(answer: &Answer, keep_alive: bool, body: bool) -> String {
    let Answer { status, content_type, body: text, cookie, .. } = answer;
    let login = if *status == 401 { "WWW-Authenticate: Bearer\r\n" } else { "" };
    let connection = if keep_alive { "" } else { "Connection: close\r\n" };
    let mut response = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{login}{connection}",
        reason(*status),
        text.len(),
    );
    let cookie = cookie.as_deref().map(|cookie| ("set-cookie", cookie));
    for (name, value) in HEADERS.into_iter().chain(cookie) {
        response.push_str(&format!("{name}: {value}\r\n"));
    }
    response.push_str("\r\n");
    if body {
        response.push_str(text);
    }
    response
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        TOO_MANY => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        _ => "Service Unavailable",
    }
}
