//! The answer to each path.

use chaton_core::clock;
use serde::Serialize;
use serde_json::json;

use crate::access;
use crate::config::AdminListener;
use crate::health;
use crate::request_head::AdminRequest;
use crate::server::State;

/// What is sent.
pub(crate) struct Answer {
    pub status: u16,
    pub body: String,
}

impl Answer {
    fn of(status: u16, body: &impl Serialize) -> Self {
        // Numbers, strings and lists of them are always written.
        let body = serde_json::to_string(body).unwrap_or_default();
        Self { status, body: body + "\n" }
    }

    /// A refusal with its reason.
    pub fn error(status: u16, message: &str) -> Self {
        Self::of(status, &json!({ "error": message }))
    }
}

/// Answers a request.
pub(crate) fn answer(request: &AdminRequest, listener: &AdminListener, state: &State) -> Answer {
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
        _ => Answer::error(404, "here are /live and /ready"),
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
    let now_ms = clock::boot_ns() / 1_000_000;
    let ready = health::ready(&state.report().0, &state.scoreboard, &state.config, role, now_ms);
    Answer::of(if ready.reasons.is_empty() { 200 } else { 503 }, &ready)
}
