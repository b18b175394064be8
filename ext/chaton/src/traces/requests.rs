//! Spans of requests, with the attributes of the stable semantic conventions for HTTP servers.

use chaton_traces::span_context::SpanContext;
use chaton_traces::tracing::Tracing;
use chaton_traces::work_span::{set_current, with_current, SpanKind, WorkSpan};
use chaton_web::head::{split_host, Version};
use chaton_web::Exchange;
use magnus::rb_sys::{AsRawValue, FromRawValue};
use magnus::{prelude::*, RHash, RString, Ruby, TryConvert, Value};
use rb_sys::VALUE;

use super::tracing;

/// Any other is `_OTHER`, or a client could make as many names of spans as it likes.
const METHODS: [&[u8]; 10] = [
    b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"TRACE", b"CONNECT",
    b"QUERY",
];
/// Where frameworks leave the route of a request: Rails from 7.1 on, and Sinatra.
const ROUTE_KEYS: [&str; 2] = ["action_dispatch.route_uri_pattern", "sinatra.route"];
/// Where Rails leaves an error that it has answered itself.
const ERROR_KEY: &str = "action_dispatch.exception";

/// The calling thread is about to run a request.
pub fn request_begins(exchange: &Exchange) {
    let Some(tracing) = tracing() else { return };
    let head = exchange.head();
    let given = head
        .header("traceparent")
        .and_then(|text| SpanContext::parse(text, head.header("tracestate")));
    // Who is not believed decides neither what is recorded nor, by the ratio of its trace's id, what is not: the span
    // begins a trace with a link.
    let (parent, linked) = if exchange.is_believed() { (given, None) } else { (None, given) };
    let mut span = tracing.begin(SpanKind::Server, parent.as_ref());
    linked.iter().for_each(|client| span.link(client));
    if span.is_recorded() {
        describe(tracing, &mut span, exchange);
    }
    set_current(Some(span));
}

fn describe(tracing: &Tracing, span: &mut WorkSpan, exchange: &Exchange) {
    let head = exchange.head();
    let waited = exchange.received_at().elapsed();
    span.began_before(waited);
    span.number("chaton.queue_time", waited.as_secs_f64());
    let method = head.get(head.method);
    match METHODS.into_iter().find(|known| *known == method) {
        Some(known) => {
            span.name(String::from_utf8_lossy(known));
            span.bytes("http.request.method", known);
        }
        None => {
            span.name("HTTP");
            span.text("http.request.method", "_OTHER");
            span.bytes("http.request.method_original", method);
        }
    }
    span.bytes("url.path", head.get(head.path));
    if tracing.has_query() && !head.get(head.query).is_empty() {
        span.bytes("url.query", head.get(head.query));
    }
    span.text("url.scheme", if exchange.is_https() { "https" } else { "http" });
    let authority = head.authority.map(|authority| head.get(authority));
    if let Some(host) = authority.or_else(|| head.header("host")).filter(|host| !host.is_empty()) {
        let (name, port) = split_host(host);
        span.bytes("server.address", name);
        let port = port.and_then(|port| std::str::from_utf8(port).ok()?.parse().ok());
        port.into_iter().for_each(|port| span.integer("server.port", port));
    }
    let version = match head.version {
        Version::Http10 => "1.0",
        Version::Http11 => "1.1",
        Version::Http2 => "2",
    };
    span.text("network.protocol.version", version);
    span.text("network.peer.address", exchange.peer_addr());
    if exchange.may_have_proxy() {
        span.text("client.address", exchange.remote_addr());
    }
    if let Some(agent) = head.header("user-agent") {
        span.bytes("user_agent.original", agent);
    }
}

/// The request that the calling thread runs gets this response. `env` is nil or the Rack env.
pub fn responded(exchange: &Exchange, status: Value, env: VALUE) {
    if tracing().is_none() || with_current(|span| span.is_recorded()) != Some(true) {
        return;
    }
    let status = if exchange.timed_out() { Ok(503) } else { i64::try_convert(status) };
    // SAFETY: nil, or the Hash that the caller keeps alive.
    let env = RHash::from_value(unsafe { Value::from_raw(env) });
    let route = env.and_then(route);
    let error = env.and_then(error_class);
    with_current(|span| {
        if let Some(route) = &route {
            span.extend_name(route);
            span.text("http.route", route);
        }
        if let Ok(status) = status {
            span.integer("http.response.status_code", status);
            if status >= 500 {
                span.failed(&error.unwrap_or_else(|| status.to_string()));
            }
        }
    });
}

/// `/orders/:id` of Rails' `/orders/:id(.:format)` and of Sinatra's `GET /orders/:id`.
fn route(env: RHash) -> Option<String> {
    let found = ROUTE_KEYS.into_iter().find_map(|key| RString::from_value(env.get(key)?))?;
    let text = String::from_utf8_lossy(&crate::convert::copy(found)).into_owned();
    let text = text.strip_suffix("(.:format)").unwrap_or(&text);
    Some(text.split_once(' ').map_or(text, |(_, path)| path).to_owned())
}

fn error_class(env: RHash) -> Option<String> {
    let error: Value = env.get(ERROR_KEY)?;
    let ruby = Ruby::get_with(error);
    let is_error = error.is_kind_of(ruby.exception_exception()) && error.as_raw() != 0;
    // SAFETY: the name of a live object's class, copied at once.
    is_error.then(|| unsafe { error.classname() }.into_owned())
}
