//! The answer to each path.

use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::access;
use crate::config::AdminListener;
use crate::health;
use crate::metrics;
use crate::request_head::AdminRequest;
use crate::server::{boot_ms, State};

/// The type of all answers but that of `/metrics`.
const JSON: &str = "application/json";
/// Tokens are looked at one after the other, and a wrong one keeps the next one waiting this long.
const WRONG_TOKEN: Duration = Duration::from_millis(100);

/// What is sent.
pub(crate) struct Answer {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

impl Answer {
    fn of(status: u16, body: &impl Serialize) -> Self {
        // Numbers, strings and lists of them are always written.
        let body = serde_json::to_string(body).unwrap_or_default();
        Self { status, content_type: JSON, body: body + "\n" }
    }

    /// A refusal with its reason.
    pub fn error(status: u16, message: &str) -> Self {
        Self::of(status, &json!({ "error": message }))
    }
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
            },
        },
        _ => Answer::error(404, "here are /live, /ready and /metrics"),
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
    let Some(token) = &state.config.token else {
        let why = "from other machines metrics need a token; set it by `admin { token \"…\" }`";
        return Some(Answer::error(403, why));
    };
    let Some(given) = &request.token else {
        return Some(Answer::error(401, "metrics need a token (Authorization: Bearer …)"));
    };
    let one_at_a_time = state.token_gate.lock().await;
    if access::same_token(given, token) {
        return None;
    }
    tokio::time::sleep(WRONG_TOKEN).await;
    drop(one_at_a_time);
    Some(Answer::error(401, "the token is wrong"))
}
