//! Any bytes as what a client writes before a trusted proxy adds the client's address.

#![no_main]

use chaton_web::head::{parse, Parsed, RequestHead};
use chaton_web::limits::Limits;
use chaton_web::{ForwardedHeader, ForwardedSettings, Network, Trust, UnlistedPeers};
use libfuzzer_sys::fuzz_target;

const CLIENT: &str = "203.0.113.7";

fuzz_target!(|input: &[u8]| {
    let Some((&first, claim)) = input.split_first().filter(|(_, claim)| !claim.contains(&b'\n'))
    else {
        return;
    };
    let proxies = vec![Network::try_from("10.0.0.0/8".to_owned()).unwrap()];
    let (header, name, hop) = match first % 3 {
        0 => (ForwardedHeader::XForwardedFor, "X-Forwarded-For", CLIENT.to_owned()),
        1 => (ForwardedHeader::Forwarded, "Forwarded", format!("for={CLIENT}")),
        _ => (ForwardedHeader::Forwarded, "Forwarded", format!("for=\"{CLIENT}:80\";proto=http")),
    };
    // The proxy adds an element to the line, or a line.
    let between = if first < 128 { ", ".to_owned() } else { format!("\r\n{name}: ") };
    let start = format!("GET / HTTP/1.1\r\nHost: a\r\n{name}: ");
    let end = format!("{between}{hop}\r\n\r\n");
    let text = [start.as_bytes(), claim, end.as_bytes()].concat();
    let mut head = RequestHead::default();
    if parse(&text, &Limits::for_tests(), &mut head) != Ok(Parsed::Complete(text.len())) {
        return;
    }
    let others = UnlistedPeers::Hidden;
    let settings = ForwardedSettings { proxies, header, others, sends_files: false };
    let forwarded = settings.read(Trust::Proxy, &head);
    // Neither one that the client has chosen nor the proxy's own.
    assert_eq!(forwarded.client().map(|client| client.to_string()).as_deref(), Some(CLIENT));
    if first % 3 == 2 {
        assert!(!forwarded.is_https());
    }
    assert_eq!(settings.read(Trust::Hidden, &head).client(), None);
});
