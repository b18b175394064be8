//! What is sent to a client.

use serde::Serialize;
use serde_json::json;

/// The type of all answers but that of `/metrics`.
const JSON: &str = "application/json";
/// The status when too many wait.
pub(crate) const TOO_MANY: u16 = 429;

/// Headers of all answers: nothing of them is run, shown or kept by anything but our own page.
pub const HEADERS: [(&str, &str); 5] = [
    ("cache-control", "no-store"),
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
];

/// What is sent.
pub(crate) struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
    /// The value of Set-Cookie.
    pub cookie: Option<String>,
    /// The client has a session or the token. The connections of others end with the answer, so that they hold
    /// none by asking now and then.
    pub to_known_client: bool,
}

impl Answer {
    /// JSON. No text in it, such as the name of a class, looks like HTML.
    pub fn of(status: u16, body: &impl Serialize) -> Self {
        // Numbers, strings and lists of them are always written.
        let body = serde_json::to_string(body).unwrap_or_default().replace('<', "\\u003c");
        Self { status, content_type: JSON, body: body + "\n", cookie: None, to_known_client: false }
    }

    /// A file.
    pub fn text(content_type: &'static str, body: &str) -> Self {
        Self { body: body.to_owned(), content_type, ..Self::of(200, &()) }
    }

    /// A refusal with its reason.
    pub fn error(status: u16, message: &str) -> Self {
        Self::of(status, &json!({ "error": message }))
    }
    /// The refusal of a guess that may not even wait.
    pub fn too_many_guesses() -> Self {
        Self::error(TOO_MANY, "too many wrong tokens; try again later")
    }
}
