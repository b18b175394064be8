//! TLS on a listening socket: its certificates, which are read again when their files change, and
//! the settings of its handshakes.

mod certificate;
mod handshakes;
mod tickets;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::ring::digest::{digest, Digest, SHA256};
use parking_lot::Mutex;
use rustls::client::verify_server_name;
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::ServerName;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{
    ClientHello, NoClientAuth, NoServerSessionStorage, ParsedCertificate, ResolvesServerCert,
    WebPkiClientVerifier,
};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;

pub use certificate::CertificateFiles;
pub(crate) use handshakes::Handshakes;
use tickets::TicketKeys;
pub(crate) use tickets::TicketSecret;

/// Protocols that a client may choose in its handshake (ALPN).
const PROTOCOLS: &[&[u8]] = &[HTTP2, b"http/1.1"];
/// The name of HTTP/2 there.
pub(crate) const HTTP2: &[u8] = b"h2";

/// The client of a TLS connection.
pub struct TlsPeer {
    /// Its certificate in DER, which an authority has signed; `None`: it sent none.
    pub certificate: Option<Vec<u8>>,
}

/// Whether a client must have a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyMode {
    /// It is not asked for one.
    None,
    /// It is asked; if it sends one, an authority of `ca` must have signed that.
    Peer,
    /// It is refused without one.
    ForcePeer,
}

/// The oldest version of TLS that is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum OldestVersion {
    /// TLS 1.2 and 1.3.
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3 alone.
    #[serde(rename = "1.3")]
    Tls13,
}

/// TLS of one listening socket.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsSettings {
    /// A client gets the first that is valid for the name it asks for, else the first of all.
    pub certificates: Vec<CertificateFiles>,
    /// A file with the authorities that may sign the certificates of clients.
    pub ca: Option<PathBuf>,
    /// Whether clients need a certificate.
    pub verify_mode: VerifyMode,
    /// The oldest version of TLS.
    pub min_version: OldestVersion,
    /// Whether clients may choose HTTP/2.
    #[serde(skip)]
    pub http2: bool,
}

impl TlsSettings {
    /// Reads the files.
    ///
    /// # Errors
    /// A sentence that names the file: it is missing, expired or writable by everybody, or the key
    /// belongs to another certificate.
    pub fn check(&self) -> Result<(), String> {
        self.load(CertificateFiles::load).map(drop)
    }

    /// What is loaded, and what its session tickets are bound to.
    fn load(&self, load: Load) -> Result<(ServerConfig, Digest), String> {
        let provider = Arc::new(ring::default_provider());
        let keys: Result<Vec<_>, _> =
            self.certificates.iter().map(|files| load(files, &provider)).collect();
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            OldestVersion::Tls12 => &[&TLS13, &TLS12],
            OldestVersion::Tls13 => &[&TLS13],
        };
        let (verifier, binding) = self.verifier(&provider)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(CertificateChoice(keys?)));
        let protocols = &PROTOCOLS[usize::from(!self.http2)..];
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // Sessions go on by tickets, which every worker can read.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        Ok((config, binding))
    }

    /// Checks clients. A session that was begun under other rules must not be continued: it would
    /// pass the check without having been checked. So tickets are bound to the digest of the rules.
    fn verifier(
        &self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Arc<dyn ClientCertVerifier>, Digest), String> {
        let mut rules = format!("{:?}", self.verify_mode).into_bytes();
        let (Some(ca), true) = (&self.ca, self.verify_mode != VerifyMode::None) else {
            return Ok((Arc::new(NoClientAuth), digest(&SHA256, &rules)));
        };
        let failed = |why: String| certificate::fault("ca", ca, &why);
        let mut roots = RootCertStore::empty();
        for authority in certificate::read_certificates("ca", ca)? {
            rules.extend_from_slice(&authority);
            roots.add(authority).map_err(|error| failed(error.to_string()))?;
        }
        let builder =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
        let builder = match self.verify_mode {
            VerifyMode::ForcePeer => builder,
            _ => builder.allow_unauthenticated(),
        };
        let verifier = builder.build().map_err(|error| failed(error.to_string()))?;
        Ok((verifier, digest(&SHA256, &rules)))
    }

    /// How the files are now.
    fn stamps(&self) -> Vec<Option<FileStamp>> {
        let pairs = self.certificates.iter().flat_map(|files| [&files.cert, &files.key]);
        pairs.chain(&self.ca).map(|path| FileStamp::of(path)).collect()
    }
}

/// How a certificate is read.
type Load = fn(&CertificateFiles, &CryptoProvider) -> Result<Arc<CertifiedKey>, String>;

/// What changes when a file is written or replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        let modified = (about.mtime(), about.mtime_nsec());
        Some(Self { inode: about.ino(), bytes: about.size(), modified })
    }
}

/// The certificates of a socket. Each handshake gets one that suits the client.
#[derive(Debug)]
struct CertificateChoice(Vec<Arc<CertifiedKey>>);

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().and_then(|name| ServerName::try_from(name).ok());
        let is_named = |key: &CertifiedKey| {
            let own = key.end_entity_cert().and_then(ParsedCertificate::try_from);
            name.as_ref()
                .zip(own.ok())
                .is_some_and(|(name, own)| verify_server_name(&own, name).is_ok())
        };
        let signs =
            |key: &&Arc<CertifiedKey>| key.key.choose_scheme(hello.signature_schemes()).is_some();
        let one = match &self.0[..] {
            [only] => Some(only),
            all => all
                .iter()
                .filter(signs)
                .find(|key| is_named(key))
                .or_else(|| all.iter().find(signs)),
        };
        one.or(self.0.first()).cloned()
    }
}

struct Loaded {
    config: Arc<ServerConfig>,
    /// How the files were when they were last read.
    stamps: Vec<Option<FileStamp>>,
    /// When a new connection has them looked at again.
    next_look: Instant,
}

/// TLS of one listening socket, with the certificates that were loaded last.
pub(crate) struct TlsListener {
    label: String,
    settings: TlsSettings,
    tickets: TicketSecret,
    /// Time between two looks at the files.
    look_every: Duration,
    loaded: Mutex<Loaded>,
}

impl TlsListener {
    /// Reads the certificates of the socket that messages call `label`.
    pub fn load(
        label: String,
        settings: TlsSettings,
        tickets: TicketSecret,
        look_every: Duration,
    ) -> io::Result<Self> {
        let stamps = settings.stamps();
        let config = settings.load(CertificateFiles::load).or_else(|why| {
            let kept = settings.load(CertificateFiles::load_kept).map_err(|_| why.clone())?;
            warn_unusable(&label, &why);
            Ok(kept)
        });
        let config = with_tickets(config.map_err(|why: String| io::Error::other(why))?, tickets);
        let loaded = Mutex::new(Loaded { config, stamps, next_look: Instant::now() + look_every });
        Ok(Self { label, settings, tickets, look_every, loaded })
    }

    /// The settings of the next handshake. Now and then it has the files looked at on another
    /// thread, for later handshakes.
    pub fn config(self: &Arc<Self>) -> Arc<ServerConfig> {
        let mut loaded = self.loaded.lock();
        let now = Instant::now();
        if now >= loaded.next_look {
            loaded.next_look = now + self.look_every;
            let listener = Arc::clone(self);
            tokio::task::spawn_blocking(move || listener.reload());
        }
        Arc::clone(&loaded.config)
    }

    /// Reads the files again if they have changed. The old certificates stay when the new ones
    /// cannot be used.
    pub fn reload(&self) {
        // Before the files are read, so that a later change is seen.
        let stamps = self.settings.stamps();
        if self.loaded.lock().stamps == stamps {
            return;
        }
        let read = self.settings.load(CertificateFiles::load);
        let mut loaded = self.loaded.lock();
        loaded.stamps = stamps;
        match read {
            Ok(config) => {
                loaded.config = with_tickets(config, self.tickets);
                chaton_core::log::info(&format!("loaded the new certificates of {}", self.label));
            }
            Err(why) => warn_unusable(&self.label, &why),
        }
    }
}

fn warn_unusable(label: &str, why: &str) {
    chaton_core::log::warn(&format!(
        "can't use the new certificates of {label}, the old ones stay: {why}"
    ));
}

fn with_tickets(
    (mut config, binding): (ServerConfig, Digest),
    tickets: TicketSecret,
) -> Arc<ServerConfig> {
    config.ticketer = Arc::new(TicketKeys::new(tickets, binding.as_ref()));
    Arc::new(config)
}
