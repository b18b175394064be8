//! What trusted proxies in front say of a request: `X-Forwarded-For` and `X-Forwarded-Proto`, or `Forwarded` (RFC 7239).

use std::net::{IpAddr, SocketAddr};

use serde::Deserialize;

use crate::head::class::trim;
use crate::head::RequestHead;

/// The proxies that are believed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForwardedSettings {
    /// The networks they are in.
    pub proxies: Vec<Network>,
    /// Where they name the client.
    pub header: ForwardedHeader,
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
            let address: IpAddr = address.parse().ok()?;
            let bits_max = if address.is_ipv4() { 32 } else { 128 };
            Some(Self { address, bits: bits.parse().ok().filter(|bits| *bits <= bits_max)? })
        };
        parse().ok_or_else(|| format!("{text:?} is no network such as 10.0.0.0/8"))
    }
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
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
    is_trusted: bool,
}

impl ForwardedSettings {
    /// The headers of a request that came from `peer`.
    pub fn read<'a>(&'a self, peer: &str, head: &'a RequestHead) -> Forwarded<'a> {
        let is_trusted = peer.parse().is_ok_and(|address| self.trusts(address));
        Forwarded { settings: self, head, is_trusted }
    }

    fn trusts(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|network| network.contains(address))
    }
}

impl<'a> Forwarded<'a> {
    /// The client: the last address that is no trusted proxy's, or the first one if all are. What stands before
    /// it, the client could have written. `None`: the peer is the client.
    pub fn client(&self) -> Option<IpAddr> {
        let mut client = None;
        if !self.is_trusted {
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
                    let elements = elements(value).unwrap_or_else(|| vec![b""]);
                    let hops = elements.iter().rev().map(|hop| address(parameter(hop, "for")?));
                    if !self.follow(hops, &mut client) {
                        break;
                    }
                }
            }
        }
        client
    }

    /// Whether the client spoke HTTPS with a trusted proxy.
    pub fn is_https(&self) -> bool {
        let scheme = match self.settings.header {
            ForwardedHeader::XForwardedFor => self
                .values("x-forwarded-proto")
                .next()
                .and_then(|value| value.rsplit(|byte| *byte == b',').next()),
            ForwardedHeader::Forwarded => self
                .values("forwarded")
                .next()
                .and_then(|value| parameter(elements(value)?.pop()?, "proto")),
        };
        self.is_trusted && scheme.is_some_and(|it| trim(it).eq_ignore_ascii_case(b"https"))
    }

    /// Whether a header is kept from the application: one that only proxies send, from anybody else, and of
    /// those two that name the client the one that the proxies pass on as the client has sent it.
    pub fn hides(&self, name: &[u8]) -> bool {
        let is = |other: &str| same_key(name, other);
        if self.is_trusted {
            return match self.settings.header {
                ForwardedHeader::XForwardedFor => is("forwarded"),
                ForwardedHeader::Forwarded => is("x-forwarded-for") || is("x-forwarded-proto"),
            };
        }
        let is_extension = name.len() > 12 && same_key(&name[..12], "x-forwarded-");
        is_extension || ["forwarded", "x-real-ip", "client-ip"].into_iter().any(is)
    }

    /// Goes on to the first address that is no proxy's; `false`: it is found, or cannot be.
    fn follow(
        &self,
        hops: impl Iterator<Item = Option<IpAddr>>,
        client: &mut Option<IpAddr>,
    ) -> bool {
        for hop in hops {
            let Some(address) = hop else { return false };
            *client = Some(address);
            if !self.settings.trusts(address) {
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

/// The elements of a `Forwarded`; `None` if a quotation has no end.
fn elements(value: &[u8]) -> Option<Vec<&[u8]>> {
    split(value, b',')
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
