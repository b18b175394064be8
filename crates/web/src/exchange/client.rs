//! Who the client of an exchange is, and who says so.

use std::borrow::Cow;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::Exchange;
use crate::forwarded::{Forwarded, Trust};
use crate::request_start;

impl Exchange {
    /// The peer's address without its port; `127.0.0.1` for a Unix socket.
    pub fn peer_addr(&self) -> &str {
        &self.peer.address
    }

    /// The client's address: the peer's, or what a trusted proxy says.
    pub fn remote_addr(&self) -> Cow<'_, str> {
        let client = self.forwarded().client();
        client.map_or(Cow::Borrowed(&*self.peer.address), |client| client.to_string().into())
    }

    /// The headers in which proxies speak for the client.
    pub fn forwarded(&self) -> Forwarded<'_> {
        self.context.config.forwarded.read(self.peer.trust, &self.head)
    }

    /// Whether the settings name proxies.
    pub fn may_have_proxy(&self) -> bool {
        !self.context.config.forwarded.proxies.is_empty()
    }

    /// Whether what the request says of its trace and its beginning counts.
    pub fn is_believed(&self) -> bool {
        self.peer.trust != Trust::Hidden
    }

    /// Whether the client spoke HTTPS, here, with a balancer of connections or with a trusted proxy: the scheme of the
    /// request.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some() || self.peer.spoke_tls || self.forwarded().is_https()
    }

    /// As [`Self::is_encrypted`], or by a header that is the application's matter.
    pub fn is_https(&self) -> bool {
        self.is_encrypted() || self.forwarded().claims_https()
    }

    /// How long the request was on its way before it arrived here, `took` ago.
    pub(crate) fn waited_before(&self, took: Duration) -> Duration {
        match self.is_believed() {
            true => request_start::waited_before(&self.head, took),
            false => Duration::ZERO,
        }
    }

    /// Tells the log once that a header is kept from the application, if that may be a surprise.
    pub fn warn_hidden(&self, name: &[u8]) {
        let is_expected =
            self.peer.trust == Trust::Proxy || self.context.config.forwarded.hides_all();
        if is_expected || self.context.has_warned_hidden.swap(true, Relaxed) {
            return;
        }
        chaton_core::log::warn(&format!(
            "did not pass the header {} of {} on to the application, because anybody can write it. If the peer is a \
             proxy of yours, name it in web {{ trusted_proxies \"…\" }}; if there is none, say trusted_proxies :none. \
             Further headers are left out without this line",
            String::from_utf8_lossy(name),
            self.peer.address
        ));
    }
}
