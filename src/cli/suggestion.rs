//! Suggestions for misspelt names.

/// The likeness from which a name is suggested.
const MIN_LIKENESS: f64 = 0.7;

/// `; did you mean "…"?` if a known name is similar.
pub(super) fn did_you_mean<T: AsRef<str>>(
    name: &str,
    known: impl IntoIterator<Item = T>,
) -> String {
    let likeness = |it: &T| strsim::jaro_winkler(it.as_ref(), name);
    let nearest = known
        .into_iter()
        .map(|it| (likeness(&it), it))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > MIN_LIKENESS);
    match nearest {
        Some((_, it)) => format!("; did you mean {:?}?", it.as_ref()),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["files", "github"];
        assert_eq!(did_you_mean("fiels", known), "; did you mean \"files\"?");
        assert_eq!(did_you_mean("postgres", known), "");
        assert_eq!(did_you_mean("x", [""; 0]), "");
    }
}
