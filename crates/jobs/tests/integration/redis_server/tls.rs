//! Servers with TLS and the certificates for them.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{free_port, TestRedis};

fn openssl(dir: &Path, words: &[&str]) {
    let done = Command::new("openssl")
        .args(words)
        .current_dir(dir)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(done.unwrap().success(), "openssl {words:?}");
}

/// An authority (`ca.pem`) and a certificate of it for `localhost`, which also serves clients.
pub fn certificates(dir: &Path) {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    let ca = ["-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ours", "-days", "2"];
    openssl(dir, &[&["req", "-x509"], &key[..], &ca[..]].concat());
    let request = ["-keyout", "s.key", "-out", "s.csr", "-subj", "/CN=localhost"];
    openssl(dir, &[&["req"], &key[..], &request[..]].concat());
    std::fs::write(dir.join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").unwrap();
    let sign = ["x509", "-req", "-in", "s.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-days", "2"];
    let out = ["-CAcreateserial", "-extfile", "names", "-out", "s.pem"];
    openssl(dir, &[&sign[..], &out[..]].concat());
}

/// The settings of TLS for a server or a sentinel with the files of [`certificates`].
pub fn tls_settings(dir: &Path, port: u16, auth_clients: &str) -> Vec<(&'static str, String)> {
    let path = |name: &str| dir.join(name).to_str().unwrap().to_string();
    vec![
        ("tls-port", port.to_string()),
        ("tls-cert-file", path("s.pem")),
        ("tls-key-file", path("s.key")),
        ("tls-ca-cert-file", path("ca.pem")),
        ("tls-auth-clients", auth_clients.into()),
        // It also connects with TLS, to its primary or to the servers that it watches.
        ("tls-replication", "yes".into()),
    ]
}

/// A server that also has a port with TLS. It asks clients for a certificate or not (`yes`, `no`).
pub fn start_tls_server(dir: &Path, auth_clients: &str) -> (TestRedis, u16) {
    let port = std::cell::Cell::new(0);
    let server = TestRedis::start_by(|| {
        port.set(free_port());
        let settings = tls_settings(dir, port.get(), auth_clients);
        settings.into_iter().flat_map(|(name, value)| [format!("--{name}"), value]).collect()
    });
    (server, port.get())
}

/// The same with certificates that are made in `dir`.
pub fn start_tls(dir: &Path, auth_clients: &str) -> (TestRedis, u16) {
    certificates(dir);
    start_tls_server(dir, auth_clients)
}
