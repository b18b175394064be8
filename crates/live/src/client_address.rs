//! Under which address a client's open streams are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The bits of an address of IPv6 that a client cannot choose (RFC 6177).
const NETWORK_BITS: u32 = 64;
/// Addresses that providers share between customers (RFC 6598), which balancers have, too.
const SHARED: (Ipv4Addr, u32) = (Ipv4Addr::new(100, 64, 0, 0), 10);

/// The address under which a client is counted: that of its network with IPv6. None for addresses of this machine and of
/// private networks: they may be those of a proxy that does not tell who its clients are.
pub(crate) fn counted(address: IpAddr) -> Option<IpAddr> {
    match address.to_canonical() {
        IpAddr::V4(one) => {
            let is_shared = (one.to_bits() ^ SHARED.0.to_bits()) >> (32 - SHARED.1) == 0;
            let is_local = one.is_private()
                || one.is_loopback()
                || one.is_link_local()
                || one.is_unspecified()
                || is_shared;
            (!is_local).then_some(IpAddr::V4(one))
        }
        IpAddr::V6(one) => {
            let is_local = one.is_loopback()
                || one.is_unspecified()
                || one.is_unique_local()
                || one.is_unicast_link_local();
            let network = one.to_bits() >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS);
            (!is_local).then_some(IpAddr::V6(Ipv6Addr::from_bits(network)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_a_proxy_may_have_are_not_counted() {
        let cases = [
            ("203.0.113.9", Some("203.0.113.9")),
            ("::ffff:203.0.113.9", Some("203.0.113.9")),
            ("100.128.0.1", Some("100.128.0.1")),
            ("2001:db8:1:2:3:4:5:6", Some("2001:db8:1:2::")),
            ("127.0.0.1", None),
            ("10.1.2.3", None),
            ("100.127.255.255", None),
            ("0.0.0.0", None),
            ("::1", None),
            ("fd00::1", None),
            ("fe80::1", None),
        ];
        for (address, expected) in cases {
            let found = counted(address.parse().unwrap());
            assert_eq!(found, expected.map(|one| one.parse().unwrap()), "{address}");
        }
    }
}
