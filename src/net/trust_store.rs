//! Whose certificates are believed.
//!
//! In: environment variables. Out: a list of authorities: that of the first variable that is set,
//! else the system's, else, where a system has none, as in small containers, Mozilla's. As
//! huggingface_hub 2.4 and curl do it, so that what a company's administrators set up for those
//! holds here.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::error::{Error, Result};

/// OpenSSL's two, then those of Python's requests and of curl. Each is a file of certificates (PEM)
/// or a folder of such.
const VARIABLES: [&str; 4] =
    ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];

/// A list of authorities, and where it is from.
#[derive(Debug, Clone)]
pub(crate) struct TrustStore {
    roots: RootCerts,
    source: String,
}

/// Mozilla's, for whom no safe connection will be made.
impl Default for TrustStore {
    fn default() -> TrustStore {
        TrustStore { roots: RootCerts::WebPki, source: "Mozilla's list".to_owned() }
    }
}

impl TrustStore {
    /// # Errors
    /// `INVALID_REQUEST` that names the variable: who sets one does not want another list.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<TrustStore> {
        for name in VARIABLES {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
            let paths: Vec<PathBuf> = match name {
                "SSL_CERT_DIR" => std::env::split_paths(&value).collect(),
                _ => vec![value.into()],
            };
            let mut certificates = Vec::new();
            let mut problem = "no certificate (PEM) is in it".to_owned();
            for path in &paths {
                match of_path(path) {
                    Ok(found) => certificates.extend(found),
                    Err(found) => problem = found,
                }
            }
            let shown =
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            if certificates.is_empty() {
                let problem = format!(
                    "{shown}: {problem}; the environment variable names a file of trusted authorities"
                );
                return Err(Error::invalid(name, problem));
            }
            return Ok(TrustStore {
                roots: RootCerts::Specific(Arc::new(certificates)),
                source: format!("{name} ({shown})"),
            });
        }
        Ok(TrustStore::of_system())
    }

    fn of_system() -> TrustStore {
        match system() {
            Some(roots) => TrustStore {
                roots: RootCerts::Specific(roots),
                source: "the system's list".to_owned(),
            },
            None => TrustStore::default(),
        }
    }

    /// For a client.
    pub(crate) fn config(&self) -> TlsConfig {
        TlsConfig::builder().root_certs(self.roots.clone()).build()
    }

    /// What is wrong with a certificate that a server showed; None for any other fault.
    pub(crate) fn problem(&self, error: &ureq::Error) -> Option<String> {
        let text = match error {
            // What rustls finds while it greets.
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => error.to_string(),
            ureq::Error::Rustls(error) => error.to_string(),
            _ => return None,
        };
        let problem = text.strip_prefix("invalid peer certificate: ")?;
        Some(match problem {
            // The latter of one that has the name of a trusted authority, but not its key.
            "UnknownIssuer" | "BadSignature" => format!(
                "its certificate is of an authority that is not in {}; where a proxy looks into connections, set SSL_CERT_FILE \
                 to a file (PEM) with the authority of that proxy",
                self.source
            ),
            other => format!("its certificate is refused: {other}"),
        })
    }
}

fn of_path(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let (file, folder) = if path.is_dir() { (None, Some(path)) } else { (Some(path), None) };
    let found = rustls_native_certs::load_certs_from_paths(file, folder);
    match found.errors.first() {
        // One file of a folder that cannot be read leaves the others.
        Some(error) if found.certs.is_empty() => Err(error.to_string()),
        _ => Ok(found
            .certs
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect()),
    }
}

/// Read once: on some systems that takes a while. None where there is no such list.
fn system() -> Option<Arc<Vec<Certificate<'static>>>> {
    // Windows has on its list what was needed before; the rest it fetches when its own functions
    // ask.
    if cfg!(windows) {
        return None;
    }
    static SYSTEM: std::sync::OnceLock<Option<Arc<Vec<Certificate<'static>>>>> =
        std::sync::OnceLock::new();
    let read = || {
        let found = rustls_native_certs::load_native_certs().certs;
        let certificates: Vec<_> =
            found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
        (!certificates.is_empty()).then(|| Arc::new(certificates))
    };
    SYSTEM.get_or_init(read).clone()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_list_that_is_named_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        for name in VARIABLES {
            for path in [folder.path().join("absent"), empty.clone()] {
                let error = TrustStore::read(|asked| (asked == name).then(|| path.clone().into()))
                    .unwrap_err();
                assert!(
                    error.message().starts_with(&format!("{name}: {}: ", path.display())),
                    "{error}"
                );
            }
        }
        let unset = TrustStore::read(|_| Some(OsString::new())).unwrap();
        assert!(
            ["the system's list", "Mozilla's list"].contains(&&*unset.source),
            "{}",
            unset.source
        );
    }
}
