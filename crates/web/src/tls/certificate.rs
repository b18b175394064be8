//! Certificates and their keys, read from files.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use chaton_core::calendar;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use serde::Deserialize;

/// Users who are neither the owner nor in the group may write. That they may read is usual for secrets in containers.
const OTHERS_WRITE: u32 = 0o002;
/// A certificate that expires in less time than this, or than this part of its life, should have been renewed: ACME
/// clients renew when a third of its life is left (certbot: 30 of 90 days), so their renewals have failed by then.
const LATE: Duration = Duration::from_secs(7 * 24 * 3600);
const LATE_PART: u32 = 10;

/// A certificate and its key, in PEM.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateFiles {
    /// The certificate, and behind it those that lead to its authority.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Both as the process that forks the workers has read them last: for a worker that begins
    /// while the files cannot be used.
    #[serde(default)]
    pub kept: Option<(String, String)>,
}

impl CertificateFiles {
    /// Reads both files, and checks that they can be used together and now.
    pub(super) fn load(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
        let chain = read_certificates("cert", &self.cert)?;
        if let Some(validity) = Validity::of(&chain[0]).filter(|one| one.until < SystemTime::now())
        {
            return Err(fault("cert", &self.cert, &format!("it {validity}")));
        }
        self.pair(chain, read_key(&self.key)?, provider)
    }

    /// What was read before. It may have expired meanwhile: without it, a worker could not begin at all, and its other
    /// sockets would not be served either.
    pub(super) fn load_kept(&self, provider: &CryptoProvider) -> Result<Arc<CertifiedKey>, String> {
        let (cert, key) = self.kept.as_ref().ok_or("nothing was read before")?;
        let chain = parse_certificates("cert", &self.cert, cert.as_bytes())?;
        self.pair(chain, parse_key(&self.key, key.as_bytes())?, provider)
    }

    fn pair(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        provider: &CryptoProvider,
    ) -> Result<Arc<CertifiedKey>, String> {
        CertifiedKey::from_der(chain, key, provider).map(Arc::new).map_err(|error| match error {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                let cert = self.cert.display();
                fault("key", &self.key, &format!("it is not the key of the certificate {cert}"))
            }
            Error::InvalidCertificate(_) => fault("cert", &self.cert, &error.to_string()),
            error => fault("key", &self.key, &error.to_string()),
        })
    }
}

/// A message that names the file.
pub(super) fn fault(role: &str, path: &Path, why: &str) -> String {
    format!("{role} {}: {why}", path.display())
}

/// The certificates of a file, of which there is at least one.
pub(super) fn read_certificates(
    role: &str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, String> {
    let bytes = fs::read(path).map_err(|error| fault(role, path, &error.to_string()))?;
    parse_certificates(role, path, &bytes)
}

pub(super) fn parse_certificates(
    role: &str,
    path: &Path,
    bytes: &[u8],
) -> Result<Vec<CertificateDer<'static>>, String> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bytes).collect();
    let all = all.map_err(|error| fault(role, path, &error.to_string()))?;
    if all.is_empty() {
        return Err(fault(role, path, "there is no certificate in PEM in it"));
    }
    Ok(all)
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let failed = |why: &str| fault("key", path, why);
    let bytes = fs::read(path).map_err(|error| failed(&error.to_string()))?;
    let about = fs::metadata(path).map_err(|error| failed(&error.to_string()))?;
    let mode = about.permissions().mode() & 0o777;
    if mode & OTHERS_WRITE != 0 {
        return Err(failed(&format!(
            "every user of this machine may replace it (mode {mode:04o}); run chmod o= on it"
        )));
    }
    parse_key(path, &bytes)
}

fn parse_key(path: &Path, bytes: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let failed = |why: &str| fault("key", path, why);
    PrivateKeyDer::from_pem_slice(bytes).map_err(|error| match error {
        pem::Error::NoItemsFound if memchr::memmem::find(bytes, b"ENCRYPTED").is_some() => {
            failed("it is encrypted; store it decrypted in a file that only the server may read")
        }
        pem::Error::NoItemsFound => failed("there is no private key in PEM in it"),
        error => failed(&error.to_string()),
    })
}

/// The time in which a certificate is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Validity {
    /// Its `notAfter`.
    pub until: SystemTime,
    since: SystemTime,
}

impl Validity {
    /// Reads it (RFC 5280 section 4.1); `None` if it cannot be read.
    pub fn of(certificate: &[u8]) -> Option<Self> {
        const SEQUENCE: u8 = 0x30;
        const VERSION: u8 = 0xa0;
        let (_, certificate, _) = element(certificate)?;
        let (_, mut rest, _) = element(certificate)?;
        // The version may be missing; then come the serial number, the algorithm and the issuer.
        if rest.first() == Some(&VERSION) {
            rest = element(rest)?.2;
        }
        for _ in 0..3 {
            rest = element(rest)?.2;
        }
        let (tag, validity, _) = element(rest)?;
        let (tag_of_since, since, rest) = element(validity)?;
        let (tag_of_until, until, _) = element(rest)?;
        let (since, until) = (time(tag_of_since, since)?, time(tag_of_until, until)?);
        (tag == SEQUENCE).then_some(Self { until, since })
    }

    /// In seconds since 1970.
    pub fn until_s(&self) -> u64 {
        self.until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
    }

    /// Whether it should have been renewed.
    pub fn is_late(&self, now: SystemTime) -> bool {
        let life = self.until.duration_since(self.since).unwrap_or_default();
        self.until < now + LATE.min(life / LATE_PART)
    }
}

impl fmt::Display for Validity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.until < SystemTime::now() { "expired" } else { "expires" };
        write!(f, "{verb} on {}", httpdate::fmt_http_date(self.until))
    }
}

/// The first element of DER: its tag, its content, and what follows.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk()?;
    let (len, rest) = match usize::from(first) {
        len @ 0..=0x7f => (len, rest),
        // The length takes so many bytes.
        bytes => {
            let (len, rest) =
                rest.split_at_checked(bytes & 0x7f).filter(|(len, _)| len.len() <= 3)?;
            (len.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
    };
    let (content, rest) = rest.split_at_checked(len)?;
    Some((tag, content, rest))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`.
fn time(tag: u8, text: &[u8]) -> Option<SystemTime> {
    const UTC_TIME: u8 = 0x17;
    let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
    let (year, rest) = text.split_at_checked(text.len().checked_sub(10)?)?;
    let field = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let year = match year.parse::<i64>().ok()? {
        short if tag == UTC_TIME => short + if short < 50 { 2000 } else { 1900 },
        year => year,
    };
    let (month, day) = (field(0)?, field(2)?);
    let seconds =
        calendar::day(year, month, day) * 86_400 + field(4)? * 3600 + field(6)? * 60 + field(8)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds.try_into().ok()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Valid for one day of 2020.
    const EXPIRED: &str = "\
-----BEGIN CERTIFICATE-----
MIIBLzCB1aADAgECAgEBMAoGCCqGSM49BAMCMBQxEjAQBgNVBAMMCWxvY2FsaG9z
dDAeFw0yMDAxMDEwMDAwMDBaFw0yMDAxMDIwMDAwMDBaMBQxEjAQBgNVBAMMCWxv
Y2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABFyFKjvOOZ7jvz1Y+4b2
bZQpxTyWfKudp1wx0/Iq/saHqMOA+yf37NN75IE/Vb9JtTPCsBn9RGMaCsdLZYFp
qf2jGDAWMBQGA1UdEQQNMAuCCWxvY2FsaG9zdDAKBggqhkjOPQQDAgNJADBGAiEA
/xx2twsgPFmkv0rN+lAOEX0xRWp/yfE/9639/DMRn9YCIQCxUHH+rPthGu7R3Tmi
eNW3xfxMmI82Rk2N4Cm0d2bnmw==
-----END CERTIFICATE-----";
    const ITS_KEY: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgMmhcjgHEp26mM8uz
vLAtYlHkld7MwaUT3SyX9F/e0O2hRANCAARchSo7zjme4789WPuG9m2UKcU8lnyr
nadcMdPyKv7Gh6jDgPsn9+zTe+SBP1W/SbUzwrAZ/URjGgrHS2WBaan9
-----END PRIVATE KEY-----";

    pub fn expired() -> (String, String) {
        (EXPIRED.to_owned(), ITS_KEY.to_owned())
    }

    #[test]
    fn a_certificate_that_was_read_before_is_used_although_it_has_expired() {
        let provider = rustls::crypto::ring::default_provider();
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let kept = Some(expired());
        let files = CertificateFiles { cert: at("cert"), key: at("key"), kept };
        fs::write(&files.cert, EXPIRED).unwrap();
        fs::write(&files.key, ITS_KEY).unwrap();
        let why = files.load(&provider).unwrap_err();
        assert!(why.ends_with("it expired on Thu, 02 Jan 2020 00:00:00 GMT"), "{why}");
        let kept = files.load_kept(&provider).unwrap();
        assert!(Validity::of(&kept.cert[0]).unwrap().is_late(SystemTime::now()));
    }

    #[test]
    fn a_certificate_should_have_been_renewed_a_week_or_a_tenth_of_its_life_before_its_end() {
        let at = |days: f64| UNIX_EPOCH + Duration::from_secs_f64(days * 86_400.0);
        for (life, early, late) in [(365.0, 357.9, 358.1), (90.0, 82.9, 83.1), (1.0, 0.8, 0.95)] {
            let validity = Validity { since: at(0.0), until: at(life) };
            assert_eq!(
                [early, late].map(|days| validity.is_late(at(days))),
                [false, true],
                "{life}"
            );
        }
    }

    #[test]
    fn times_of_certificates_are_read() {
        let seconds = |tag, text: &[u8]| {
            time(tag, text).map(|time| time.duration_since(UNIX_EPOCH).unwrap().as_secs())
        };
        assert_eq!(seconds(0x17, b"700101000000Z"), Some(0));
        assert_eq!(seconds(0x17, b"000229235959Z"), Some(951_868_799));
        assert_eq!(seconds(0x18, b"20500101000000Z"), Some(2_524_608_000));
        assert_eq!(seconds(0x18, b"99991231235959Z"), Some(253_402_300_799));
        for broken in [&b""[..], b"Z", b"7001Z", b"70010100000\xffZ", b"xx0101000000Z"] {
            assert_eq!(seconds(0x17, broken), None);
        }
    }

    #[test]
    fn broken_certificates_have_no_end() {
        for broken in
            [&b""[..], &[0x30], &[0x30, 0x84, 1, 1, 1, 1], &[0x30, 2, 0x30, 0], &[0x30, 0x80]]
        {
            assert_eq!(Validity::of(broken), None);
        }
    }
}
