//! Encryption of secrets at rest, for the configurations of servers.

use maru_runtime::{
    files::read_text_file,
    permissions::{mode_of, private_file, sync_directory},
};
use std::{
    fmt,
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

/// The prefix of an encrypted text; anything else is plain text.
const SEALED_PREFIX: &str = "sealed:1:";

/// Encrypts texts with ChaCha20-Poly1305. Each text is bound to its row by associated
/// data, so that rows cannot be exchanged.
pub struct SecretSealer(LessSafeKey);

impl SecretSealer {
    /// Reads the key in `path`, which only its owner may read; creates it if it is
    /// missing.
    pub fn from_key_file(path: &Path) -> io::Result<Self> {
        let text = match read_text_file(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => create_key_file(path)?,
            Err(error) => return Err(error),
        };
        if mode_of(&fs::metadata(path)?) & 0o077 != 0 {
            return Err(io::Error::other("others may read it; run chmod 600 on it"));
        }
        let bytes = BASE64_STANDARD.decode(text.trim()).ok();
        let bytes = bytes.and_then(|it| <[u8; 32]>::try_from(it).ok());
        let bytes = bytes
            .ok_or_else(|| io::Error::other("it does not contain a key of 32 bytes in base64"))?;
        Ok(Self::new(&bytes))
    }

    /// Creates a sealer with this key.
    pub fn new(key: &[u8; 32]) -> Self {
        let key = UnboundKey::new(&CHACHA20_POLY1305, key).expect("the key has 32 bytes");
        Self(LessSafeKey::new(key))
    }

    /// Encrypts `content`, which only opens with the same `associated_data`.
    pub fn seal_bytes(&self, associated_data: &str, content: &[u8]) -> Vec<u8> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce).expect("the operating system gives random bytes");
        let mut sealed = content.to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data.as_bytes()),
                &mut sealed,
            )
            .expect("the content is not that long");
        [nonce.as_slice(), &sealed].concat()
    }

    /// Decrypts bytes; `None` if they were encrypted with another key or other associated
    /// data.
    pub fn open_bytes(&self, associated_data: &str, mut bytes: Vec<u8>) -> Option<Vec<u8>> {
        let (nonce, sealed) = bytes.split_at_mut_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let aad = Aad::from(associated_data.as_bytes());
        let opened = self.0.open_in_place(nonce, aad, sealed).ok()?;
        Some(opened.to_vec())
    }

    pub(super) fn seal(&self, associated_data: &str, text: &str) -> String {
        let bytes = self.seal_bytes(associated_data, text.as_bytes());
        format!("{SEALED_PREFIX}{}", BASE64_STANDARD.encode(bytes))
    }

    /// Decrypts a text; `None` if it was encrypted with another key or other associated
    /// data.
    pub(super) fn open(&self, associated_data: &str, text: &str) -> Option<String> {
        let bytes = BASE64_STANDARD
            .decode(text.strip_prefix(SEALED_PREFIX)?)
            .ok()?;
        String::from_utf8(self.open_bytes(associated_data, bytes)?).ok()
    }
}

/// Whether a stored text is encrypted.
pub fn is_sealed(text: &str) -> bool {
    text.starts_with(SEALED_PREFIX)
}

fn create_key_file(path: &Path) -> io::Result<String> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).expect("the operating system gives random bytes");
    let text = BASE64_STANDARD.encode(key);
    let new = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true);
    let mut file = private_file(&mut options).open(&new)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    // Without the key, everything that was encrypted with it would be lost.
    if let Some(directory) = path.parent() {
        sync_directory(directory)?;
    }
    Ok(text)
}

impl fmt::Debug for SecretSealer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("SecretSealer(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn sealed_text_opens_with_its_key_and_associated_data_only() {
        let sealer = SecretSealer::new(&[1; 32]);
        let sealed = sealer.seal("a", "s3cret");
        assert!(is_sealed(&sealed) && !sealed.contains("s3cret"));
        assert_ne!(sealed, sealer.seal("a", "s3cret"));
        assert_eq!(sealer.open("a", &sealed).as_deref(), Some("s3cret"));
        assert_eq!(sealer.open("b", &sealed), None);
        assert_eq!(SecretSealer::new(&[2; 32]).open("a", &sealed), None);
        for broken in [
            "",
            "sealed:1:",
            "sealed:1:AAAA",
            &sealed[..sealed.len() - 4],
        ] {
            assert_eq!(sealer.open("a", broken), None, "{broken}");
        }
    }

    #[test]
    fn key_file_is_created_once_and_readable_by_its_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("seal-key");
        let sealed = SecretSealer::from_key_file(&path).unwrap().seal("a", "x");
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let again = SecretSealer::from_key_file(&path).unwrap();
        assert_eq!(again.open("a", &sealed).as_deref(), Some("x"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(SecretSealer::from_key_file(&path).is_err());
    }
}
