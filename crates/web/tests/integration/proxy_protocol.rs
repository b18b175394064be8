//! Connections that begin with a header of the PROXY protocol.

use std::time::Duration;

use crate::support::{answer, Client, Server};
use chaton_web::{Config, Network, ProxyBind};

const V1: &[u8] = b"PROXY TCP4 203.0.113.7 10.0.0.1 40000 80\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A server whose answers are the client's address.
fn server(set: impl FnOnce(&mut Config)) -> Server {
    let set = |config: &mut Config| {
        config.proxy_protocol = vec![ProxyBind { listener: 0, sources: None }];
        set(config);
    };
    Server::with(set, |exchange| {
        let address = exchange.remote_addr().into_owned();
        answer(exchange, address.as_bytes());
    })
}

fn v2(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
    let len = (addresses.len() as u16).to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", &[command, family][..], &len, addresses].concat()
}

fn is_closed(client: &mut Client) -> bool {
    use std::io::{ErrorKind, Read};
    match client.socket.read(&mut [0; 100]) {
        Ok(len) => len == 0,
        // Unread bytes were in the socket.
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn only_listed_balancers_may_send_a_header() {
    for (network, is_listed) in [("127.0.0.0/8", true), ("10.0.0.0/8", false)] {
        let sources = Some(vec![Network::try_from(network.to_owned()).unwrap()]);
        let bind = ProxyBind { listener: 0, sources };
        let server = server(|config| config.proxy_protocol = vec![bind]);
        let mut client = server.connect();
        client.send([V1, REQUEST].concat());
        if is_listed {
            assert_eq!(client.reply().text(), "203.0.113.7");
        } else {
            assert!(is_closed(&mut client));
            assert_eq!(server.engine.stats().refused_total, 1);
        }
    }
}

#[test]
fn the_address_in_the_header_is_the_clients() {
    let server = server(|_| {});
    let v6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1], &[0; 16], &[0, 1, 0, 80]].concat();
    for (header, address) in [
        (V1.to_vec(), "203.0.113.7"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
        (v2(0x21, 0x11, &[203, 0, 113, 8, 10, 0, 0, 1, 1, 2, 0, 80]), "203.0.113.8"),
        (v2(0x21, 0x21, &v6), "2001:db8::1"),
        (v2(0x20, 0, &[]), "127.0.0.1"),
    ] {
        let mut client = server.connect();
        client.send([&header[..], REQUEST].concat());
        assert_eq!(client.reply().text(), address);
        assert_eq!(client.get("/").reply().text(), address, "also of the next request");
    }
}

#[test]
fn a_header_may_arrive_in_pieces() {
    let server = server(|_| {});
    let mut client = server.connect();
    for byte in V1 {
        client.send([*byte]);
    }
    let mut other = server.connect();
    other.send([&v2(0x21, 0x11, &[203, 0, 113, 8, 10, 0, 0, 1, 1, 2, 0, 80]), REQUEST].concat());
    assert_eq!(other.reply().text(), "203.0.113.8", "others do not wait");
    assert_eq!(client.send(REQUEST).reply().text(), "203.0.113.7");
}

#[test]
fn a_connection_without_a_header_is_closed() {
    let server = server(|config| config.timeouts.header = Duration::from_millis(200));
    for bytes in [REQUEST, b"PROXY TCP4 x y 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x31", b"", b"PROXY"] {
        let mut client = server.connect();
        client.send(bytes);
        assert!(is_closed(&mut client), "{}", bytes.escape_ascii());
    }
    let mut ended = server.connect();
    ended.send(b"PROXY TCP4").end_sending();
    assert!(is_closed(&mut ended));
    assert_eq!(server.engine.stats().requests_total, 0);
}

#[test]
fn a_listener_without_the_setting_takes_no_header() {
    let server = server(|config| config.proxy_protocol = Vec::new());
    assert_eq!(server.connect().send([V1, REQUEST].concat()).reply().status, 400);
}
