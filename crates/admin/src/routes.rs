//! The answer to each path.

use crate::access;
use crate::answer::Answer;
use crate::config::AdminListener;
use crate::dashboard;
use crate::health::{self, boot_ms};
use crate::metrics;
use crate::request_head::AdminRequest;
use crate::state::State;

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
                body: state.metrics().await.encode(),
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
    match state.token_is_right(given).await {
        Ok(true) => None,
        Ok(false) => Some(Answer::error(401, "the token is wrong")),
        Err(refusal) => Some(refusal),
    }
}
