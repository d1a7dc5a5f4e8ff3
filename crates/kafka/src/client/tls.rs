//! TLS: who a broker has to be, and who we are.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::address::Address;
use super::fault::{Fault, Outcome};

/// The settings of encrypted connections.
#[derive(Clone)]
pub(crate) struct Tls(Arc<ClientConfig>);

/// Hides the private key.
impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tls")
    }
}

/// Certificates and key, as PEM.
#[derive(Debug, Default)]
pub(crate) struct Pems {
    /// Whom to trust; `None`: the system's certificates.
    pub(crate) trusted: Option<Vec<u8>>,
    /// Our certificates and our key, if brokers ask who we are.
    pub(crate) own: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// From certificates. The error is the fault of a certificate, as text.
    pub(crate) fn new(pems: &Pems) -> Result<Tls, String> {
        let mut roots = RootCertStore::empty();
        match &pems.trusted {
            Some(pem) => {
                for certificate in certificates(pem)? {
                    roots.add(certificate).map_err(|error| error.to_string())?;
                }
            }
            None => {
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err("there is no certificate to trust".into());
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .with_root_certificates(roots);
        let config = match &pems.own {
            None => config.with_no_client_auth(),
            Some((chain, key)) => {
                let key = PrivateKeyDer::from_pem_slice(key)
                    .map_err(|_| "the key is no private key in PEM".to_string())?;
                config
                    .with_client_auth_cert(certificates(chain)?, key)
                    .map_err(|error| error.to_string())?
            }
        };
        Ok(Tls(Arc::new(config)))
    }

    /// For a client of another protocol.
    pub(crate) fn config(&self) -> ClientConfig {
        self.0.as_ref().clone()
    }

    pub(super) fn connect(
        &self,
        address: &Address,
        mut socket: TcpStream,
    ) -> Outcome<StreamOwned<ClientConnection, TcpStream>> {
        let wrong = |message: String| Fault::Fatal {
            place: format!("broker {address}"),
            message: format!("no encrypted connection: {message}"),
            help: "check 'properties.security.protocol', 'properties.ssl.truststore.location' and \
                   the host's name in 'properties.bootstrap.servers'"
                .into(),
        };
        let name = ServerName::try_from(address.host.clone());
        let name = name.map_err(|_| wrong("the host's name can stand in no certificate".into()))?;
        let connection = ClientConnection::new(self.0.clone(), name);
        let mut connection = connection.map_err(|error| wrong(error.to_string()))?;
        while connection.is_handshaking() {
            connection.complete_io(&mut socket).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => wrong(error.to_string()),
                // A broker that is about to start or to end does it, too.
                _ => Fault::retry(format!(
                    "broker {address}: no encrypted connection: {error}; a listener without TLS \
                     closes the connection: check 'properties.security.protocol'"
                )),
            })?;
        }
        Ok(StreamOwned::new(connection, socket))
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err("it holds no certificate in PEM".into()),
    }
}
