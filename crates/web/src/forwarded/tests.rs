use super::*;
use crate::head;
use crate::limits::Limits;

fn settings(header: ForwardedHeader) -> ForwardedSettings {
    let networks = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:1::/48", "198.51.100.7/32"];
    let proxies = networks.map(|text| Network::try_from(text.to_owned()).unwrap()).to_vec();
    ForwardedSettings { proxies, header }
}

fn head_of(lines: &[&str]) -> RequestHead {
    let mut head = RequestHead::default();
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", lines.join("\r\n"));
    head::parse(text.as_bytes(), &Limits::for_tests(), &mut head).unwrap();
    head
}

fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> String {
    let (settings, head) = (settings(header), head_of(lines));
    let client = settings.read(peer, &head).client();
    client.map_or("peer".to_owned(), |client| client.to_string())
}

#[test]
fn the_client_is_the_last_address_that_is_no_trusted_proxys() {
    for (lines, expected) in [
        (&["X-Forwarded-For: 203.0.113.7"][..], "203.0.113.7"),
        (&["X-Forwarded-For: 203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        (&["X-Forwarded-For: 9.9.9.9, 203.0.113.7,198.51.100.7"], "203.0.113.7"),
        (
            &[
                "X-Forwarded-For: 9.9.9.9",
                "X-Forwarded-For: 203.0.113.7",
                "x-forwarded-for: 10.1.1.1",
            ],
            "203.0.113.7",
        ),
        (&["X-Forwarded-For: 10.0.0.9, 10.0.0.2"], "10.0.0.9"),
        (&["X-Forwarded-For: 203.0.113.7:4711"], "203.0.113.7"),
        (&["X-Forwarded-For: [2001:db8::7]:4711, 2001:db8:1::5"], "2001:db8::7"),
        (&["X-Forwarded-For: 2001:db8::7"], "2001:db8::7"),
        (&["X-Forwarded-For: ::ffff:203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7"),
        // What a proxy has not written ends the search.
        (&["X-Forwarded-For: 9.9.9.9, unknown, 10.0.0.2"], "10.0.0.2"),
        (&["X-Forwarded-For: 9.9.9.9, unknown"], "peer"),
        (&["X-Forwarded-For: 9.9.9.9,"], "peer"),
        (&["X-Forwarded-For:"], "peer"),
        (&["X_Forwarded_For: 9.9.9.9"], "peer"),
        (&["Forwarded: for=9.9.9.9"], "peer"),
        (&[], "peer"),
    ] {
        assert_eq!(
            client(ForwardedHeader::XForwardedFor, "127.0.0.1", lines),
            expected,
            "{lines:?}"
        );
        assert_eq!(client(ForwardedHeader::XForwardedFor, "192.0.2.1", lines), "peer", "{lines:?}");
    }
}

#[test]
fn forwarded_is_read_from_its_end() {
    for (lines, expected) in [
        (&["Forwarded: for=203.0.113.7"][..], "203.0.113.7"),
        (&["Forwarded: FOR = \"203.0.113.7:80\" ; proto=https;by=x"], "203.0.113.7"),
        (
            &["Forwarded: for=9.9.9.9, for=\"[2001:db8::7]:47\";proto=http, for=10.0.0.2"],
            "2001:db8::7",
        ),
        (&["Forwarded: for=9.9.9.9", "Forwarded: for=203.0.113.7, for=10.0.0.2"], "203.0.113.7"),
        (&["Forwarded: for=203.0.113.7", "Forwarded: for=10.0.0.2"], "203.0.113.7"),
        (&["Forwarded: host=\"a,b;for=9.9.9.9\";for=203.0.113.7"], "203.0.113.7"),
        (&["Forwarded: for=_hidden"], "peer"),
        (&["Forwarded: proto=https"], "peer"),
        (&["Forwarded: for=9.9.9.9, proto=https"], "peer"),
        // A client that opens a quotation does not get its own address believed.
        (&["Forwarded: for=9.9.9.9, a=\", for=203.0.113.7"], "peer"),
        (&["Forwarded: for=9.9.9.9, a=\", for=\"[2001:db8::7]\""], "peer"),
        (&["Forwarded: for=9.9.9.9, a=\\\", for=203.0.113.7"], "peer"),
        (&["X-Forwarded-For: 9.9.9.9"], "peer"),
    ] {
        assert_eq!(client(ForwardedHeader::Forwarded, "10.1.1.1", lines), expected, "{lines:?}");
        assert_eq!(client(ForwardedHeader::Forwarded, "192.0.2.1", lines), "peer", "{lines:?}");
    }
}

#[test]
fn the_scheme_is_that_of_the_last_proxy() {
    use ForwardedHeader::{Forwarded, XForwardedFor};
    for (header, lines, is_https) in [
        (XForwardedFor, &["X-Forwarded-Proto: https"][..], true),
        (XForwardedFor, &["X-Forwarded-Proto: http, HTTPS"], true),
        (XForwardedFor, &["X-Forwarded-Proto: https, http"], false),
        (XForwardedFor, &["X-Forwarded-Proto: https", "X-Forwarded-Proto: http"], false),
        (XForwardedFor, &["Forwarded: proto=https"], false),
        (Forwarded, &["Forwarded: for=9.9.9.9;proto=\"https\""], true),
        (Forwarded, &["Forwarded: proto=https, for=9.9.9.9"], false),
        (Forwarded, &["Forwarded: proto=https;a=\""], false),
        (Forwarded, &["X-Forwarded-Proto: https"], false),
    ] {
        let (settings, head) = (settings(header), head_of(lines));
        assert_eq!(settings.read("127.0.0.1", &head).is_https(), is_https, "{lines:?}");
        assert!(!settings.read("192.0.2.1", &head).is_https(), "{lines:?}");
    }
}

#[test]
fn headers_of_proxies_are_hidden_from_anybody_else() {
    let hidden = |header, peer: &str| {
        let (settings, head) = (settings(header), RequestHead::default());
        let forwarded = settings.read(peer, &head);
        let names = [
            "Forwarded",
            "X-Forwarded-For",
            "x_forwarded_proto",
            "X-Forwarded-Anything",
            "X-Real_IP",
            "Client-Ip",
            "X-Forwarded",
            "X-Forwarded-",
            "Host",
        ];
        let hides = |name: &&str| forwarded.hides(name.as_bytes());
        names.into_iter().filter(hides).collect::<Vec<_>>().join(" ")
    };
    let all =
        "Forwarded X-Forwarded-For x_forwarded_proto X-Forwarded-Anything X-Real_IP Client-Ip";
    for header in [ForwardedHeader::XForwardedFor, ForwardedHeader::Forwarded] {
        assert_eq!(hidden(header, "192.0.2.1"), all);
        assert_eq!(hidden(header, "not an address"), all);
    }
    assert_eq!(hidden(ForwardedHeader::XForwardedFor, "10.0.0.1"), "Forwarded");
    let proxied = hidden(ForwardedHeader::Forwarded, "10.0.0.1");
    assert_eq!(proxied, "X-Forwarded-For x_forwarded_proto");
}

#[test]
fn networks_contain_the_addresses_with_their_leading_bits() {
    let contains = |network: &str, address: &str| {
        Network::try_from(network.to_owned()).unwrap().contains(address.parse().unwrap())
    };
    for (network, inside, outside) in [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
        ("203.0.113.7/32", "203.0.113.7", "203.0.113.6"),
        ("0.0.0.0/0", "255.255.255.255", "::1"),
        ("fc00::/7", "fdff::1", "fe00::1"),
        ("::1/128", "::1", "::2"),
        ("::/0", "ffff::", "1.2.3.4"),
    ] {
        assert!(contains(network, inside), "{network} {inside}");
        assert!(!contains(network, outside), "{network} {outside}");
    }
    for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/-1", ""] {
        assert!(Network::try_from(text.to_owned()).is_err(), "{text}");
    }
}
