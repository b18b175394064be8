//! TLS settings of the connections.

use std::io;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types::{pem, pem::PemObject, CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

/// Files and switches for TLS.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// Authorities that may sign the server's certificate; `None`: those of the system.
    pub ca_file: Option<String>,
    /// The client's certificate, with those that lead to its authority, and its key.
    pub client: Option<(String, String)>,
    /// Whether the server's certificate is checked.
    pub verify: bool,
}

/// Reads the files.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] naming the setting and its file.
pub fn config(options: &TlsOptions) -> io::Result<ClientConfig> {
    // Named here, so that no process-wide default provider is needed.
    let provider = Arc::new(crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    let builder = if options.verify {
        builder.with_root_certificates(roots(options.ca_file.as_deref())?)
    } else {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
    };
    let Some((cert_file, key_file)) = &options.client else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates("tls_cert_file", cert_file)?;
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|e| {
        let missing = matches!(e, pem::Error::NoItemsFound);
        invalid("tls_key_file", key_file, if missing { &"no key in it" } else { &e })
    })?;
    builder.with_client_auth_cert(chain, key).map_err(|e| invalid("tls_key_file", key_file, &e))
}

fn roots(ca_file: Option<&str>) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    match ca_file {
        Some(path) => {
            for certificate in certificates("tls_ca_file", path)? {
                roots.add(certificate).map_err(|e| invalid("tls_ca_file", path, &e))?;
            }
        }
        None => {
            // An unreadable certificate is skipped: the server may not need it.
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    Ok(roots)
}

fn certificates(setting: &str, path: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect);
    let all: Vec<_> = read.map_err(|e| invalid(setting, path, &e))?;
    if all.is_empty() {
        return Err(invalid(setting, path, &"no certificate in it"));
    }
    Ok(all)
}

fn invalid(setting: &str, path: &str, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{setting} {path:?}: {why}"))
}

/// Accepts every certificate. The handshake still proves that the server has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls12_signature(message, cert, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.0.signature_verification_algorithms;
        crypto::verify_tls13_signature(message, cert, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
