//! The short forms of `--listen`.

/// Writes `localhost:PORT` and `:PORT` with the loopback address; other text stays.
pub(super) fn normalize(text: &str) -> String {
    match text.rsplit_once(':') {
        Some(("" | "localhost", port)) => format!("127.0.0.1:{port}"),
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_loopback() {
        assert_eq!(normalize(":8080"), "127.0.0.1:8080");
        assert_eq!(normalize("localhost:0"), "127.0.0.1:0");
        assert_eq!(normalize("[::1]:5"), "[::1]:5");
        assert_eq!(normalize("8080"), "8080");
    }
}
