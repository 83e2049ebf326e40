//! The admin token of a data directory: in a file for its owner, hashed in the store.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use super::Token;
use crate::store::{Store, TokenRow};

/// The name of the admin's own token.
pub const ADMIN: &str = "admin";
const FILE: &str = "admin-token";

/// The token in `directory`, made on first use, and known to `store`.
pub async fn admin_token(directory: &Path, store: &Store) -> io::Result<Token> {
    let path = directory.join(FILE);
    let token = match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Token::from(text.trim()),
        Ok(_empty) => make(&path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path)?,
        Err(error) => return Err(error),
    };
    let row = TokenRow::new(ADMIN, ADMIN, token.hash());
    store.put_token(&row).await.map_err(io::Error::other)?;
    Ok(token)
}

fn make(path: &Path) -> io::Result<Token> {
    let token = Token::random();
    let new = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    writeln!(file, "{}", token.reveal())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    Ok(token)
}
