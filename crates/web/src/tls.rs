//! TLS on a listening socket: its certificates, which are read again when their files change, and
//! the settings of its handshakes.

mod certificate;
mod handshakes;
mod tickets;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use ::ring::digest::{digest, Digest, SHA256};
use chaton_core::log;
use chaton_core::process::counters::CertificateCounters;
use chaton_core::process::scoreboard::OwnGauges;
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
use certificate::Validity;
pub(crate) use handshakes::Handshakes;
use tickets::TicketKeys;
pub(crate) use tickets::TicketSecret;

/// Protocols that a client may choose in its handshake (ALPN).
const PROTOCOLS: &[&[u8]] = &[HTTP2, b"http/1.1"];
/// Trouble with certificates that lasts is logged again after this time: often enough to be found in the log of any
/// hour, and too seldom to fill it.
const ALARM_EVERY: Duration = Duration::from_secs(3600);
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
    /// `ca` as it was read last, like [`CertificateFiles::kept`].
    #[serde(default)]
    pub ca_kept: Option<String>,
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
        self.load(ReadFrom::Files, TicketSecret::new(None, Duration::MAX)).map(drop)
    }

    fn load(&self, from: ReadFrom, tickets: TicketSecret) -> Result<Loaded, String> {
        let provider = Arc::new(ring::default_provider());
        let load = match from {
            ReadFrom::Files => CertificateFiles::load,
            ReadFrom::Kept => CertificateFiles::load_kept,
        };
        let keys: Result<Vec<_>, _> =
            self.certificates.iter().map(|files| load(files, &provider)).collect();
        let keys = keys?;
        let validity = keys.iter().map(|key| key.cert.first().and_then(|one| Validity::of(one)));
        let validity = validity.collect();
        let versions: &[&SupportedProtocolVersion] = match self.min_version {
            OldestVersion::Tls12 => &[&TLS13, &TLS12],
            OldestVersion::Tls13 => &[&TLS13],
        };
        let (verifier, binding) = self.verifier(from, &provider)?;
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| error.to_string())?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(CertificateChoice(keys)));
        let protocols = &PROTOCOLS[usize::from(!self.http2)..];
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        // Sessions go on by tickets, which every worker can read.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Arc::new(TicketKeys::new(tickets, binding.as_ref()));
        Ok((Arc::new(config), validity))
    }

    /// Checks clients. A session that was begun under other rules must not be continued: it would
    /// pass the check without having been checked. So tickets are bound to the digest of the rules.
    fn verifier(
        &self,
        from: ReadFrom,
        provider: &Arc<CryptoProvider>,
    ) -> Result<(Arc<dyn ClientCertVerifier>, Digest), String> {
        let mut rules = format!("{:?}", self.verify_mode).into_bytes();
        let (Some(ca), true) = (&self.ca, self.verify_mode != VerifyMode::None) else {
            return Ok((Arc::new(NoClientAuth), digest(&SHA256, &rules)));
        };
        let failed = |why: String| certificate::fault("ca", ca, &why);
        let mut roots = RootCertStore::empty();
        let kept = self.ca_kept.as_deref().unwrap_or_default();
        let authorities = match from {
            ReadFrom::Files => certificate::read_certificates("ca", ca),
            ReadFrom::Kept => certificate::parse_certificates("ca", ca, kept.as_bytes()),
        };
        for authority in authorities? {
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
    fn stamps(&self) -> Stamps {
        let pairs = self.certificates.iter().flat_map(|files| [&files.cert, &files.key]);
        pairs.chain(&self.ca).map(|path| FileStamp::of(path)).collect()
    }
}

/// Where certificates are read from.
#[derive(Clone, Copy)]
enum ReadFrom {
    Files,
    /// The texts that the process that forks the workers has read last.
    Kept,
}

/// Settings of handshakes, and how long each of [`TlsSettings::certificates`] is valid.
type Loaded = (Arc<ServerConfig>, Vec<Option<Validity>>);

/// How certificates, keys and `ca` are; `None`: a file is missing.
type Stamps = Vec<Option<FileStamp>>;

/// What changes when a file is written or replaced, or gets another owner or mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileStamp {
    fn of(path: &Path) -> Option<Self> {
        let about = fs::metadata(path).ok()?;
        let modified = (about.mtime(), about.mtime_nsec());
        let changed = (about.ctime(), about.ctime_nsec());
        Some(Self { inode: about.ino(), bytes: about.size(), modified, changed })
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

struct State {
    loaded: Loaded,
    /// How the files were when they were last read with success.
    stamps: Option<Stamps>,
    /// When a new connection has them looked at again.
    next_look: Instant,
    /// The trouble that was logged last, and when; `None`: there is none.
    alarm: Option<(String, Instant)>,
}

/// TLS of one listening socket, with the certificates that were loaded last.
pub(crate) struct TlsListener {
    label: String,
    settings: TlsSettings,
    tickets: TicketSecret,
    /// Time between two looks at the files.
    look_every: Duration,
    /// Where it publishes how long its certificates are valid.
    gauges: Option<OwnGauges>,
    state: Mutex<State>,
}

impl TlsListener {
    /// Reads the certificates of the socket that messages call `label`.
    pub fn load(
        label: String,
        settings: TlsSettings,
        tickets: TicketSecret,
        look_every: Duration,
        gauges: Option<OwnGauges>,
    ) -> io::Result<Self> {
        let stamps = settings.stamps();
        let (loaded, stamps, unusable) = match settings.load(ReadFrom::Files, tickets) {
            Ok(loaded) => (loaded, Some(stamps), None),
            Err(why) => match settings.load(ReadFrom::Kept, tickets) {
                Ok(kept) => (kept, None, Some(why)),
                Err(_) => return Err(io::Error::other(why)),
            },
        };
        let next_look = Instant::now() + look_every;
        let state = Mutex::new(State { loaded, stamps, next_look, alarm: None });
        let listener = Self { label, settings, tickets, look_every, gauges, state };
        listener.report(unusable);
        Ok(listener)
    }

    /// The settings of the next handshake. Now and then it has the files looked at on another
    /// thread, for later handshakes.
    pub fn config(self: &Arc<Self>) -> Arc<ServerConfig> {
        let mut state = self.state.lock();
        let now = Instant::now();
        if now >= state.next_look {
            state.next_look = now + self.look_every;
            let listener = Arc::clone(self);
            tokio::task::spawn_blocking(move || listener.look());
        }
        Arc::clone(&state.loaded.0)
    }

    /// Reads the files again unless they are as they were when they could be used.
    fn look(&self) {
        let stamps = self.settings.stamps();
        if self.state.lock().stamps.as_ref() == Some(&stamps) {
            self.report(None);
        } else {
            self.read();
        }
    }

    /// Reads the files again, whatever is known of them, and logs the outcome.
    pub fn reload(&self) {
        self.state.lock().alarm = None;
        self.read();
    }

    /// The old certificates stay when the new ones cannot be used.
    fn read(&self) {
        // Before the files are read, so that a later change is seen.
        let stamps = self.settings.stamps();
        let read = self.settings.load(ReadFrom::Files, self.tickets);
        let unusable = read.map(|loaded| {
            let mut state = self.state.lock();
            (state.loaded, state.stamps) = (loaded, Some(stamps));
            drop(state);
            log::info(&format!("loaded the certificates of {}", self.label));
        });
        self.report(unusable.err());
    }

    /// Publishes until when the certificates are valid, and logs trouble with them: at once, and again
    /// when it has lasted for so long.
    fn report(&self, unusable: Option<String>) {
        let mut state = self.state.lock();
        let files = self.settings.certificates.iter().map(|files| &files.cert);
        let served = state.loaded.1.iter().zip(files);
        let served: Vec<_> = served.filter_map(|(one, cert)| Some(((*one)?, cert))).collect();
        if let Some(own) = &self.gauges {
            for (validity, cert) in &served {
                let certificate =
                    own.named::<CertificateCounters>(&self.label, &cert.to_string_lossy());
                certificate.not_after.store(validity.until_s(), Relaxed);
            }
        }
        let first = served.iter().min();
        let late = first.is_some_and(|(validity, _)| validity.is_late(SystemTime::now()));
        let label = &self.label;
        let mut trouble = match unusable {
            Some(why) => {
                format!("can't use the new certificates of {label}, the old ones stay: {why}")
            }
            None if late => format!("the certificates of {label} have to be renewed"),
            None => return state.alarm = None,
        };
        if let Some((validity, cert)) = first {
            trouble += &format!("; of those served, {} {validity}", cert.display());
        }
        let now = Instant::now();
        if state
            .alarm
            .as_ref()
            .is_some_and(|(known, at)| *known == trouble && now - *at < ALARM_EVERY)
        {
            return;
        }
        state.alarm = Some((trouble.clone(), now));
        // A disk behind the log must not hold up handshakes.
        drop(state);
        log::warn(&trouble);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_that_lasts_is_logged_again_after_an_hour() {
        let directory = tempfile::tempdir().unwrap();
        let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
        let kept = Some(certificate::tests::expired());
        let settings = TlsSettings {
            certificates: vec![CertificateFiles { cert, key, kept }],
            ca: None,
            ca_kept: None,
            verify_mode: VerifyMode::None,
            min_version: OldestVersion::Tls12,
            http2: false,
        };
        let (tickets, label) = (TicketSecret::new(None, ALARM_EVERY), "https://a".to_owned());
        let listener = TlsListener::load(label, settings, tickets, ALARM_EVERY, None).unwrap();
        let alarm = || listener.state.lock().alarm.clone().unwrap();
        let (first, at) = alarm();
        assert!(
            first.contains("cert: No such file") && first.contains("cert expired on"),
            "{first}"
        );
        listener.look();
        assert_eq!(alarm(), (first.clone(), at));
        let before = at - ALARM_EVERY;
        listener.state.lock().alarm = Some((first.clone(), before));
        listener.look();
        assert!(alarm().0 == first && alarm().1 > before + ALARM_EVERY / 2);
    }
}
