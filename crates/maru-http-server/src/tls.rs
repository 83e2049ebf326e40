//! The TLS certificate of the hub, which is reloaded when its files change.

use maru_runtime::files::check_regular_file;
use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, Result};
use tokio::{fs, time};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use maru_config::TlsSettings;

/// How often the files are checked for changes.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The current certificate. An invalid certificate never replaces a valid one.
#[derive(Debug)]
pub struct TlsCertificates(Mutex<CurrentCertificate>);

#[derive(Debug)]
struct CurrentCertificate {
    settings: TlsSettings,
    acceptor: Option<PreparedAcceptor>,
}

/// A TLS acceptor that was created from settings.
#[derive(Clone)]
pub struct PreparedAcceptor(TlsAcceptor);

impl std::fmt::Debug for PreparedAcceptor {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("PreparedAcceptor")
    }
}

/// The modification time and size of both files, which detect a change.
type FileStamps = [Option<(SystemTime, u64)>; 2];

impl TlsCertificates {
    /// Loads the certificate and key of the settings, if they name any.
    pub fn load(settings: &TlsSettings) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(Mutex::new(CurrentCertificate {
            acceptor: acceptor(settings)?,
            settings: settings.clone(),
        }))))
    }

    /// Returns the acceptor for a new connection; `None` without TLS.
    pub(super) fn load_acceptor(&self) -> Option<TlsAcceptor> {
        self.lock().acceptor.as_ref().map(|it| it.0.clone())
    }

    /// Replaces the certificate by one that [`acceptor`] loaded from these settings.
    pub fn replace(&self, settings: &TlsSettings, acceptor: Option<PreparedAcceptor>) {
        *self.lock() = CurrentCertificate {
            settings: settings.clone(),
            acceptor,
        };
    }

    /// Reloads the files whenever they change, until `stop`.
    pub async fn watch_files(self: Arc<Self>, stop: CancellationToken) {
        let mut last_stamps = self.file_stamps().await;
        while time::timeout(FILE_CHECK_INTERVAL, stop.cancelled())
            .await
            .is_err()
        {
            let stamps = self.file_stamps().await;
            if stamps == last_stamps {
                continue;
            }
            last_stamps = stamps;
            let settings = self.lock().settings.clone();
            match acceptor(&settings) {
                Ok(Some(acceptor)) => {
                    self.replace(&settings, Some(acceptor));
                    info!("the certificate has changed; new connections use the new one");
                }
                Ok(None) => (),
                Err(error) => {
                    warn!("the changed certificate cannot be used; the old one is kept: {error:#}");
                }
            }
        }
    }

    async fn file_stamps(&self) -> FileStamps {
        let settings = self.lock().settings.clone();
        let mut stamps = [None; 2];
        let files = [settings.certificate, settings.key];
        for (stamp, path) in stamps.iter_mut().zip(files.into_iter().flatten()) {
            let metadata = fs::metadata(path).await.ok();
            *stamp = metadata.and_then(|it| Some((it.modified().ok()?, it.len())));
        }
        stamps
    }

    fn lock(&self) -> MutexGuard<'_, CurrentCertificate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Creates a TLS acceptor from the settings; `None` if they name no certificate.
pub fn acceptor(tls: &TlsSettings) -> Result<Option<PreparedAcceptor>> {
    let (Some(certificate), Some(key)) = (&tls.certificate, &tls.key) else {
        return Ok(None);
    };
    let chain = read_chain(certificate)
        .with_context(|| format!("tls.certificate: cannot use {}", certificate.display()))?;
    let private_key = check_regular_file(key)
        .map_err(anyhow::Error::from)
        .and_then(|()| Ok(PrivateKeyDer::from_pem_file(key)?))
        .with_context(|| format!("tls.key: cannot use {}", key.display()))?;
    let mut config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(chain, private_key)
        .context("tls.key: does not match tls.certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Some(PreparedAcceptor(TlsAcceptor::from(Arc::new(config)))))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    check_regular_file(path)?;
    let chain: Vec<_> = CertificateDer::pem_file_iter(path)?.collect::<Result<_, _>>()?;
    anyhow::ensure!(!chain.is_empty(), "the file contains no certificate");
    Ok(chain)
}
