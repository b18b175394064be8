//! One connection: reads requests one after the other and answers them.

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use crate::config::AdminListener;
use crate::request_head::{parse, AdminRequest, HeadState};
use crate::routes::{answer, Answer, HEADERS, TOO_MANY};
use crate::server::State;

/// Serves a connection until its client leaves, sends what is refused, or takes too long.
pub(crate) async fn serve<S>(mut stream: S, listener: &AdminListener, state: &State)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let within = state.config.timeout;
    let mut bytes = Vec::new();
    loop {
        let Ok(Some(parsed)) = timeout(within, read(&mut stream, &mut bytes)).await else { return };
        let (answer, keep_alive, body) = match parsed {
            Ok(request) => {
                let answer = answer(&request, listener, state).await;
                let keep_alive = request.keep_alive && answer.status != TOO_MANY;
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
    }
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
        let mut chunk = [0; 2048];
        let read = stream.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        bytes.extend_from_slice(&chunk[..read]);
    }
}

fn response(answer: &Answer, keep_alive: bool, body: bool) -> String {
    let Answer { status, content_type, body: text, cookie } = answer;
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
