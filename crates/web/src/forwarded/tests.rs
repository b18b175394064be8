use super::*;
use crate::head;
use crate::limits::Limits;

fn settings(header: ForwardedHeader) -> ForwardedSettings {
    let networks = ["127.0.0.0/8", "10.0.0.0/8", "2001:db8:1::/48", "198.51.100.7/32"];
    let proxies = networks.map(|text| Network::try_from(text.to_owned()).unwrap()).to_vec();
    ForwardedSettings { proxies, header, others: UnlistedPeers::Hidden, sends_files: false }
}

fn head_of(lines: &[&str]) -> RequestHead {
    let mut head = RequestHead::default();
    let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n\r\n", lines.join("\r\n"));
    head::parse(text.as_bytes(), &Limits::for_tests(), &mut head).unwrap();
    head
}

fn read<'a>(settings: &'a ForwardedSettings, peer: &str, head: &'a RequestHead) -> Forwarded<'a> {
    settings.read(settings.trust(peer.parse().unwrap(), false), head)
}

fn client(header: ForwardedHeader, peer: &str, lines: &[&str]) -> String {
    let (settings, head) = (settings(header), head_of(lines));
    let client = read(&settings, peer, &head).client();
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
        // What is no address ends the search, and the client is unknown: it gets no proxy's address.
        (&["X-Forwarded-For: 9.9.9.9, unknown, 10.0.0.2"], "0.0.0.0"),
        (&["X-Forwarded-For: 9.9.9.9, unknown"], "0.0.0.0"),
        (&["X-Forwarded-For: 9.9.9.9,"], "0.0.0.0"),
        (&["X-Forwarded-For:"], "0.0.0.0"),
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
        (&["Forwarded: for=_hidden"], "0.0.0.0"),
        (&["Forwarded: proto=https"], "0.0.0.0"),
        (&["Forwarded: for=9.9.9.9, proto=https"], "0.0.0.0"),
        // A client that opens a quotation gets neither the address of its choice nor the proxy's.
        (&["Forwarded: for=9.9.9.9, a=\", for=203.0.113.7"], "203.0.113.7"),
        (&["Forwarded: for=9.9.9.9, a=\", for=203.0.113.7, for=10.0.0.2"], "203.0.113.7"),
        (&["Forwarded: for=9.9.9.9, a=\", for=\"[2001:db8::7]\""], "2001:db8::7"),
        (&["Forwarded: for=9.9.9.9, a=\\\", for=203.0.113.7"], "203.0.113.7"),
        (&["Forwarded: a=\", for=203.0.113.7;host=\"x,for=9.9.9.9\""], "0.0.0.0"),
        (&["Forwarded: for=9.9.9.9, a=\""], "0.0.0.0"),
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
        (Forwarded, &["Forwarded: a=\", for=203.0.113.7;proto=https"], true),
        (Forwarded, &["X-Forwarded-Proto: https"], false),
    ] {
        let (settings, head) = (settings(header), head_of(lines));
        assert_eq!(read(&settings, "127.0.0.1", &head).is_https(), is_https, "{lines:?}");
        assert!(!read(&settings, "192.0.2.1", &head).is_https(), "{lines:?}");
    }
}

#[test]
fn a_header_that_is_the_applications_matter_must_say_https_in_all_lines() {
    let settings = ForwardedSettings::for_tests();
    for (lines, is_https) in [
        (&["X-Forwarded-Proto: https, HTTPS"][..], true),
        (&["X-Forwarded-Proto: https", "X-Forwarded-Proto: http"], false),
        (&["X-Forwarded-Proto: http", "X-Forwarded-Proto: https"], false),
        (&["X-Forwarded-Proto: https, http"], false),
        (&["X-Forwarded-Proto:"], false),
        (&["X-Other: https"], false),
    ] {
        let head = head_of(lines);
        assert_eq!(settings.read(Trust::PassedOn, &head).claims_https(), is_https, "{lines:?}");
        assert!(!settings.read(Trust::Hidden, &head).claims_https(), "{lines:?}");
    }
}

#[test]
fn a_proxys_words_are_hidden_from_anybody_else_and_mappings_of_files_nearly_always() {
    use ForwardedHeader::{Forwarded, XForwardedFor};
    const FILES: &str = "X-Accel-Mapping x_sendfile_type";
    const CLIENT: &str = "Forwarded X-Forwarded-For x_forwarded_proto X-Forwarded-Anything \
                          X-Real_IP Client-Ip X-Request-Start";
    let ordinary = ["X-Forwarded", "X-Forwarded-", "Host", "Cookie", "X-Requested-With", "From"];
    let names = format!("{FILES} {CLIENT} {}", ordinary.join(" "));
    let hidden = |trust, header, sends_files| {
        let (mut settings, head) = (settings(header), RequestHead::default());
        settings.sends_files = sends_files;
        let forwarded = settings.read(trust, &head);
        let hides = |name: &&str| forwarded.hides(name.as_bytes());
        names.split(' ').filter(hides).collect::<Vec<_>>().join(" ")
    };
    for header in [XForwardedFor, Forwarded] {
        assert_eq!(hidden(Trust::Hidden, header, false), format!("{FILES} {CLIENT}"));
        assert_eq!(hidden(Trust::PassedOn, header, false), FILES);
    }
    assert_eq!(hidden(Trust::Proxy, XForwardedFor, false), "Forwarded");
    assert_eq!(hidden(Trust::Proxy, Forwarded, false), "X-Forwarded-For x_forwarded_proto");
    assert_eq!(hidden(Trust::Proxy, XForwardedFor, true), format!("{FILES} Forwarded"));
}

#[test]
fn a_peer_is_trusted_by_its_address_or_as_a_process_of_this_machine() {
    use UnlistedPeers::{Hidden, HiddenOverTcp, PassedOn};
    let header = Some(ProxyHeader { len: 0, client: None, spoke_tls: false });
    let trust = |others, proxies, remote: Option<&str>, header| {
        let proxies = if proxies { settings(ForwardedHeader::Forwarded).proxies } else { vec![] };
        let settings = ForwardedSettings { others, proxies, ..ForwardedSettings::for_tests() };
        Peer::new(&settings, remote.map(|it| it.parse().unwrap()), header).trust
    };
    for (others, unlisted, local) in [
        (PassedOn, Trust::PassedOn, Trust::PassedOn),
        (HiddenOverTcp, Trust::Hidden, Trust::PassedOn),
        (Hidden, Trust::Hidden, Trust::Hidden),
    ] {
        assert_eq!(trust(others, false, Some("192.0.2.1"), None), unlisted);
        assert_eq!(trust(others, false, None, None), local);
        // Behind a balancer of connections the bytes are a remote client's.
        assert_eq!(trust(others, false, None, header), unlisted);
    }
    assert_eq!(trust(Hidden, true, None, None), Trust::Proxy, "127.0.0.1");
    assert_eq!(trust(Hidden, true, Some("10.1.2.3"), None), Trust::Proxy);
    assert_eq!(trust(Hidden, true, Some("192.0.2.1"), None), Trust::Hidden);
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
        ("::ffff:10.0.0.0/104", "10.9.0.1", "11.0.0.0"),
    ] {
        assert!(contains(network, inside), "{network} {inside}");
        assert!(!contains(network, outside), "{network} {outside}");
    }
    for text in ["10.0.0.0", "10.0.0.0/33", "::/129", "a/8", "10.0.0.0/-1", ""] {
        assert!(Network::try_from(text.to_owned()).is_err(), "{text}");
    }
}
