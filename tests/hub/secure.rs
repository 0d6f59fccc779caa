//! A hub with TLS, like the real one: which certificates are trusted.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use llb::error::{Code, Error};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::json;

use crate::server::{Hub, Repository, Route, redirect};
use crate::{User, model_of};

/// Signs certificates. `pem` is the authority to trust.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    /// A server with a certificate for this name.
    fn server(&self, name: &str) -> Arc<rustls::ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![name.to_owned()])
            .unwrap()
            .signed_by(&key, &self.issuer)
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap();
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        Arc::new(
            config
                .with_no_client_auth()
                .with_single_cert(vec![certificate.der().clone()], key.into())
                .unwrap(),
        )
    }
}

/// Puts TLS in front of a server and counts connections. `rewrite` replaces the first text in its
/// responses by the second.
fn secured(
    config: &Arc<rustls::ServerConfig>,
    inner: String,
    rewrite: (String, String),
) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let (config, counter) = (Arc::clone(config), Arc::clone(&count));
    std::thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            counter.fetch_add(1, Ordering::SeqCst);
            let (config, inner, rewrite) = (Arc::clone(&config), inner.clone(), rewrite.clone());
            // A client that refuses the certificate disconnects.
            std::thread::spawn(move || drop(relay(config, connection, &inner, &rewrite)));
        }
    });
    (port, count)
}

/// One request and its response, which ends with its connection.
fn relay(
    config: Arc<rustls::ServerConfig>,
    connection: TcpStream,
    inner: &str,
    (from, to): &(String, String),
) -> std::io::Result<()> {
    let mut outer =
        rustls::StreamOwned::new(rustls::ServerConnection::new(config).unwrap(), connection);
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        outer.read_exact(&mut byte)?;
        request.push(byte[0]);
    }
    let mut inner = TcpStream::connect(inner)?;
    inner.write_all(&request)?;
    let mut answer = Vec::new();
    inner.read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8_lossy(&answer[..end]).replace(from, to);
    outer.write_all(head.as_bytes())?;
    outer.write_all(&answer[end..])?;
    outer.conn.send_close_notify();
    outer.flush()
}

/// A hub and the host of its bytes, both with TLS, and the number of connections to each.
struct Safe {
    hub: Hub,
    url: String,
    count: Arc<AtomicUsize>,
}

impl Safe {
    fn start(hub: Hub, authority: &Authority, name: &str) -> Safe {
        let config = authority.server(name);
        let (back, _) = secured(&config, hub.blobs().to_owned(), (String::new(), String::new()));
        let rewrite = (format!("http://{}/", hub.blobs()), format!("https://localhost:{back}/"));
        let (front, count) = secured(&config, hub.address().to_owned(), rewrite);
        Safe { hub, url: format!("https://localhost:{front}"), count }
    }

    /// A user who trusts the authorities in these files, named by this variable; None for a user
    /// without the variable.
    fn user(&self, trusted: Option<(&str, &str)>) -> User {
        let user = User::of(&self.hub).with("SAFE", &self.url);
        trusted.into_iter().fold(user, |user, (name, value)| user.with(name, value))
    }

    #[track_caller]
    fn fails(&self, trusted: Option<(&str, &str)>) -> Error {
        let error = self.user(trusted).fails(&json!({ "endpoint_env": "SAFE" }));
        assert_eq!(error.code(), Code::HubNetwork, "{error}");
        // No request was sent, and no connection retried.
        assert_eq!(
            (self.hub.seen().len(), self.count.swap(0, Ordering::SeqCst)),
            (0, 1),
            "{error}"
        );
        error
    }
}

fn hub() -> Hub {
    Hub::start(Repository::of([("m.gguf", model_of(1 << 20))]))
}

#[test]
fn authorities_of_the_environment_are_trusted() {
    let [ours, others, false_ours] = ["ours", "others", "ours"].map(Authority::new);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    // Bundles have comments and several certificates.
    let bundle =
        write("all/bundle.pem", &format!("# ours\n{}\n# others\n{}", others.pem, ours.pem));
    let untrusted = [write("other.pem", &others.pem), write("false.pem", &false_ours.pem)];
    let dirs = ["none", "all"].map(|name| folder.path().join(name));
    let dirs = std::env::join_paths(dirs).unwrap().into_string().unwrap();
    let safe = Safe::start(hub(), &ours, "localhost");
    for trusted in [
        ("SSL_CERT_FILE", &*bundle),
        ("SSL_CERT_DIR", &*dirs),
        ("REQUESTS_CA_BUNDLE", &*bundle),
        ("CURL_CA_BUNDLE", folder.path().join("all").to_str().unwrap()),
    ] {
        let user = safe.user(Some(trusted));
        let fetched = user.fetches(&json!({ "endpoint_env": "SAFE" }));
        assert_eq!(
            std::fs::read(fetched["path"].as_str().unwrap()).unwrap(),
            model_of(1 << 20),
            "{trusted:?}"
        );
    }
    safe.hub.forget();
    safe.count.store(0, Ordering::SeqCst);

    let remedy = "set SSL_CERT_FILE to a file (PEM) with the authority of that proxy";
    for file in untrusted {
        let error = safe.fails(Some(("SSL_CERT_FILE", &file)));
        assert!(error.message().contains(&format!("not in SSL_CERT_FILE ({file})")), "{error}");
        assert!(error.message().contains(remedy), "{error}");
    }
    // The lists of the system and of Mozilla have only real authorities.
    assert!(safe.fails(None).message().contains(remedy));
    let error = safe
        .user(Some(("SSL_CERT_FILE", "/nowhere.pem")))
        .fails(&json!({ "endpoint_env": "SAFE" }));
    assert_eq!((error.code(), safe.count.load(Ordering::SeqCst)), (Code::InvalidRequest, 0));
    assert!(error.message().starts_with("SSL_CERT_FILE: /nowhere.pem: "), "{error}");

    let another = Safe::start(hub(), &ours, "another.example");
    let error = another.fails(Some(("SSL_CERT_FILE", &bundle)));
    assert!(
        error
            .message()
            .contains("its certificate is refused: certificate not valid for name \"localhost\""),
        "{error}"
    );
}

#[test]
fn no_redirect_leaves_the_safe_connection() {
    let authority = Authority::new("ours");
    let folder = tempfile::tempdir().unwrap();
    let pem = folder.path().join("ca.pem");
    std::fs::write(&pem, &authority.pem).unwrap();
    let plain = hub();
    let elsewhere = format!("http://{}/x", plain.blobs());
    let hub = Hub::twisted(Repository::of([("m.gguf", model_of(1 << 20))]), move |request, out| {
        let here = request.route == Route::Resolve;
        if here {
            redirect(out, &elsewhere, "");
        }
        here
    });
    let safe = Safe::start(hub, &authority, "localhost");
    let error = safe
        .user(Some(("SSL_CERT_FILE", pem.to_str().unwrap())))
        .fails(&json!({ "endpoint_env": "SAFE" }));
    assert_eq!((error.code(), plain.seen().len()), (Code::HubNetwork, 0), "{error}");
    assert!(error.message().contains("out of an encrypted connection"), "{error}");
}

#[cfg(feature = "remote")]
mod servers {
    use std::process::Command;
    use std::time::Duration;

    use super::*;
    use crate::server::answer;
    use llb::api::{BaseUrl, Constraints, RemoteOptions, ServerKind};
    use llb::remote::{CallError, CallLimits, Remote, SpecialSpellings};

    const SETTING: &str = "LLB_TEST_SERVER";

    /// The process with its own environment: this program with only this test and the server's
    /// address. Otherwise it does nothing.
    #[test]
    fn a_child_asks() {
        let Ok(setting) = std::env::var(SETTING) else { return };
        let (root, expected) = setting.split_once(' ').unwrap();
        let options = RemoteOptions {
            servers: vec![BaseUrl {
                root: root.to_owned(),
                version: "v1".to_owned(),
                host: "the-server".to_owned(),
                address: None,
            }],
            each_address: false,
            model: None,
            api_key_env: None,
            kind: Some(ServerKind::OpenAi),
            constraints: Constraints::None,
            connect_timeout: Duration::from_secs(10),
            read_timeout: Duration::from_secs(10),
            bos_token: None,
            eos_token: None,
            tokens: None,
        };
        let known = Remote::open(&options, SpecialSpellings::new(Vec::new()), None)
            .map_err(CallError::from)
            .and_then(|remote| remote.known(&CallLimits::default()));
        let said = match known {
            Ok(known) => known.model.clone(),
            Err(CallError::Failed(error)) => error.message().to_owned(),
            Err(CallError::Over) => "over".to_owned(),
        };
        assert!(said.contains(expected), "{said}");
    }

    #[test]
    fn the_environments_authorities_are_trusted() {
        let [ours, others] = ["ours", "others"].map(Authority::new);
        let folder = tempfile::tempdir().unwrap();
        let files = [("ours.pem", &ours.pem), ("others.pem", &others.pem)].map(|(name, text)| {
            std::fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        });
        let hub = Hub::twisted(Repository::default(), |_, out| {
            answer(
                out,
                "200 OK",
                "Content-Type: application/json\r\n",
                br#"{"data": [{"id": "its model"}]}"#,
            );
            true
        });
        let [right, wrong] = ["localhost", "another.example"].map(|name| {
            let (port, _) = secured(
                &ours.server(name),
                hub.address().to_owned(),
                (String::new(), String::new()),
            );
            format!("https://localhost:{port}")
        });
        let gone = folder.path().join("gone.pem");
        for (server, file, expected) in [
            (&right, &files[0], "its model"),
            (&right, &files[1], "set SSL_CERT_FILE to a file (PEM)"),
            (&right, &gone, "SSL_CERT_FILE: "),
            (&wrong, &files[0], "certificate not valid for name"),
        ] {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child
                .args(["secure::servers::a_child_asks", "--exact"])
                .env(SETTING, format!("{server} {expected}"));
            let output = child.env("SSL_CERT_FILE", file).output().unwrap();
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && said.contains("1 passed"), "{said}");
        }
        assert_eq!(hub.seen().len(), 1);
    }
}
