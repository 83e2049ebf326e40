//! The admin token: a file of the data directory, and its hash in the store.

use maru_runtime::{
    files::read_text_file,
    permissions::{mode_of, private_file, set_mode},
};
use std::{
    collections::HashSet,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

use maru_store::{Store, TokenRow};
use tracing::warn;

use super::BearerToken;

/// The name of the admin token.
pub const ADMIN_TOKEN_NAME: &str = "admin";
/// The file of the data directory that holds the admin token.
pub const ADMIN_TOKEN_FILE: &str = "admin-token";
/// The file of the data directory that holds the random name of the hub, by which hubs
/// that share a store are told apart.
const HUB_ID_FILE: &str = "hub-id";
/// The minimum length of a token that the admin wrote into the file.
const MIN_TOKEN_CHARS: usize = 20;
/// The minimum number of different characters in such a token.
const MIN_DISTINCT_CHARS: usize = 8;

/// Reads the admin token of `directory`, creating it on first use, and writes its hash to
/// `store`.
pub async fn load_or_create_admin_token(
    directory: &Path,
    store: &Store,
) -> io::Result<BearerToken> {
    let path = directory.join(ADMIN_TOKEN_FILE);
    let token = match read_text_file(&path) {
        Ok(text) if !text.trim().is_empty() => {
            check_strength(text.trim())?;
            make_private(&path)?;
            BearerToken::from(text.trim())
        }
        Ok(_empty) => create_token_file(&path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => create_token_file(&path)?,
        Err(error) => return Err(error),
    };
    if store.is_shared() {
        let name = format!("{ADMIN_TOKEN_NAME}@{}", hub_id(directory)?);
        let saved = save_beside_other_hubs(store, &name, token.hash()).await;
        saved.map_err(io::Error::other)?;
    } else {
        let row = TokenRow::new(ADMIN_TOKEN_NAME, ADMIN_TOKEN_NAME, token.hash());
        store.put_token(&row).await.map_err(io::Error::other)?;
    }
    Ok(token)
}

/// Saves the admin token of one hub without taking away that of another. Hubs may also
/// have copies of one file.
async fn save_beside_other_hubs(
    store: &Store,
    name: &str,
    hash: [u8; 32],
) -> Result<(), maru_store::Error> {
    let rows = store.tokens().await?;
    match rows.iter().find(|it| it.hash == hash) {
        Some(row) if row.name == name => return Ok(()),
        // Versions before 0.2 had one admin token for all hubs.
        Some(row) if row.name == ADMIN_TOKEN_NAME => {
            store.delete_token(ADMIN_TOKEN_NAME).await?;
        }
        Some(_of_another_hub) => {
            store.delete_token(name).await?;
            return Ok(());
        }
        None => (),
    }
    let row = TokenRow::new(name, ADMIN_TOKEN_NAME, hash);
    store.put_token(&row).await
}

/// Reads the random name of this hub, creating it on first use.
fn hub_id(directory: &Path) -> io::Result<String> {
    let path = directory.join(HUB_ID_FILE);
    let is_valid = |it: &str| it.len() == 8 && it.bytes().all(|it| it.is_ascii_hexdigit());
    match fs::read_to_string(&path) {
        Ok(text) if is_valid(text.trim()) => Ok(text.trim().to_owned()),
        Ok(_) => Err(io::Error::other(format!(
            "{} does not hold the name of a hub; remove it and restart",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let id = hex_of(&BearerToken::random().hash()[..4]);
            write_private(&path, &id)?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|it| format!("{it:02x}")).collect()
}

fn check_strength(token: &str) -> io::Result<()> {
    let distinct_chars: HashSet<char> = token.chars().collect();
    if token.chars().count() >= MIN_TOKEN_CHARS && distinct_chars.len() >= MIN_DISTINCT_CHARS {
        return Ok(());
    }
    Err(io::Error::other(format!(
        "the token in {ADMIN_TOKEN_FILE} could be guessed; replace it by {MIN_TOKEN_CHARS} or more random characters, or remove the file and maru creates a new token"
    )))
}

/// Removes the permissions of group and others, with a warning if there were any.
fn make_private(path: &Path) -> io::Result<()> {
    let mode = mode_of(&fs::metadata(path)?);
    if mode & 0o077 == 0 {
        return Ok(());
    }
    set_mode(path, mode & 0o700)?;
    warn!(
        "others could read the admin token in {}; now only its owner can. If somebody may have read it, remove the file and restart: maru creates a new token",
        path.display()
    );
    Ok(())
}

fn create_token_file(path: &Path) -> io::Result<BearerToken> {
    let token = BearerToken::random();
    write_private(path, token.reveal())?;
    Ok(token)
}

fn write_private(path: &Path, line: &str) -> io::Result<()> {
    let new_path = path.with_extension("new");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    let mut file = private_file(&mut options).open(&new_path)?;
    writeln!(file, "{line}")?;
    file.sync_all()?;
    fs::rename(&new_path, path)
}
