//! The hash of a certificate that SCRAM binds a password exchange to
//! (`tls-server-end-point`, RFC 5929).

use ring::digest::{self, Algorithm, SHA256, SHA384, SHA512};

/// DER tags.
const SEQUENCE: u8 = 0x30;
const OBJECT_IDENTIFIER: u8 = 0x06;

/// Signature algorithms by the bytes of their identifier, and the hash that goes with
/// each; SHA-1 counts as SHA-256.
const SIGNATURE_HASHES: &[(&[u8], &Algorithm)] = &[
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05", &SHA256), // sha1WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b", &SHA256), // sha256WithRSAEncryption
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c", &SHA384),
    (b"\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d", &SHA512),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x02", &SHA256), // ecdsa-with-SHA256
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x03", &SHA384),
    (b"\x2a\x86\x48\xce\x3d\x04\x03\x04", &SHA512),
];

/// The hash of a certificate; none if its signature algorithm defines none.
pub(super) fn tls_server_end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (outer, _) = take_element(certificate, SEQUENCE)?;
    let (_, after_tbs) = take_element(outer, SEQUENCE)?;
    let (algorithm, _) = take_element(after_tbs, SEQUENCE)?;
    let (identifier, _) = take_element(algorithm, OBJECT_IDENTIFIER)?;
    let mut known = SIGNATURE_HASHES.iter();
    let (_, hash) = known.find(|(bytes, _)| *bytes == identifier)?;
    Some(digest::digest(hash, certificate).as_ref().to_vec())
}

/// The content of the first DER element, and what follows it.
fn take_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[found, first_length], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = if first_length < 0x80 {
        (usize::from(first_length), rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(usize::from(first_length & 0x7f))?;
        if bytes.len() > 4 {
            return None;
        }
        let length = bytes
            .iter()
            .fold(0, |length, byte| length << 8 | usize::from(*byte));
        (length, rest)
    };
    if found == tag {
        rest.split_at_checked(length)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_follows_the_signature_algorithm() {
        // An empty body, the algorithm, an empty signature.
        let certificate = |oid: &[u8]| {
            let mut algorithm = vec![OBJECT_IDENTIFIER, oid.len() as u8];
            algorithm.extend_from_slice(oid);
            let mut inside = vec![SEQUENCE, 0, SEQUENCE, algorithm.len() as u8];
            inside.extend(algorithm);
            let mut whole = vec![SEQUENCE, 0x81, inside.len() as u8];
            whole.extend(inside);
            whole
        };
        let length = |der: &[u8]| tls_server_end_point(der).map(|it| it.len());
        for (oid, hash) in SIGNATURE_HASHES {
            assert_eq!(length(&certificate(oid)), Some(hash.output_len()));
        }
        let ed25519 = certificate(b"\x2b\x65\x70");
        assert_eq!(length(&ed25519), None);
        for end in 0..ed25519.len() {
            assert_eq!(length(&ed25519[..end]), None);
        }
        assert_eq!(length(b"\x30\x85\xff\xff\xff\xff\xff"), None);
    }
}
