//! Public names of entries, which every client accepts: at most 64 of `A-Z a-z 0-9 _ -`.
//!
//! maru's own entries keep their name, which has no `__`. An entry of another server is
//! `server__name`. If that is too long or has other characters, the name is a cleaned
//! prefix and a digest of both, so that it is stable and unique. The catalog looks entries
//! up by this name.

use sha2::{Digest as _, Sha256};

const MAX_NAME_BYTES: usize = 64;
const SEPARATOR: &str = "__";
/// Comes before the [`DIGEST_LETTERS`] of the digest at the end of a name.
const DIGEST_MARK: &str = "__x";
const DIGEST_LETTERS: usize = 13;

/// The name of the entry `name` of `server` in the catalog of all servers.
pub fn public_name(server: &str, name: &str) -> String {
    let plain = format!("{server}{SEPARATOR}{name}");
    if plain.len() <= MAX_NAME_BYTES
        && plain.bytes().all(is_name_byte)
        && !has_digest_suffix(&plain)
    {
        return plain;
    }
    let clean: String = plain
        .chars()
        .map(|c| {
            if c.is_ascii() && is_name_byte(c as u8) {
                c
            } else {
                '-'
            }
        })
        .take(MAX_NAME_BYTES - DIGEST_MARK.len() - DIGEST_LETTERS)
        .collect();
    format!("{clean}{DIGEST_MARK}{}", digest(server, name))
}

/// The server that a public name, or `server.tool`, begins with.
pub(super) fn server_of(name: &str) -> Option<&str> {
    let (server, _) = name
        .split_once(SEPARATOR)
        .or_else(|| name.split_once('.'))?;
    Some(server)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

fn has_digest_suffix(name: &str) -> bool {
    name.len()
        .checked_sub(DIGEST_MARK.len() + DIGEST_LETTERS)
        .is_some_and(|at| name.is_char_boundary(at) && name[at..].starts_with(DIGEST_MARK))
}

/// The first 65 bits of a hash, five per letter.
fn digest(server: &str, name: &str) -> String {
    const BASE32_ALPHABET: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";
    let mut hash = Sha256::new();
    hash.update((server.len() as u64).to_le_bytes());
    hash.update(server);
    hash.update(name);
    let bytes: [u8; 32] = hash.finalize().into();
    (0..DIGEST_LETTERS)
        .map(|at| {
            let bit = at * 5;
            let pair = u16::from_be_bytes([bytes[bit / 8], bytes[bit / 8 + 1]]);
            let value = pair >> (11 - bit % 8) & 31;
            BASE32_ALPHABET[usize::from(value)] as char
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_readable_and_others_become_acceptable() {
        assert_eq!(public_name("fx", "echo"), "fx__echo");
        assert_eq!(public_name("fx", "_echo"), "fx___echo");
        let dotted = public_name("fx", "a.b");
        assert!(dotted.starts_with("fx__a-b__x"), "{dotted}");
        assert_ne!(dotted, public_name("fx", "a-b"));
        assert_ne!(dotted, public_name("fx", "a/b"));
        let forged = public_name("fx", dotted.strip_prefix("fx__").unwrap());
        assert_ne!(forged, dotted);
        assert_eq!(public_name("x", &"가".repeat(200)).len(), 64);
    }

    proptest! {
        #[test]
        fn two_things_never_share_a_name(
            pairs in prop::collection::hash_set(("[a-z0-9]([a-z0-9-]{0,3}[a-z0-9])?", "[a-z_.x/가]{0,70}"), 1..40)
        ) {
            let mut seen = HashMap::new();
            for (server, name) in pairs {
                let public = public_name(&server, &name);
                prop_assert!(public.len() <= MAX_NAME_BYTES && public.bytes().all(is_name_byte));
                let earlier = seen.insert(public.clone(), (server, name));
                prop_assert_eq!(earlier, None, "{}", public);
            }
        }
    }
}
