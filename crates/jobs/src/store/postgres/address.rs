//! Where the server is, read from the options once.

use std::str::FromStr;

use percent_encoding::percent_decode_str;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Config, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::store::options::StoreOptions;
use crate::store::traits::Result;
use crate::store::without_password;
use crate::store::StoreError;
use chaton_redis::tls::{self, TlsOptions};

/// The name that `pg_stat_activity` shows, unless the address has one.
const APPLICATION_NAME: &str = "chaton";

/// How to connect.
pub(super) struct PostgresAddress {
    /// The address without its password, for messages.
    pub shown: String,
    /// For statements.
    pub config: Config,
    /// For a connection that listens; `None`: changes are polled.
    pub listen: Option<Config>,
    /// The settings of TLS.
    pub tls: Tls,
}

/// Settings of TLS for a name of a server. A socket has none, and uses no TLS, but is asked about it, too.
#[derive(Clone)]
pub(super) struct Tls(MakeRustlsConnect);

impl MakeTlsConnect<Socket> for Tls {
    type Stream = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
    type TlsConnect = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;
    type Error = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Error;

    fn make_tls_connect(
        &mut self,
        host: &str,
    ) -> std::result::Result<Self::TlsConnect, Self::Error> {
        let host = if host.is_empty() { "localhost" } else { host };
        <MakeRustlsConnect as MakeTlsConnect<Socket>>::make_tls_connect(&mut self.0, host)
    }
}

impl PostgresAddress {
    /// # Errors
    /// [`StoreErrorKind::Refused`](crate::store::StoreErrorKind::Refused) naming what is wrong.
    pub fn read(options: &StoreOptions) -> Result<Self> {
        let shown = without_password(&options.url);
        let config = config(&options.url, options)?;
        let listen = match options.listen.as_deref() {
            None => Some(config.clone()),
            Some("off") => None,
            Some(url) => Some(self::config(url, options)?),
        };
        let file = |setting: &Option<String>, name| {
            setting.clone().or_else(|| parameter(&options.url, name))
        };
        let client =
            file(&options.tls_cert_file, "sslcert").zip(file(&options.tls_key_file, "sslkey"));
        let ca_file = file(&options.tls_ca_file, "sslrootcert").filter(|path| path != "system");
        // By default (`sslmode=prefer`) a server may also have no TLS at all, so its certificate proves nothing; Debian's
        // makes its own. With an authority or another mode it is checked, `require` included, which libpq trusts.
        let proves = ca_file.is_some() || config.get_ssl_mode() != SslMode::Prefer;
        let tls = TlsOptions { ca_file, client, verify: options.tls_verify && proves };
        let tls = tls::config(&tls)
            .map_err(|error| StoreError::refused(format!("store {shown:?}: {error}")))?;
        Ok(Self { shown, config, listen, tls: Tls(MakeRustlsConnect::new(tls)) })
    }
}

/// A parameter of the address that names a file, as libpq has it.
fn parameter(url: &str, name: &str) -> Option<String> {
    let (_, query) = url.split_once('?')?;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.find(|(known, _)| *known == name)?.1;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

/// Parameters of Rails' addresses that mean nothing to a connection, and those that [`parameter`] reads.
const IGNORED: [&str; 8] = [
    "encoding",
    "pool",
    "prepared_statements",
    "reaping_frequency",
    "sslcert",
    "sslkey",
    "sslrootcert",
    "statement_limit",
];

/// The address with the parameters that are known; `sslmode=verify-full` and `verify-ca` are what `require` means here.
fn plain(url: &str) -> String {
    let Some((address, query)) = url.split_once('?') else { return url.into() };
    let known = query.split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        !IGNORED.contains(&name)
    });
    let known: Vec<&str> = known
        .map(|pair| match pair {
            "sslmode=verify-full" | "sslmode=verify-ca" => "sslmode=require",
            pair => pair,
        })
        .collect();
    format!("{address}?{}", known.join("&"))
}

/// Reads a URL as libpq does.
fn config(url: &str, options: &StoreOptions) -> Result<Config> {
    let shown = without_password(url);
    let plain = plain(url);
    let mut config = Config::from_str(&plain).map_err(|error| {
        let why = std::error::Error::source(&error).map_or(String::new(), |e| format!(": {e}"));
        StoreError::refused(format!(
            "store {shown:?}: {error}{why}; write postgres://USER:PASSWORD@HOST:5432/DATABASE"
        ))
    })?;
    if config.get_hosts().is_empty() {
        config.host_path("/var/run/postgresql");
    }
    if config.get_dbname().is_none() {
        return Err(StoreError::refused(format!("store {shown:?}: no database is named")));
    }
    if config.get_user().is_none() {
        config.user(
            options.username.clone().or_else(|| std::env::var("USER").ok()).unwrap_or_default(),
        );
    }
    if let Some(user) = &options.username {
        config.user(user);
    }
    if let Some(password) = &options.password {
        config.password(password);
    }
    if config.get_application_name().is_none() {
        config.application_name(APPLICATION_NAME);
    }
    // A socket of this machine has no TLS.
    if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) {
        config.ssl_mode(SslMode::Disable);
    }
    config.connect_timeout(options.connect_timeout);
    Ok(config)
}
