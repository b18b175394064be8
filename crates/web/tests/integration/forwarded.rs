//! What trusted proxies say of the client.

use crate::support::{answer, Server};
use chaton_web::{ForwardedHeader, ForwardedSettings, Network, UnlistedPeers};

/// A server behind proxies of this network, whose answers are the client's address and scheme.
fn server(network: &str) -> Server {
    let network = Network::try_from(network.to_owned()).unwrap();
    let header = ForwardedHeader::XForwardedFor;
    let (proxies, others) = (vec![network], UnlistedPeers::Hidden);
    let settings = ForwardedSettings { proxies, header, others, sends_files: false };
    let set = |config: &mut chaton_web::Config| config.forwarded = settings;
    Server::with(set, |exchange| {
        let text = format!("{} {}", exchange.remote_addr(), exchange.is_https());
        answer(exchange, text.as_bytes());
    })
}

#[test]
fn each_request_of_a_trusted_proxy_has_its_own_client() {
    let server = server("127.0.0.0/8");
    let mut client = server.connect();
    for (headers, expected) in [
        ("X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: https\r\n", "203.0.113.7 true"),
        ("X-Forwarded-For: 203.0.113.8\r\n", "203.0.113.8 false"),
        ("", "127.0.0.1 false"),
    ] {
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
        assert_eq!(client.reply().text(), expected);
    }
}

#[test]
fn nobody_else_is_believed() {
    let server = server("10.0.0.0/8");
    let mut client = server.connect();
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 9.9.9.9\r\nX-Forwarded-Proto: https\r\n\r\n",
    );
    assert_eq!(client.reply().text(), "127.0.0.1 false");
}
