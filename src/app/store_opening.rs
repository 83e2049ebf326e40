//! Opens the store that the settings name.

use anyhow::{Context as _, Result};
use maru_store::{SecretSealer, Store};
use tracing::warn;

use super::data_directory::create_private_file;
use crate::config::{Config, SecretString};

/// The SQLite file of the data directory.
pub(super) const STORE_FILE: &str = "maru.db";
const SEAL_KEY_FILE: &str = "seal-key";

/// Opens the database of the store, whose secrets stay as they are.
pub(crate) async fn open_database(config: &Config) -> Result<Store> {
    Ok(match config.store_url.as_ref().map(SecretString::reveal) {
        None => {
            let path = config.data_dir.join(STORE_FILE);
            create_private_file(&path)
                .with_context(|| format!("cannot create the database {}", path.display()))?;
            Store::open(&path).await?
        }
        Some("memory") => Store::in_memory().await?,
        Some(url) => Store::connect(url).await?,
    })
}

/// Opens the store, and encrypts its secrets where there is a key.
pub(super) async fn open_store(config: &Config) -> Result<Store> {
    let store = open_database(config).await?;
    let path = match &config.seal_key_file {
        // An in-memory store needs no seal, and its key file would be left behind.
        _ if config.is_ephemeral() => return Ok(store),
        Some(path) => path.clone(),
        // Other hubs must be able to read a shared store, also without this data
        // directory.
        None if store.is_shared() => {
            warn!(
                "secrets of servers, and the key that seals sessions, are stored unencrypted in the database; set seal_key_file to encrypt them"
            );
            return Ok(store);
        }
        None => config.data_dir.join(SEAL_KEY_FILE),
    };
    let seal = SecretSealer::from_key_file(&path)
        .with_context(|| format!("cannot use the seal key {}", path.display()))?;
    Ok(store.with_sealer(seal).await?)
}
