//! The server under load.

use std::net::{Ipv4Addr, SocketAddrV4};

/// A server on this machine, and the request to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    address: SocketAddrV4,
    request: Vec<u8>,
}

impl ServerAddress {
    /// Parses `http://127.0.0.1:PORT/PATH` or the same with `localhost`.
    ///
    /// # Errors
    /// A sentence if it is not such a URL. Other machines are refused: a
    /// generator that never slows down must not hit them by mistake.
    pub fn parse(url: &str) -> Result<Self, String> {
        let rest = url
            .strip_prefix("http://")
            .ok_or_else(|| format!("--url {url}: it has to begin with http://"))?;
        let slash = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(slash);
        let (host, port) = authority.rsplit_once(':').unwrap_or((authority, "80"));
        let host = if host == "localhost" { "127.0.0.1" } else { host };
        let ip: Ipv4Addr = host
            .parse()
            .ok()
            .filter(Ipv4Addr::is_loopback)
            .ok_or_else(|| format!("--url {url}: only 127.0.0.1 is served, not {host}"))?;
        let port: u16 =
            port.parse().map_err(|_| format!("--url {url}: {port} is not a port number"))?;
        let path = if path.is_empty() { "/" } else { path };
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n").into_bytes();
        Ok(Self { address: SocketAddrV4::new(ip, port), request })
    }

    /// The address.
    pub fn address(&self) -> SocketAddrV4 {
        self.address
    }

    /// The bytes of one request.
    pub fn request(&self) -> &[u8] {
        &self.request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_port_and_path_are_parsed() {
        let target = ServerAddress::parse("http://localhost:9292/notes?page=2").unwrap();
        assert_eq!(target.address().to_string(), "127.0.0.1:9292");
        let text = String::from_utf8(target.request().to_vec()).unwrap();
        assert_eq!(text, "GET /notes?page=2 HTTP/1.1\r\nHost: 127.0.0.1:9292\r\n\r\n");
        assert!(ServerAddress::parse("http://127.0.0.1:9292")
            .unwrap()
            .request()
            .starts_with(b"GET / "));
    }

    #[test]
    fn other_machines_are_refused() {
        for url in ["http://10.0.0.1:80/", "http://example.org/", "https://127.0.0.1/"] {
            assert!(ServerAddress::parse(url).is_err(), "{url}");
        }
        assert!(ServerAddress::parse("http://127.0.0.1:99999/").is_err());
    }
}
