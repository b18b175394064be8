//! Header names as keys of the env Hash: `accept-encoding` → `HTTP_ACCEPT_ENCODING`.
//!
//! Keys of known names are created once; others are interned Strings, which can be
//! collected.

use magnus::rb_sys::FromRawValue;
use magnus::{Ruby, Value};
use rb_sys::VALUE;

/// Names that browsers, proxies and API clients send.
const KNOWN: &[&str] = &[
    "accept",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "access-control-request-headers",
    "access-control-request-method",
    "authorization",
    "cache-control",
    "connection",
    "cookie",
    "date",
    "dnt",
    "expect",
    "forwarded",
    "from",
    "host",
    "idempotency-key",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "keep-alive",
    "max-forwards",
    "origin",
    "pragma",
    "priority",
    "proxy-authorization",
    "proxy-connection",
    "range",
    "referer",
    "sec-ch-ua",
    "sec-ch-ua-mobile",
    "sec-ch-ua-platform",
    "sec-fetch-dest",
    "sec-fetch-mode",
    "sec-fetch-site",
    "sec-fetch-user",
    "sec-gpc",
    "sec-websocket-extensions",
    "sec-websocket-key",
    "sec-websocket-protocol",
    "sec-websocket-version",
    "te",
    "trailer",
    "traceparent",
    "tracestate",
    "turbo-frame",
    "upgrade",
    "upgrade-insecure-requests",
    "user-agent",
    "via",
    "x-api-key",
    "x-csrf-token",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-port",
    "x-forwarded-proto",
    "x-forwarded-ssl",
    "x-http-method-override",
    "x-real-ip",
    "x-request-id",
    "x-request-start",
    "x-requested-with",
];

/// Bound of the memory reserved for a key.
const NAME_BYTES_MAX: usize = 256;

/// The known keys, in buckets by the length of the name.
pub struct HeaderKeys {
    by_length: Vec<Vec<(&'static [u8], VALUE)>>,
}

// SAFETY: the keys are frozen, registered with the collector for good, and
// only used by threads that hold the GVL.
unsafe impl Send for HeaderKeys {}
// SAFETY: as above.
unsafe impl Sync for HeaderKeys {}

impl HeaderKeys {
    /// Creates the known keys. Call with the GVL.
    pub fn new() -> Self {
        let longest = KNOWN.iter().map(|name| name.len()).max().unwrap_or(0);
        let mut by_length = vec![Vec::new(); longest + 1];
        for name in KNOWN {
            by_length[name.len()].push((name.as_bytes(), constant(&to_key(name.as_bytes()))));
        }
        Self { by_length }
    }

    /// The key for a header name in any case. Call with the GVL.
    pub fn key(&self, name: &[u8]) -> VALUE {
        let known = self.by_length.get(name.len()).into_iter().flatten();
        for (candidate, key) in known {
            if candidate.eq_ignore_ascii_case(name) {
                return *key;
            }
        }
        intern(&to_key(name))
    }
}

fn to_key(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(5 + name.len().min(NAME_BYTES_MAX));
    key.extend_from_slice(b"HTTP_");
    key.extend(name.iter().map(|b| if *b == b'-' { b'_' } else { b.to_ascii_uppercase() }));
    key
}

/// An interned, frozen String. Never empty here: CRuby 3.1 crashes on the
/// pointer of an empty Rust slice.
fn intern(bytes: &[u8]) -> VALUE {
    debug_assert!(!bytes.is_empty());
    // SAFETY: copies `len` bytes; the GVL is held.
    unsafe { rb_sys::rb_interned_str(bytes.as_ptr().cast(), bytes.len() as _) }
}

/// An interned String that is never collected.
pub fn constant(bytes: &[u8]) -> VALUE {
    for_good(intern(bytes))
}

/// Keeps a live object for ever. Call with the GVL.
pub fn for_good(value: VALUE) -> VALUE {
    // SAFETY: a live object, and the GVL is held.
    unsafe { Ruby::get_unchecked().gc_register_mark_object(Value::from_raw(value)) };
    value
}
