//! The answer to each path.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::access;
use crate::config::AdminListener;
use crate::dashboard;
use crate::health;
use crate::metrics;
use crate::request_head::AdminRequest;
use crate::server::{boot_ms, State};

/// The type of all answers but that of `/metrics`.
const JSON: &str = "application/json";
/// Wrong tokens wait for each other, each this long.
pub(crate) const WRONG_TOKEN: Duration = Duration::from_millis(100);
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
}

/// Whether a request asks for the health of the server.
pub(crate) fn is_probe(request: &AdminRequest) -> bool {
    matches!(request.path.as_str(), "/live" | "/ready")
}

/// Answers a request.
pub(crate) async fn answer(
    request: &AdminRequest,
    listener: &AdminListener,
    state: &State,
) -> Answer {
    let allowed = |host: &str| access::allows_host(host, listener, &state.config.hosts);
    if !request.host.as_deref().is_none_or(allowed) {
        let why = "this Host is not known here; name it in `admin { hosts \"…\" }`";
        return Answer::error(403, why);
    }
    if dashboard::has(&request.path) {
        return dashboard::answer(request, state).await;
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return Answer::error(405, "only GET and HEAD are answered");
    }
    match request.path.as_str() {
        "/live" => live(state),
        "/ready" => ready(request, state),
        "/metrics" => match refusal(request, listener, state).await {
            Some(refusal) => refusal,
            None => Answer {
                status: 200,
                content_type: metrics::CONTENT_TYPE,
                body: state.metrics().await,
                cookie: None,
                to_known_client: !listener.open,
            },
        },
        _ => Answer::error(404, "here are /, /live, /ready and /metrics"),
    }
}

fn live(state: &State) -> Answer {
    let (report, silence) = state.report();
    let live = health::live(&report, silence, &state.config);
    Answer::of(if live.reasons.is_empty() { 200 } else { 503 }, &live)
}

fn ready(request: &AdminRequest, state: &State) -> Answer {
    let role = request.query.split('&').find_map(|pair| pair.strip_prefix("role="));
    if let Some(role) = role.filter(|role| !state.config.roles.iter().any(|one| one == role)) {
        let known = state.config.roles.join(", ");
        return Answer::error(404, &format!("no role {role:?} runs here; there is {known}"));
    }
    let ready = health::ready(&state.report().0, &state.scoreboard, &state.config, role, boot_ms());
    Answer::of(if ready.reasons.is_empty() { 200 } else { 503 }, &ready)
}

/// Why a request may not see the metrics.
async fn refusal(
    request: &AdminRequest,
    listener: &AdminListener,
    state: &State,
) -> Option<Answer> {
    if listener.open {
        return None;
    }
    if state.config.token.is_none() {
        let why = "from other machines metrics need a token; set it by `admin { token \"…\" }`";
        return Some(Answer::error(403, why));
    }
    let Some(given) = &request.token else {
        return Some(Answer::error(401, "metrics need a token (Authorization: Bearer …)"));
    };
    match token_is_right(given, state).await {
        Ok(true) => None,
        Ok(false) => Some(Answer::error(401, "the token is wrong")),
        Err(refusal) => Some(refusal),
    }
}

/// Compares a token with the configured one, and takes its time if it is another. The right one waits for nobody's
/// guesses.
pub(crate) async fn token_is_right(given: &str, state: &State) -> Result<bool, Answer> {
    let token = state.config.token.as_deref();
    if token.is_some_and(|token| access::same_token(given, token)) {
        return Ok(true);
    }
    let _one_at_a_time = state.guess_gate.enter().await.ok_or_else(too_many_guesses)?;
    tokio::time::sleep(WRONG_TOKEN).await;
    Ok(false)
}

/// The refusal of a guess that may not even wait.
pub(crate) fn too_many_guesses() -> Answer {
    Answer::error(TOO_MANY, "too many wrong tokens; try again later")
}
