//! Whose word counts about a client: its address, its scheme, the host that it asked for, when its request began and the
//! trace that it belongs to. The headers are `X-Forwarded-For` and `X-Forwarded-Proto`, or `Forwarded` (RFC 7239), and
//! those that the engine only passes on or hides.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde::Deserialize;

use crate::head::class::trim;
use crate::head::RequestHead;
use crate::proxy_protocol::ProxyHeader;

/// The client if a trusted proxy's list cannot be read. No client has this address (RFC 1122 section 3.2.1.3), so no list
/// of allowed ones has it, as it may have the proxy's own.
const UNKNOWN: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// By which Rack::Sendfile lets a proxy send a file: a client would choose the file (CVE-2025-61780).
const OF_FILES: [&str; 2] = ["x-accel-mapping", "x-sendfile-type"];
/// What else Rack, Rails and gems of metrics take for a proxy's word, besides `X-Forwarded-…`.
const OF_PROXIES: [&str; 4] = ["forwarded", "x-real-ip", "client-ip", "x-request-start"];

/// Who is believed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardedSettings {
    /// The networks of the proxies that are believed.
    pub proxies: Vec<Network>,
    /// Where they name the client.
    pub header: ForwardedHeader,
    /// What is done with the headers of other peers.
    pub others: UnlistedPeers,
    /// The server obeys `X-Accel-Redirect` itself, so no proxy's mapping of files counts.
    pub sends_files: bool,
}

/// What is done with the headers of peers that are not among the proxies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnlistedPeers {
    /// The application gets them, and `REMOTE_ADDR` is the peer's, as with Puma.
    PassedOn,
    /// The same for Unix sockets; over TCP the application does not get them.
    HiddenOverTcp,
    /// The application does not get them.
    Hidden,
}

/// How far the word of a peer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// It is one of the proxies, and names the client.
    Proxy,
    /// Its headers are the application's matter.
    PassedOn,
    /// Its headers are hidden.
    Hidden,
}

/// The other end of a connection.
#[derive(Debug)]
pub struct Peer {
    /// Without a port; `127.0.0.1` for a Unix socket.
    pub address: Box<str>,
    /// How far its word counts.
    pub trust: Trust,
    /// The client spoke TLS with the balancer in front, by the PROXY protocol.
    pub spoke_tls: bool,
}

impl Peer {
    /// `remote` is `None` for a Unix socket; `header` is what a balancer has sent first.
    pub(crate) fn new(
        settings: &ForwardedSettings,
        remote: Option<IpAddr>,
        header: Option<ProxyHeader>,
    ) -> Self {
        let client = header.and_then(|header| header.client).or(remote);
        let address = client.unwrap_or(Ipv4Addr::LOCALHOST.into());
        // Behind a balancer of connections the bytes are a remote client's.
        let is_local = remote.is_none() && header.is_none();
        Self {
            address: address.to_string().into(),
            trust: settings.trust(address, is_local),
            spoke_tls: header.is_some_and(|header| header.spoke_tls),
        }
    }
}

/// The header in which proxies name the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ForwardedHeader {
    /// `X-Forwarded-For`; the scheme is in `X-Forwarded-Proto`.
    XForwardedFor,
    /// `Forwarded`
    Forwarded,
}

/// A network: an address and how many of its leading bits count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl TryFrom<String> for Network {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let parse = || {
            let (address, bits) = text.split_once('/')?;
            let (given, bits): (IpAddr, u32) = (address.parse().ok()?, bits.parse().ok()?);
            // Mapped addresses are compared as those of IPv4.
            let address = given.to_canonical();
            let bits = if address == given { bits } else { bits.checked_sub(96)? };
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            (bits <= bits_max).then_some(Self { address, bits })
        };
        parse().ok_or_else(|| format!("{text:?} is no network such as 10.0.0.0/8"))
    }
}

impl Network {
    pub(crate) fn contains(self, address: IpAddr) -> bool {
        // A shift by all bits is none: then every address of the family belongs to it.
        match (self.address, address) {
            (IpAddr::V4(a), IpAddr::V4(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(a), IpAddr::V6(b)) => {
                (a.to_bits() ^ b.to_bits()).checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// The headers of proxies in one request.
#[derive(Clone, Copy, Debug)]
pub struct Forwarded<'a> {
    settings: &'a ForwardedSettings,
    head: &'a RequestHead,
    trust: Trust,
}

impl ForwardedSettings {
    /// Nobody is named, and the headers are the application's matter.
    #[cfg(any(test, feature = "test-support"))]
    pub fn for_tests() -> Self {
        let header = ForwardedHeader::XForwardedFor;
        Self { proxies: Vec::new(), header, others: UnlistedPeers::PassedOn, sends_files: false }
    }

    /// How far the word of the peer with this address counts.
    pub fn trust(&self, address: IpAddr, is_local: bool) -> Trust {
        match self.others {
            _ if self.is_proxy(address) => Trust::Proxy,
            UnlistedPeers::PassedOn => Trust::PassedOn,
            UnlistedPeers::HiddenOverTcp if is_local => Trust::PassedOn,
            _ => Trust::Hidden,
        }
    }

    /// The headers of a request that came from a peer.
    pub fn read<'a>(&'a self, trust: Trust, head: &'a RequestHead) -> Forwarded<'a> {
        Forwarded { settings: self, head, trust }
    }

    /// Whether the administrator expects that headers are hidden, because none are to be believed.
    pub(crate) fn hides_all(&self) -> bool {
        self.proxies.is_empty() && self.others == UnlistedPeers::Hidden
    }

    fn is_proxy(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|network| network.contains(address))
    }
}

impl<'a> Forwarded<'a> {
    /// The client: the last address that is no trusted proxy's, or the first one if all are. What stands before
    /// it, the client could have written. `None`: the peer is the client.
    pub fn client(&self) -> Option<IpAddr> {
        let mut client = None;
        if self.trust != Trust::Proxy {
            return client;
        }
        match self.settings.header {
            ForwardedHeader::XForwardedFor => {
                let values = self.values("x-forwarded-for");
                let elements = values.flat_map(|value| value.rsplit(|byte| *byte == b','));
                self.follow(elements.map(address), &mut client);
            }
            ForwardedHeader::Forwarded => {
                for value in self.values("forwarded") {
                    let elements = elements(value);
                    let hops = elements.iter().rev().map(|hop| address(parameter(hop, "for")?));
                    if !self.follow(hops, &mut client) {
                        break;
                    }
                }
            }
        }
        client
    }

    /// Whether a trusted proxy says that the client spoke HTTPS with it.
    pub fn is_https(&self) -> bool {
        if self.trust != Trust::Proxy {
            return false;
        }
        let scheme = match self.settings.header {
            ForwardedHeader::XForwardedFor => self
                .values("x-forwarded-proto")
                .next()
                .and_then(|value| value.rsplit(|byte| *byte == b',').next()),
            ForwardedHeader::Forwarded => self
                .values("forwarded")
                .next()
                .and_then(|value| parameter(elements(value).pop()?, "proto")),
        };
        scheme.is_some_and(is_https)
    }

    /// Whether the application may take the request for one over HTTPS by a header that is its matter. All lines and
    /// all proxies must say so: Rack takes the first one or the last one, by its version.
    pub(crate) fn claims_https(&self) -> bool {
        let split = |value: &'a [u8]| value.split(|byte| *byte == b',');
        let mut schemes = self.values("x-forwarded-proto").flat_map(split).peekable();
        self.trust == Trust::PassedOn && schemes.peek().is_some() && schemes.all(is_https)
    }

    /// Whether a header is kept from the application: one that only proxies send, from anybody else; of those two that
    /// name the client the one that the proxies pass on as the client has sent it; and a mapping of files from anybody
    /// but a proxy, also where the headers of others are passed on.
    pub fn hides(&self, name: &[u8]) -> bool {
        let is = |other: &str| same_key(name, other);
        // Most names end here.
        if !matches!(name.first(), Some(b'x' | b'X' | b'f' | b'F' | b'c' | b'C')) {
            return false;
        }
        if OF_FILES.into_iter().any(is) {
            return self.trust != Trust::Proxy || self.settings.sends_files;
        }
        let is_extension = || name.len() > 12 && same_key(&name[..12], "x-forwarded-");
        match (self.trust, self.settings.header) {
            (Trust::PassedOn, _) => false,
            (Trust::Hidden, _) => is_extension() || OF_PROXIES.into_iter().any(is),
            (Trust::Proxy, ForwardedHeader::XForwardedFor) => is("forwarded"),
            (Trust::Proxy, ForwardedHeader::Forwarded) => {
                is("x-forwarded-for") || is("x-forwarded-proto")
            }
        }
    }

    /// Goes on to the first address that is no proxy's; `false`: it is found, or cannot be. An element without an
    /// address, such as `unknown`, ends the search: then nobody knows the client.
    fn follow(
        &self,
        hops: impl Iterator<Item = Option<IpAddr>>,
        client: &mut Option<IpAddr>,
    ) -> bool {
        for hop in hops {
            let address = hop.unwrap_or(UNKNOWN);
            *client = Some(address);
            if !self.settings.is_proxy(address) {
                return false;
            }
        }
        true
    }

    /// The values of a header, the last one first.
    fn values(&self, name: &'static str) -> impl Iterator<Item = &'a [u8]> {
        let head = self.head;
        let named = move |field: &[u8]| field.eq_ignore_ascii_case(name.as_bytes());
        let values = head.headers.iter().rev().filter(move |(field, _)| named(head.get(*field)));
        values.map(move |&(_, value)| head.get(value))
    }
}

/// Whether two names are one key of the Rack env, in which `-` is `_`.
fn same_key(name: &[u8], lower: &str) -> bool {
    let dashed = |byte: u8| if byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == lower.len() && name.iter().zip(lower.bytes()).all(|(a, b)| dashed(*a) == b)
}

/// An address, with or without a port: `192.0.2.1`, `192.0.2.1:80`, `2001:db8::1`, `[2001:db8::1]`, `[2001:db8::1]:80`.
fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(trim(text)).ok()?;
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let parsed = bare.parse().or_else(|_| text.parse::<SocketAddr>().map(|it| it.ip()));
    parsed.ok().map(|address: IpAddr| address.to_canonical())
}

fn is_https(scheme: &[u8]) -> bool {
    trim(scheme).eq_ignore_ascii_case(b"https")
}

/// The elements of a `Forwarded`. If a quotation has no end, the client has opened it: then what a proxy has added stands
/// behind a comma all the same, and an element that the cut went through has a single quotation mark, so it has no
/// parameters.
fn elements(value: &[u8]) -> Vec<&[u8]> {
    split(value, b',').unwrap_or_else(|| value.split(|byte| *byte == b',').collect())
}

/// A parameter of an element, without its quotation marks. Nothing that a proxy sends has a backslash.
fn parameter<'a>(element: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let pairs = split(element, b';')?;
    let mut values = pairs.into_iter().filter_map(|pair| {
        let (key, value) = crate::content_coding::split_once(pair, b'=')?;
        trim(key).eq_ignore_ascii_case(name.as_bytes()).then(|| trim(value))
    });
    let value = values.next_back()?;
    let quoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
    Some(quoted.unwrap_or(value)).filter(|value| !value.contains(&b'"'))
}

/// The parts between `at` outside of quotations; `None` if a quotation has no end.
fn split(value: &[u8], at: u8) -> Option<Vec<&[u8]>> {
    let mut is_quoted = false;
    let parts = value.split(|&byte| {
        is_quoted ^= byte == b'"';
        byte == at && !is_quoted
    });
    let parts = parts.collect();
    (!is_quoted).then_some(parts)
}

#[cfg(test)]
mod tests;
