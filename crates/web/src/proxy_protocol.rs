//! The header that a load balancer sends before the first byte of a connection, so that the server learns the client's
//! address: the PROXY protocol of HAProxy, versions 1 (text) and 2 (binary).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What begins a header of version 2.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Longest header of version 1, by its specification.
const TEXT_BYTES_MAX: usize = 107;
/// Longest header of version 2 that is read; its additions are skipped.
pub const BYTES_MAX: usize = 4096;

/// A whole header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyHeader {
    /// Its bytes; those behind it belong to the client.
    pub len: usize,
    /// The client's address. `None`: the balancer itself has connected, as for a health check, or
    /// knows no address.
    pub client: Option<IpAddr>,
    /// The client spoke TLS with the balancer.
    pub spoke_tls: bool,
}

/// The bytes are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoProxyHeader;

/// Reads a header; `Ok(None)` if its end has not arrived.
///
/// # Errors
/// [`NoProxyHeader`] as soon as the bytes can't become one.
pub fn parse(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoProxyHeader> {
    let begins = |with: &[u8]| {
        let len = bytes.len().min(with.len());
        bytes[..len] == with[..len]
    };
    if begins(SIGNATURE) {
        return binary(bytes);
    }
    if !begins(b"PROXY ") {
        return Err(NoProxyHeader);
    }
    let line = &bytes[..bytes.len().min(TEXT_BYTES_MAX)];
    let Some(end) = memchr::memchr(b'\n', line) else {
        return if line.len() == TEXT_BYTES_MAX { Err(NoProxyHeader) } else { Ok(None) };
    };
    let text = line[..end].strip_suffix(b"\r").ok_or(NoProxyHeader)?;
    let text = std::str::from_utf8(text).map_err(|_| NoProxyHeader)?;
    let client = client_of(text)?;
    Ok(Some(ProxyHeader { len: end + 1, client, spoke_tls: false }))
}

fn client_of(text: &str) -> Result<Option<IpAddr>, NoProxyHeader> {
    let fields: Vec<&str> = text.split(' ').collect();
    if fields.get(1) == Some(&"UNKNOWN") {
        return Ok(None);
    }
    let [_, family, source, target, source_port, target_port] = fields[..] else {
        return Err(NoProxyHeader);
    };
    let is_port =
        |text: &str| text.parse::<u16>().is_ok() && text.bytes().all(|byte| byte.is_ascii_digit());
    let address = |text: &str| match family {
        "TCP4" => text.parse::<Ipv4Addr>().map(IpAddr::from).ok(),
        "TCP6" => text.parse::<Ipv6Addr>().map(IpAddr::from).ok(),
        _ => None,
    };
    match (address(source), address(target)) {
        (Some(client), Some(_)) if is_port(source_port) && is_port(target_port) => {
            Ok(Some(client.to_canonical()))
        }
        _ => Err(NoProxyHeader),
    }
}

fn binary(bytes: &[u8]) -> Result<Option<ProxyHeader>, NoProxyHeader> {
    let Some(&[command, family, high, low]) =
        bytes.get(SIGNATURE.len()..SIGNATURE.len() + 4).and_then(|four| four.first_chunk::<4>())
    else {
        return Ok(None);
    };
    let start = SIGNATURE.len() + 4;
    let len = start + usize::from(u16::from_be_bytes([high, low]));
    if !matches!(command, 0x20 | 0x21) || len > BYTES_MAX {
        return Err(NoProxyHeader);
    }
    let Some(rest) = bytes.get(start..len) else { return Ok(None) };
    let (client, additions) = match (command, family) {
        // LOCAL: the balancer speaks for itself.
        (0x20, _) => (None, None),
        (_, 0x11) => {
            let [source, _] = two::<4>(rest)?;
            (Some(IpAddr::from(source)), rest.get(12..))
        }
        (_, 0x21) => {
            let [source, _] = two::<16>(rest)?;
            (Some(IpAddr::from(source).to_canonical()), rest.get(36..))
        }
        // AF_UNSPEC has no addresses, Unix sockets have two of 108 bytes.
        (_, 0x00) => (None, Some(rest)),
        (_, 0x31) => (None, rest.get(216..)),
        // Datagrams and families of the future.
        _ => (None, None),
    };
    Ok(Some(ProxyHeader { len, client, spoke_tls: additions.is_some_and(spoke_tls) }))
}

/// Whether one of the additions, each of a type, a length and a value, is PP2_TYPE_SSL with PP2_CLIENT_SSL: "the client
/// connected over SSL/TLS" (section 2.2.6 of the specification). What is no addition ends the search.
fn spoke_tls(mut additions: &[u8]) -> bool {
    while let Some((&[kind, high, low], rest)) = additions.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([high, low]));
        let Some((value, rest)) = rest.split_at_checked(len) else { return false };
        // The client's bits and the result of the verification.
        if kind == 0x20 && len >= 5 {
            return value[0] & 1 == 1;
        }
        additions = rest;
    }
    false
}

/// Two addresses of N bytes, with two ports behind them.
fn two<const N: usize>(bytes: &[u8]) -> Result<[[u8; N]; 2], NoProxyHeader> {
    let source = bytes.first_chunk::<N>().ok_or(NoProxyHeader)?;
    let target = bytes[N..].first_chunk::<N>().ok_or(NoProxyHeader)?;
    bytes.get(2 * N..2 * N + 4).ok_or(NoProxyHeader)?;
    Ok([*source, *target])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let len = (rest.len() as u16).to_be_bytes();
        [SIGNATURE, &[command, family], &len, rest].concat()
    }

    #[test]
    fn headers_of_both_versions_name_the_client() {
        let v6: Vec<u8> = [Ipv6Addr::LOCALHOST.octets(), [7; 16]].concat();
        let v4_with_more =
            [&[10, 0, 0, 7, 10, 0, 0, 1, 1, 2, 0, 80][..], &[3, 0, 4, 1, 2, 3, 4]].concat();
        for (header, client) in [
            (b"PROXY TCP4 10.0.0.7 10.0.0.1 1 65535\r\n".to_vec(), Some("10.0.0.7")),
            (b"PROXY TCP6 2001:db8::1 ::1 40000 443\r\n".to_vec(), Some("2001:db8::1")),
            (b"PROXY UNKNOWN\r\n".to_vec(), None),
            (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n".to_vec(), None),
            (v2(0x21, 0x11, &[10, 0, 0, 7, 10, 0, 0, 1, 1, 2, 0, 80]), Some("10.0.0.7")),
            (v2(0x21, 0x11, &v4_with_more), Some("10.0.0.7")),
            (v2(0x21, 0x21, &[&v6[..], &[0; 4]].concat()), Some("::1")),
            (v2(0x20, 0x00, &[]), None),
            (v2(0x20, 0x11, &[1; 12]), None),
            (v2(0x21, 0x00, &[]), None),
            (v2(0x21, 0x31, &[0; 216]), None),
        ] {
            let expected = ProxyHeader {
                len: header.len(),
                client: client.map(|client| client.parse().unwrap()),
                spoke_tls: false,
            };
            let shown = header.escape_ascii().to_string();
            for cut in 0..header.len() {
                assert_eq!(parse(&header[..cut]), Ok(None), "{shown} cut at {cut}");
            }
            let followed = [&header[..], b"GET / HTTP/1.1\r\n"].concat();
            assert_eq!(parse(&followed), Ok(Some(expected)), "{shown}");
        }
    }

    #[test]
    fn an_addition_says_that_the_client_spoke_tls() {
        let v4 = [203, 0, 113, 7, 10, 0, 0, 1, 0, 1, 0, 80];
        for (additions, expected) in [
            (&[0x20, 0, 5, 1, 0, 0, 0, 1][..], true),
            (&[0x20, 0, 5, 5, 0, 0, 0, 0], true),
            (&[3, 0, 2, 9, 9, 0x20, 0, 8, 1, 0, 0, 0, 1, 0x21, 0, 0], true),
            (&[0x20, 0, 5, 0, 0, 0, 0, 1], false),
            (&[0x20, 0, 5, 2, 0, 0, 0, 1], false),
            (&[0x20, 0, 1, 1], false),
            (&[0x20, 0, 9, 1, 0, 0, 0, 1], false),
            (&[4, 0, 8, 0x20, 0, 5, 1, 0, 0, 0, 1], false),
            (&[], false),
        ] {
            for (command, family, addresses, expected) in [
                (0x21, 0x11, &v4[..], expected),
                (0x21, 0x21, &[7; 36], expected),
                (0x21, 0x31, &[7; 216], expected),
                (0x21, 0x00, &[], expected),
                (0x20, 0x11, &v4, false),
            ] {
                let bytes = v2(command, family, &[addresses, additions].concat());
                let header = parse(&bytes).unwrap().unwrap();
                assert_eq!(header.spoke_tls, expected, "{family:x} {additions:?}");
            }
        }
    }

    #[test]
    fn a_mapped_address_is_one_of_ipv4() {
        let mapped = "::ffff:203.0.113.7".parse::<Ipv6Addr>().unwrap().octets();
        let binary = v2(0x21, 0x21, &[&mapped[..], &mapped, &[0; 4]].concat());
        let text = b"PROXY TCP6 ::ffff:203.0.113.7 ::ffff:10.0.0.1 1 80\r\n".to_vec();
        for bytes in [binary, text] {
            let client = parse(&bytes).unwrap().unwrap().client;
            assert_eq!(client, Some(Ipv4Addr::new(203, 0, 113, 7).into()));
        }
    }

    #[test]
    fn other_bytes_are_refused() {
        for bytes in [
            b"GET / HTTP/1.1\r\n".to_vec(),
            b"PROXY".to_vec().into_iter().chain(*b"\r\n").collect(),
            b"PROXY TCP4 10.0.0.7 10.0.0.1 1 2\n".to_vec(),
            b"PROXY TCP4 10.0.0.7 10.0.0.1 1\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.7 10.0.0.1 1 2 3\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.07 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 ::1 ::1 1 2\r\n".to_vec(),
            b"PROXY TCP6 10.0.0.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.7 10.0.0.1 +1 2\r\n".to_vec(),
            b"PROXY TCP4 10.0.0.7 10.0.0.1 1 65536\r\n".to_vec(),
            b"PROXY TCP4  10.0.0.7 10.0.0.1 1 2\r\n".to_vec(),
            b"PROXY UDP4 10.0.0.7 10.0.0.1 1 2\r\n".to_vec(),
            b"proxy TCP4 10.0.0.7 10.0.0.1 1 2\r\n".to_vec(),
            [b"PROXY UNKNOWN ", &[b'x'; 200][..]].concat(),
            b"\r\n\r\n\0\r\nQUIX".to_vec(),
            v2(0x11, 0x11, &[0; 12]),
            v2(0x22, 0x11, &[0; 12]),
            v2(0x21, 0x11, &[0; 11]),
            v2(0x21, 0x21, &[0; 35]),
            v2(0x21, 0x11, &[0; 5_000]),
        ] {
            assert_eq!(parse(&bytes), Err(NoProxyHeader), "{}", bytes.escape_ascii());
        }
    }
}
