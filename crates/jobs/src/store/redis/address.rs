//! Where the server is and who we are there.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo};

use crate::store::{without_password, Result, StoreError, StoreOptions};

/// Where to connect.
#[derive(Clone, Debug)]
pub enum Target {
    /// Host and port.
    Tcp(String, u16),
    /// Host and port, encrypted.
    Tls(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

/// All that a connection needs to know, read from the options once.
pub struct Address {
    /// The address without its password, for messages.
    pub shown: String,
    /// Where.
    pub target: Target,
    /// Number of the database.
    pub db: i64,
    /// Who we are.
    pub username: Option<String>,
    /// Proof of it.
    pub password: Option<String>,
    /// Authorities of the server's certificate.
    pub ca_file: Option<String>,
    /// Them, read when the first connection is made, and what TLS remembers of
    /// earlier connections.
    pub tls: OnceLock<Arc<rustls::ClientConfig>>,
    /// Time to make a connection.
    pub connect_timeout: Duration,
    /// Time for one answer.
    pub answer_timeout: Duration,
}

impl Address {
    /// Reads the address as the crate `redis` and most clients do.
    ///
    /// # Errors
    /// [`crate::store::StoreErrorKind::Refused`] saying what is wrong with it.
    pub fn read(options: &StoreOptions) -> Result<Self> {
        let shown = shown(&options.url);
        let refused = |why: String| {
            StoreError::refused(format!(
                "store {shown:?}: {why}; write it as redis://USER:PASSWORD@HOST:PORT/DB, \
                 rediss://… (encrypted) or unix:///PATH?db=N"
            ))
        };
        // Of the crate's errors only the kind is shown: their detail may hold
        // a piece of the address, and so of the password.
        let info = options
            .url
            .as_str()
            .into_connection_info()
            .map_err(|e| refused(format!("not readable ({:?})", e.kind())))?;
        let target = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Target::Tcp(host.clone(), *port),
            ConnectionAddr::TcpTls { insecure: true, .. } => {
                return Err(refused(
                    "#insecure is not supported: name the authority by tls_ca_file instead".into(),
                ))
            }
            ConnectionAddr::TcpTls { host, port, .. } => Target::Tls(host.clone(), *port),
            ConnectionAddr::Unix(path) => Target::Unix(path.clone()),
            other => return Err(refused(format!("{other} is of no known kind"))),
        };
        if options.connect_timeout.is_zero() || options.answer_timeout.is_zero() {
            return Err(refused("connect_timeout and answer_timeout must be above 0".into()));
        }
        let redis = info.redis_settings();
        Ok(Self {
            target,
            db: redis.db(),
            username: options.username.clone().or_else(|| redis.username().map(str::to_string)),
            password: options.password.clone().or_else(|| redis.password().map(str::to_string)),
            ca_file: options.tls_ca_file.clone(),
            tls: OnceLock::new(),
            connect_timeout: options.connect_timeout,
            answer_timeout: options.answer_timeout,
            shown,
        })
    }

    /// The user's name as the server knows it.
    pub fn user(&self) -> &str {
        self.username.as_deref().unwrap_or("default")
    }
}

/// The address without its password, which a socket's has in its query.
fn shown(url: &str) -> String {
    let shown = without_password(url);
    match shown.split_once('?') {
        Some((place, query)) if query.contains("pass=") => {
            let kept: Vec<&str> = query.split('&').filter(|p| !p.starts_with("pass=")).collect();
            if kept.is_empty() {
                place.to_string()
            } else {
                format!("{place}?{}", kept.join("&"))
            }
        }
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        let read = |url: &str| Address::read(&StoreOptions::new(url));
        let plain = read("redis://127.0.0.1:6380/3").unwrap();
        assert!(matches!(plain.target, Target::Tcp(ref host, 6380) if host == "127.0.0.1"));
        assert_eq!((plain.db, plain.user(), plain.password.as_ref()), (3, "default", None));
        let full = read("rediss://bob:s%40cret@h/1").unwrap();
        assert!(matches!(full.target, Target::Tls(ref host, 6379) if host == "h"));
        assert_eq!((full.user(), full.password.as_deref()), ("bob", Some("s@cret")));
        assert_eq!(full.shown, "rediss://***@h/1");
        let socket = read("unix:///run/r.sock?db=2&pass=x").unwrap();
        assert!(matches!(socket.target, Target::Unix(ref path) if path.ends_with("r.sock")));
        assert_eq!((socket.db, socket.shown.as_str()), (2, "unix:///run/r.sock?db=2"));
    }

    #[test]
    fn refuses_what_it_cannot_read_and_never_shows_the_password() {
        for url in
            ["redis://", "redis://u:hush@h:99999/0", "redis://u:hush@h/x", "rediss://h/#insecure"]
        {
            let error = Address::read(&StoreOptions::new(url)).err().unwrap();
            assert!(!error.message.contains("hush"), "{error}");
        }
    }
}
