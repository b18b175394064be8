//! TLS, with a certificate authority of the test's own.

use std::time::Duration;

use crate::redis_server::tls::start_tls;
use crate::redis_server::{claim, push, WAIT};
use chaton_jobs::store::{open, StoreErrorKind, StoreEvent, StoreOptions};

#[test]
fn shows_its_certificate_to_a_server_that_asks() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, port) = start_tls(dir.path(), "yes");
    let path = |name: &str| Some(dir.path().join(name).to_str().unwrap().to_string());
    let mut options = StoreOptions::for_tests(format!("rediss://localhost:{port}/0"));
    options.tls_ca_file = path("ca.pem");
    assert!(open(&options).unwrap().store().stats().is_err(), "no certificate was shown");
    options.tls_cert_file = path("s.pem");
    let error = open(&options).unwrap_err();
    assert!(error.message.contains("tls_key_file"), "{error}");
    options.tls_key_file = path("s.key");
    push(&mut *open(&options).unwrap().store(), "q", &[b"{}"]);
    for (cert, key, setting) in
        [("s.key", "s.key", "tls_cert_file"), ("s.pem", "s.pem", "tls_key_file")]
    {
        (options.tls_cert_file, options.tls_key_file) = (path(cert), path(key));
        let error = open(&options).unwrap().store().stats().unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
        assert!(error.message.contains(setting), "{error}");
    }
}

#[test]
fn accepts_any_certificate_when_verification_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, port) = start_tls(dir.path(), "no");
    // Its authority is not known.
    let mut options = StoreOptions::for_tests(format!("rediss://127.0.0.1:{port}/0"));
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    options.tls_verify = false;
    push(&mut *open(&options).unwrap().store(), "q", &[b"{}"]);
}

#[test]
fn connects_with_the_authority_only() {
    let dir = tempfile::tempdir().unwrap();
    let (server, port) = start_tls(dir.path(), "no");
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    for host in ["localhost", "127.0.0.1"] {
        let mut options = StoreOptions::for_tests(format!("rediss://{host}:{port}/0"));
        options.tls_ca_file = Some(path("ca.pem"));
        let factory = open(&options).unwrap();
        let (mut store, mut watch) = (factory.store(), factory.watch());
        let long = vec![7u8; 3_000_000];
        let queues = ["q".into()];
        watch.arm(&queues).unwrap();
        push(&mut *store, "q", &[b"1", &long]);
        let event = watch.wait(WAIT).unwrap();
        assert_eq!(event, StoreEvent::Changed { queues: queues.to_vec(), other: false });
        let turn = claim(&mut *store, host, &["q"], 2, 1).unwrap();
        assert!(turn.jobs.len() == 2 && turn.jobs[1].payload == long);
        watch.arm(&queues).unwrap();
        assert_eq!(watch.wait(Duration::from_millis(20)).unwrap(), StoreEvent::Timeout);
    }
    let mut options = StoreOptions::for_tests(format!("rediss://127.0.0.1:{port}/0"));
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    options.tls_ca_file = Some(path("none.pem"));
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Refused, "{error}");
    assert!(error.message.contains("none.pem"), "{error}");
    // TLS on the plain port.
    options.url = format!("rediss://127.0.0.1:{}/0", server.port);
    options.tls_ca_file = Some(path("ca.pem"));
    let error = open(&options).unwrap().store().stats().unwrap_err();
    assert!(error.message.contains("rediss"), "{error}");
}
