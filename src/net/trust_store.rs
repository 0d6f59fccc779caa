//! Certificate authorities that are trusted.
//!
//! In: environment variables. Out: the list that the first set variable names, else the system's
//! list, else Mozilla's, because a small container may have no list. huggingface_hub 2.4 and curl
//! use the same variables, so their configuration works here too.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::error::{Error, Result};
use crate::process::Lazy;
use crate::regular_file;

/// The maximum number of bytes of a certificate file. The systems' lists are smaller than one
/// mebibyte.
const MAX_FILE_BYTES: u64 = 64 << 20;

/// In order: two of OpenSSL's variables, one of Python's requests, one of curl. Each names a file
/// of certificates (PEM) or a folder of such files.
const VARIABLES: [&str; 4] =
    ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"];

/// A list of authorities, and where it comes from, for messages.
#[derive(Debug, Clone)]
pub(crate) struct TrustStore {
    roots: RootCerts,
    source: String,
}

/// Mozilla's list. It is for clients that open no encrypted connection.
impl Default for TrustStore {
    fn default() -> TrustStore {
        TrustStore { roots: RootCerts::WebPki, source: "Mozilla's list".to_owned() }
    }
}

impl TrustStore {
    /// # Errors
    /// `INVALID_REQUEST` that names the variable if its list cannot be read. No other list replaces
    /// it.
    pub(crate) fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<TrustStore> {
        for name in VARIABLES {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { continue };
            let paths: Vec<PathBuf> = match name {
                "SSL_CERT_DIR" => std::env::split_paths(&value).collect(),
                _ => vec![value.into()],
            };
            let mut certificates = Vec::new();
            let mut problem = "it has no certificate (PEM)".to_owned();
            for path in &paths {
                match load(path) {
                    Ok(loaded) => certificates.extend(loaded),
                    Err(error) => problem = error,
                }
            }
            let shown =
                paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
            if certificates.is_empty() {
                let problem = format!(
                    "{shown}: {problem}; set the environment variable to a file of trusted authorities"
                );
                return Err(Error::invalid(name, problem));
            }
            return Ok(TrustStore {
                roots: RootCerts::Specific(Arc::new(certificates)),
                source: format!("{name} ({shown})"),
            });
        }
        Ok(match system_certificates() {
            Some(roots) => TrustStore {
                roots: RootCerts::Specific(roots),
                source: "the system's list".to_owned(),
            },
            None => TrustStore::default(),
        })
    }

    /// The TLS settings of a client.
    pub(crate) fn config(&self) -> TlsConfig {
        TlsConfig::builder().root_certs(self.roots.clone()).build()
    }

    /// The problem with the server's certificate; `None` for any other error.
    pub(crate) fn certificate_problem(&self, error: &ureq::Error) -> Option<String> {
        let text = match error {
            // An error that rustls found during the handshake.
            ureq::Error::Io(error) if error.kind() == ErrorKind::InvalidData => error.to_string(),
            ureq::Error::Rustls(error) => error.to_string(),
            _ => return None,
        };
        let problem = text.strip_prefix("invalid peer certificate: ")?;
        Some(match problem {
            // `BadSignature`: the issuer has the name of a trusted authority, but not its key.
            "UnknownIssuer" | "BadSignature" => format!(
                "its certificate is from an authority that is not in {}; if a proxy inspects the traffic, set SSL_CERT_FILE \
                 to a file (PEM) with the authority of that proxy",
                self.source
            ),
            other => format!("its certificate is refused: {other}"),
        })
    }
}

/// The certificates of a file, or of the files in a folder.
fn load(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    if !path.is_dir() {
        return load_file(path);
    }
    let entries = std::fs::read_dir(path).map_err(|error| error.to_string())?;
    // OpenSSL's folders contain several links to each file.
    let files: BTreeSet<PathBuf> =
        entries.flatten().filter_map(|entry| entry.path().canonicalize().ok()).collect();
    // An unreadable file in a folder is skipped.
    Ok(files.iter().filter_map(|file| load_file(file).ok()).flatten().collect())
}

fn load_file(path: &Path) -> Result<Vec<Certificate<'static>>, String> {
    let metadata = regular_file::metadata(path).map_err(|error| error.to_string())?;
    if metadata.len() > MAX_FILE_BYTES {
        return Err(format!("is longer than {MAX_FILE_BYTES} bytes"));
    }
    let found = rustls_native_certs::load_certs_from_paths(Some(path), None);
    match found.errors.first() {
        Some(error) if found.certs.is_empty() => Err(error.to_string()),
        _ => Ok(found
            .certs
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned())
            .collect()),
    }
}

/// The system's list; `None` if it is missing. It is read once, because reading is slow on some
/// systems.
fn system_certificates() -> Option<Arc<Vec<Certificate<'static>>>> {
    // Windows lists only the authorities that were needed before. Its own functions fetch the
    // others on demand.
    if cfg!(windows) {
        return None;
    }
    static SYSTEM: Lazy<Option<Arc<Vec<Certificate<'static>>>>> = Lazy::new(|| {
        let found = rustls_native_certs::load_native_certs().certs;
        let certificates: Vec<_> =
            found.iter().map(|certificate| Certificate::from_der(certificate).to_owned()).collect();
        (!certificates.is_empty()).then(|| Arc::new(certificates))
    });
    SYSTEM.clone()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn a_list_that_a_variable_names_must_be_readable() {
        let folder = tempfile::tempdir().unwrap();
        let empty = folder.path().join("empty.pem");
        std::fs::write(&empty, "no certificate").unwrap();
        let (long, pipe) = (folder.path().join("long"), folder.path().join("pipe"));
        std::fs::File::create(&long).unwrap().set_len(1 << 40).unwrap();
        if cfg!(unix) {
            let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
            assert!(made.success());
        }
        for name in VARIABLES {
            for path in [folder.path().join("absent"), empty.clone(), long.clone(), pipe.clone()] {
                let error = TrustStore::read(|asked| (asked == name).then(|| path.clone().into()))
                    .unwrap_err();
                assert!(
                    error.message().starts_with(&format!("{name}: {}: ", path.display())),
                    "{error}"
                );
            }
        }
        let folder = folder.path().to_owned();
        let found =
            TrustStore::read(|asked| (asked == "SSL_CERT_DIR").then(|| folder.clone().into()));
        assert!(found.unwrap_err().message().contains("it has no certificate (PEM)"));
        let unset = TrustStore::read(|_| Some(OsString::new())).unwrap();
        assert!(
            ["the system's list", "Mozilla's list"].contains(&&*unset.source),
            "{}",
            unset.source
        );
    }
}
