//! How a request ends before its response is sent to its end.

use crate::error_response::ErrorResponse;
use crate::exchange::Exchange;
use crate::head::HeadError;
use crate::request_body::BodyError;
use crate::server_state::ServerState;
use crate::stats::add;

/// How a request ends early, and with HTTP/1 its connection.
pub(super) enum Stop {
    /// The client is gone, or has nothing more to ask.
    Gone,
    /// In the middle of its response, with an error.
    Cut,
    /// With a response of the engine.
    Refused(Refusal),
    /// The application has the connection: here its socket is closed, but it lives on in its
    /// duplicate, unless the engine encrypts for the application.
    Hijacked,
    /// Its response was the last of the connection. The client has time to read it: it may still be
    /// sending, and closing then would reset the connection.
    Linger,
    /// The client of a connection speaks HTTP/2.
    Http2,
    /// The application wants to switch protocols, which only HTTP/1 can.
    NeedsHttp1,
    /// The heads of an HTTP/2 connection's requests are too large together.
    NoRoom,
}

/// A response of the engine instead of the application's.
pub(super) struct Refusal {
    pub response: ErrorResponse,
    /// The head of the request was read.
    pub has_head: bool,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Refusal {
    /// Of a request whose head could not be read.
    pub fn unread(status: u16, text: &'static str) -> Self {
        Self { response: ErrorResponse::new(status, text), has_head: false }
    }

    pub fn of_head(error: HeadError) -> Self {
        Self::unread(error.status(), error.reason())
    }

    /// Of a request whose head was read.
    pub fn new(status: u16, text: &'static str) -> Self {
        Self { response: ErrorResponse::new(status, text), has_head: true }
    }

    fn unavailable(shared: &ServerState, text: &'static str) -> Self {
        let response = ErrorResponse::new(503, text).retry_after(shared.config.retry_after_s);
        Self { response, has_head: true }
    }

    /// Of a request whose response has not begun in time, or when the server stops; the Ruby thread goes on.
    pub fn late(shared: &ServerState, exchange: &Exchange, is_stopping: bool) -> Self {
        if is_stopping {
            return Self::unavailable(shared, "The server is stopping; try again.");
        }
        add(&shared.counters.late, 1);
        shared.feed.report_late(exchange.id());
        Self::unavailable(shared, "The request took too long; try again.")
    }

    /// Of a request whose body cannot be taken.
    pub fn of_body(shared: &ServerState, exchange: &Exchange, error: &BodyError) -> Self {
        match error {
            BodyError::TooLarge => Self::new(413, "The request's body is too large."),
            BodyError::Chunk(error) => Self::new(error.status(), error.reason()),
            BodyError::Spool(error) => {
                shared.feed.warn(&format!(
                    "can't keep the body of {} in a temporary file: {error}; \
                     make room in the directory for temporary files (TMPDIR)",
                    exchange.describe()
                ));
                Self::new(500, "The request's body could not be stored.")
            }
            BodyError::NoRoom => {
                Self::unavailable(shared, "The server holds too much for its clients; try again.")
            }
        }
    }
}
