//! The address of a Redis server.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::error::{Result, StoreError};
use crate::tls::TlsOptions;

/// Port of an address that names none.
const DEFAULT_PORT: u16 = 6379;
/// Port of a sentinel whose address names none.
const SENTINEL_PORT: u16 = 26379;

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// Host and port.
    Tcp(String, u16),
    /// Host and port, with TLS.
    Tls(String, u16),
    /// A socket file.
    Unix(PathBuf),
}

impl Endpoint {
    /// A server of that host and port, with TLS where this one has it.
    pub fn sibling(&self, host: String, port: u16) -> Self {
        match self {
            Self::Tls(..) => Self::Tls(host, port),
            _ => Self::Tcp(host, port),
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) | Self::Tls(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// How to ask sentinels for the primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentinelOptions {
    /// The name that they give it.
    pub primary: String,
    /// User name for the sentinels.
    pub username: Option<String>,
    /// Password for the sentinels.
    pub password: Option<String>,
}

/// What an address is read from.
#[derive(Clone, Debug)]
pub struct AddressOptions<'a> {
    /// The server's address.
    pub url: &'a str,
    /// User name and password, overriding the address's.
    pub user: [Option<&'a str>; 2],
    /// User name and password for the sentinels.
    pub sentinel_user: [Option<&'a str>; 2],
    /// Files with the authorities that may sign the server's certificate, with the client's certificate, and with its
    /// key.
    pub tls_files: [Option<&'a str>; 3],
    /// Whether the server's certificate is checked.
    pub tls_verify: bool,
    /// Time to make a connection, and for one reply.
    pub timeouts: [Duration; 2],
}

impl<'a> AddressOptions<'a> {
    /// An address that says all.
    pub fn at(url: &'a str) -> Self {
        // As in `jobs { }`.
        let timeouts = [Duration::from_secs(5), Duration::from_secs(5)];
        let (user, sentinel_user, tls_files) = ([None; 2], [None; 2], [None; 3]);
        Self { url, user, sentinel_user, tls_files, tls_verify: true, timeouts }
    }
}

/// What a connection needs to know, read from the options once.
pub struct RedisAddress {
    /// The address without its password, for messages.
    pub shown: String,
    /// The server, or the sentinels.
    pub endpoints: Vec<Endpoint>,
    /// `None`: the first endpoint is the server.
    pub sentinel: Option<SentinelOptions>,
    /// Number of the database.
    pub db: i64,
    /// User name.
    pub username: Option<String>,
    /// Password.
    pub password: Option<String>,
    /// Files and switches for TLS.
    pub tls_options: TlsOptions,
    /// TLS settings read from these files, and the cache of TLS sessions; made by the first
    /// connection.
    pub tls: OnceLock<Arc<rustls::ClientConfig>>,
    /// Time to make a connection, and to ask the sentinels before that.
    pub connect_timeout: Duration,
    /// Time for one reply.
    pub answer_timeout: Duration,
}

impl RedisAddress {
    /// Reads `redis://`, `rediss://` (TLS), `valkey://`, `valkeys://`, `redis+sentinel://`,
    /// `rediss+sentinel://` and `unix://` addresses. Unknown query parameters are ignored.
    ///
    /// # Errors
    /// [`crate::StoreErrorKind::Refused`] naming what is wrong. The
    /// message shows no part of the password.
    pub fn read(options: AddressOptions<'_>) -> Result<Self> {
        let shown = shown(options.url);
        let refused = |why: &str| {
            StoreError::refused(format!(
                "store {shown:?}: {why}; write it as redis://USER:PASSWORD@HOST:PORT/DB, \
                 rediss://… (encrypted), redis+sentinel://USER:PASSWORD@HOST:PORT,HOST:PORT/NAME/DB \
                 or unix:///PATH?db=N"
            ))
        };
        let parts = UrlParts::read(options.url).map_err(refused)?;
        let [connect_timeout, answer_timeout] = options.timeouts;
        if connect_timeout.is_zero() || answer_timeout.is_zero() {
            return Err(refused("answer_timeout_s must be above 0"));
        }
        let [ca_file, cert_file, key_file] = options.tls_files;
        let client = match (cert_file, key_file) {
            (Some(cert_file), Some(key_file)) => Some((cert_file.into(), key_file.into())),
            (None, None) => None,
            _ => {
                return Err(StoreError::refused(format!(
                    "store {shown:?}: tls_cert_file and tls_key_file need each other"
                )))
            }
        };
        let (ca_file, verify) = (ca_file.map(String::from), options.tls_verify);
        let ([username, password], [sentinel_name, sentinel_word]) =
            (options.user, options.sentinel_user);
        Ok(Self {
            endpoints: parts.endpoints,
            sentinel: parts.primary.map(|primary| SentinelOptions {
                primary,
                username: sentinel_name.map(String::from),
                password: sentinel_word.map(String::from),
            }),
            db: parts.db,
            username: username.map(String::from).or(parts.username),
            password: password.map(String::from).or(parts.password),
            tls_options: TlsOptions { ca_file, client, verify },
            tls: OnceLock::new(),
            connect_timeout,
            answer_timeout,
            shown,
        })
    }

    /// The user's name as the server knows it.
    pub fn user(&self) -> &str {
        self.username.as_deref().unwrap_or("default")
    }
}

/// The parts of an address.
#[derive(Debug, PartialEq, Eq)]
struct UrlParts {
    endpoints: Vec<Endpoint>,
    /// The primary's name, in an address of sentinels.
    primary: Option<String>,
    db: i64,
    username: Option<String>,
    password: Option<String>,
}

impl UrlParts {
    /// The error is a reason without any part of the address.
    fn read(url: &str) -> std::result::Result<Self, &'static str> {
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("it contains white space or a control character");
        }
        let (scheme, rest) = url.split_once("://").ok_or("it has no scheme")?;
        let (rest, fragment) = rest.split_once('#').map_or((rest, None), |(a, b)| (a, Some(b)));
        match fragment {
            Some("insecure") => {
                return Err("#insecure is not supported, use tls_ca_file or tls_verify false")
            }
            Some(_) => return Err("it contains a #, which a password writes as %23"),
            None => {}
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        match scheme {
            "redis" | "valkey" => Self::server(rest, Endpoint::Tcp),
            "rediss" | "valkeys" => Self::server(rest, Endpoint::Tls),
            "redis+sentinel" => Self::sentinels(rest, Endpoint::Tcp),
            "rediss+sentinel" => Self::sentinels(rest, Endpoint::Tls),
            "unix" => Self::socket(rest, query),
            _ => Err("its scheme is unknown"),
        }
    }

    fn server(
        rest: &str,
        endpoint: fn(String, u16) -> Endpoint,
    ) -> std::result::Result<Self, &'static str> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        Self::servers(authority, path, |server| {
            let (host, port) = host_and_port(server, DEFAULT_PORT)?;
            Ok(vec![endpoint(host, port)])
        })
    }

    fn sentinels(
        rest: &str,
        endpoint: fn(String, u16) -> Endpoint,
    ) -> std::result::Result<Self, &'static str> {
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (name, db) = path.split_once('/').unwrap_or((path, ""));
        let primary = decode(name).ok_or("the primary's name is not percent-encoded UTF-8")?;
        if primary.is_empty() {
            return Err("it does not name the primary, as in /mymaster/0");
        }
        let one = |sentinel: &str| {
            let (host, port) = host_and_port(sentinel, SENTINEL_PORT)?;
            Ok(endpoint(host, port))
        };
        let servers = |list: &str| list.split(',').map(one).collect();
        Ok(Self { primary: Some(primary), ..Self::servers(authority, db, servers)? })
    }

    fn servers(
        authority: &str,
        path: &str,
        endpoints: impl FnOnce(&str) -> std::result::Result<Vec<Endpoint>, &'static str>,
    ) -> std::result::Result<Self, &'static str> {
        let (user, server) =
            authority.rsplit_once('@').map_or((None, authority), |(a, b)| (Some(a), b));
        let (username, password) = match user.map(|user| user.split_once(':').ok_or(user)) {
            None => (None, None),
            Some(Ok((name, password))) => (Some(name), Some(password)),
            Some(Err(name)) => (Some(name), None),
        };
        let endpoints = endpoints(server)?;
        let given = |text: Option<&str>, why| {
            text.filter(|text| !text.is_empty()).map(|text| decode(text).ok_or(why)).transpose()
        };
        Ok(Self {
            endpoints,
            primary: None,
            db: database(path.trim_matches('/'))?,
            username: given(username, "its user name is not percent-encoded UTF-8")?,
            password: given(password, "its password is not percent-encoded UTF-8")?,
        })
    }

    fn socket(path: &str, query: &str) -> std::result::Result<Self, &'static str> {
        if !path.starts_with('/') {
            return Err("the path of a socket must begin with /");
        }
        let parameter = |name: &str| {
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let value = pairs.find(|(key, _)| *key == name)?.1.replace('+', " ");
            Some(decode(&value).ok_or("a query parameter is not percent-encoded UTF-8"))
        };
        Ok(Self {
            endpoints: vec![Endpoint::Unix(
                decode(path).ok_or("its path is not percent-encoded UTF-8")?.into(),
            )],
            primary: None,
            db: database(&parameter("db").transpose()?.unwrap_or_default())?,
            username: parameter("user").transpose()?,
            password: parameter("pass").transpose()?,
        })
    }
}

fn host_and_port(
    server: &str,
    default_port: u16,
) -> std::result::Result<(String, u16), &'static str> {
    let (host, port) = match server.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or("its IPv6 address has no ]")?;
            host.parse::<std::net::Ipv6Addr>().map_err(|_| "its IPv6 address is malformed")?;
            (host, if port.is_empty() { None } else { Some(port.strip_prefix(':').ok_or(PORT)?) })
        }
        None => server.split_once(':').map_or((server, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("it names no host");
    }
    if matches!(host, "0.0.0.0" | "::") {
        return Err("its host stands for all addresses, name one of them");
    }
    let port = match port {
        None | Some("") => default_port,
        Some(port) if port.bytes().all(|b| b.is_ascii_digit()) => port.parse().map_err(|_| PORT)?,
        Some(_) => return Err(PORT),
    };
    Ok((host.to_string(), port))
}

/// What is wrong with a port.
const PORT: &str = "its port is no number from 0 to 65535";

fn database(text: &str) -> std::result::Result<i64, &'static str> {
    match text {
        "" => Ok(0),
        _ => text.parse().map_err(|_| "its database is no number"),
    }
}

/// Replaces `%XX` by its byte; `None` for a bad escape and for what is no UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(bytes.next()?)?, digit(bytes.next()?)?);
                (high * 16 + low) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(decoded).ok()
}

/// An address fit for a log: user and password left out.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    match rest.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}://***@{host}"),
        None => url.to_string(),
    }
}

/// The address without its password, which a socket has in its query.
fn shown(url: &str) -> String {
    let shown = without_password(url);
    let Some((place, query)) = shown.split_once('?') else { return shown };
    let is_secret = |pair: &&str| pair.starts_with("pass=");
    if !query.split('&').any(|pair| is_secret(&pair)) {
        return shown;
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_secret(pair)).collect();
    let query = if kept.is_empty() { Cow::from("") } else { format!("?{}", kept.join("&")).into() };
    format!("{place}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::StoreErrorKind;

    fn read(url: &str) -> UrlParts {
        UrlParts::read(url).unwrap()
    }

    fn tcp(host: &str, port: u16) -> Endpoint {
        Endpoint::Tcp(host.into(), port)
    }

    #[test]
    fn reads_host_port_and_database() {
        let none = || UrlParts {
            endpoints: vec![tcp("h", 6379)],
            primary: None,
            db: 0,
            username: None,
            password: None,
        };
        assert_eq!(read("redis://h"), none());
        assert_eq!(read("redis://h/"), none());
        assert_eq!(read("redis://h:/"), none());
        assert_eq!(read("redis://h?timeout=5"), none());
        assert_eq!(read("valkey://h:1/15").endpoints, [tcp("h", 1)]);
        assert_eq!(read("redis://127.0.0.1:6380/3/").db, 3);
        assert_eq!(read("rediss://h:7/1").endpoints, [Endpoint::Tls("h".into(), 7)]);
        assert_eq!(read("valkeys://h").endpoints, [Endpoint::Tls("h".into(), 6379)]);
        assert_eq!(read("redis://[::1]").endpoints, [tcp("::1", 6379)]);
        assert_eq!(read("redis://u:p@[2001:db8::2]:7/2").endpoints, [tcp("2001:db8::2", 7)]);
    }

    #[test]
    fn reads_addresses_of_sentinels() {
        let parts = read("redis+sentinel://u:p%2C@a,[::1]:7,c:8/my%20primary/3?x=1");
        assert_eq!(parts.endpoints, [tcp("a", 26379), tcp("::1", 7), tcp("c", 8)]);
        assert_eq!((parts.primary.as_deref(), parts.db), (Some("my primary"), 3));
        assert_eq!((parts.username.as_deref(), parts.password.as_deref()), (Some("u"), Some("p,")));
        let parts = read("rediss+sentinel://a/m");
        assert_eq!(parts.endpoints, [Endpoint::Tls("a".into(), 26379)]);
        assert_eq!((parts.primary.as_deref(), parts.db, parts.password), (Some("m"), 0, None));
    }

    #[test]
    fn reads_user_and_password() {
        let user = |url: &str| {
            let parts = read(url);
            (parts.username, parts.password)
        };
        let some = |text: &str| Some(text.to_string());
        assert_eq!(user("rediss://bob:s%40cret@h/1"), (some("bob"), some("s@cret")));
        assert_eq!(user("redis://:p@h"), (None, some("p")));
        assert_eq!(user("redis://bob@h"), (some("bob"), None));
        assert_eq!(user("redis://bob:@h"), (some("bob"), None));
        assert_eq!(user("redis://b%C3%B6b:a:b%2Fc@d@h"), (some("böb"), some("a:b/c@d")));
        assert_eq!(user("unix:///s?user=me&pass=a%26b+c"), (some("me"), some("a&b c")));
        let user = [Some("other"), Some("word")];
        let options = AddressOptions { user, ..AddressOptions::at("redis://bob:hush@h") };
        let address = RedisAddress::read(options).unwrap();
        assert_eq!((address.user(), address.password.as_deref()), ("other", Some("word")));
        assert_eq!(RedisAddress::read(AddressOptions::at("redis://h")).unwrap().user(), "default");
    }

    #[test]
    fn reads_the_path_of_a_socket() {
        let parts = read("unix:///run/a%20b.sock?db=2&other=1");
        assert_eq!((parts.endpoints, parts.db), (vec![Endpoint::Unix("/run/a b.sock".into())], 2));
        assert_eq!(read("unix:///run/r.sock").db, 0);
    }

    #[test]
    fn names_what_is_wrong_and_never_shows_the_password() {
        for (url, why) in [
            ("redis://", "no host"),
            ("redis:h", "no scheme"),
            ("http://u:hush@h", "scheme"),
            ("redis://u:hush@/1", "no host"),
            ("redis://u:hush@h:99999/0", "port"),
            ("redis://u:hush@h:+1/0", "port"),
            ("redis://u:hush@[::1]7/0", "port"),
            ("redis://u:hush@[::1/0", "no ]"),
            ("redis://u:hush@[x]/0", "malformed"),
            ("redis://u:hush@0.0.0.0", "all addresses"),
            ("redis://u:hush@h/x", "database"),
            ("redis://u:hush%4@h/0", "password"),
            ("redis://u:hush%ff@h/0", "password"),
            ("redis://%zz:hush@h/0", "user name"),
            ("redis://u:hu sh@h/0", "white space"),
            ("redis://u:#hush@h/0", "%23"),
            ("rediss://u:hush@h/#insecure", "tls_ca_file"),
            ("redis+sentinel://u:hush@a,b", "name the primary"),
            ("redis+sentinel://u:hush@a,,b/m", "no host"),
            ("redis+sentinel://u:hush@a/m/x", "database"),
            ("unix://run/s?pass=hush", "begin with /"),
            ("unix:///s?pass=hush&db=x", "database"),
        ] {
            let error = RedisAddress::read(AddressOptions::at(url)).err().unwrap();
            assert_eq!(error.kind, StoreErrorKind::Refused);
            assert!(error.message.contains(why), "{url}: {error}");
            assert!(!error.message.contains("hush"), "{error}");
        }
    }

    #[test]
    fn shows_the_address_without_its_password() {
        for (url, expected) in [
            ("rediss://bob:hush@h/1", "rediss://***@h/1"),
            ("redis+sentinel://bob:hush@h,i:1/m", "redis+sentinel://***@h,i:1/m"),
            ("unix:///run/r.sock?db=2&pass=hush", "unix:///run/r.sock?db=2"),
            ("unix:///run/r.sock?pass=hush", "unix:///run/r.sock"),
            ("unix:///run/r.sock?db=2", "unix:///run/r.sock?db=2"),
        ] {
            assert_eq!(RedisAddress::read(AddressOptions::at(url)).unwrap().shown, expected);
        }
    }
}
