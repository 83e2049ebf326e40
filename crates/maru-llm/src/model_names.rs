//! Maps the model names of clients to those of a backend.

/// Names of one entry of the settings. Pure.
#[derive(Debug)]
pub(super) struct ModelNames {
    pattern: String,
    aliases: Vec<String>,
    /// The backend's name; `*` stands for what it matched in `pattern`.
    model: String,
}

impl ModelNames {
    /// Fails with what is wrong.
    pub(super) fn new(
        pattern: &str,
        aliases: &[String],
        model: Option<&str>,
    ) -> Result<Self, &'static str> {
        let stars = |text: &str| text.matches('*').count();
        let model = model.unwrap_or(pattern);
        if stars(pattern) > 1 {
            return Err("a name may have one `*`");
        }
        if stars(model) > stars(pattern) {
            return Err("`model` may have a `*` where `name` has one");
        }
        if !aliases.is_empty() && stars(model) > 0 {
            return Err("aliases need a `model` without `*`");
        }
        if aliases.iter().any(|it| it.is_empty() || stars(it) > 0) {
            return Err("an alias is a name without `*`");
        }
        Ok(Self {
            pattern: pattern.to_owned(),
            aliases: aliases.to_vec(),
            model: model.to_owned(),
        })
    }

    /// The backend's name of the model, if `name` is one of these names.
    pub(super) fn resolve(&self, name: &str) -> Option<String> {
        if self.aliases.iter().any(|it| it == name) {
            return Some(self.model.clone());
        }
        let middle = match_wildcard(&self.pattern, name)?;
        Some(self.model.replace('*', middle))
    }

    /// Whether `name` is one of the names that are no wildcard, or the backend's.
    pub(super) fn serves(&self, name: &str) -> bool {
        self.model == name || self.fixed_names().any(|it| it == name)
    }

    /// The name in the settings.
    pub(super) fn configured_name(&self) -> &str {
        &self.pattern
    }

    /// The name under which usage is counted of the model that clients call `name`: the
    /// one in the settings, or the one that a wildcard stands for.
    pub(super) fn usage_name<'a>(&'a self, name: &'a str) -> &'a str {
        match (self.has_wildcard(), self.model.contains('*')) {
            (false, _) => &self.pattern,
            (true, false) => &self.model,
            (true, true) => name,
        }
    }

    /// Names that need no backend to be known.
    pub(super) fn fixed_names(&self) -> impl Iterator<Item = &str> {
        let plain = (!self.has_wildcard()).then_some(self.pattern.as_str());
        plain
            .into_iter()
            .chain(self.aliases.iter().map(String::as_str))
    }

    /// Whether its backend knows further names.
    pub(super) fn has_wildcard(&self) -> bool {
        self.pattern.contains('*')
    }

    /// The name by which clients request `model` of the backend.
    pub(super) fn client_name(&self, model: &str) -> Option<String> {
        if !self.model.contains('*') {
            return None;
        }
        let middle = match_wildcard(&self.model, model)?;
        Some(self.pattern.replace('*', middle))
    }
}

/// What `*` stands for, if `text` is of the form of `pattern`.
fn match_wildcard<'a>(pattern: &str, text: &'a str) -> Option<&'a str> {
    match pattern.split_once('*') {
        None => (pattern == text).then_some(""),
        Some((before, after)) => text.strip_prefix(before)?.strip_suffix(after),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, model: Option<&str>, asked: &str, expected: Option<&str>) {
        let names = ModelNames::new(pattern, &[], model).unwrap();
        assert_eq!(
            names.resolve(asked).as_deref(),
            expected,
            "{pattern} {asked}"
        );
    }

    #[test]
    fn names_are_matched_and_mapped() {
        check("qwen*", None, "qwen3:8b", Some("qwen3:8b"));
        check("qwen*", Some("qwen3:8b"), "qwen", Some("qwen3:8b"));
        check("qwen*", None, "llama3", None);
        check("void/*", Some("*"), "void/gemma3", Some("gemma3"));
        check("*-tools", Some("x/*"), "a-tools", Some("x/a"));
        check("*", None, "anything", Some("anything"));
        check("a*a", None, "a", None);
        check("gpt-4o", Some("qwen3"), "gpt-4o", Some("qwen3"));
    }

    #[test]
    fn backend_names_are_mapped_back() {
        let names = ModelNames::new("void/*", &[], Some("*")).unwrap();
        assert_eq!(names.client_name("gemma3").as_deref(), Some("void/gemma3"));
        let fixed = ModelNames::new("qwen*", &["gpt-4o".to_owned()], Some("qwen3")).unwrap();
        assert_eq!(fixed.client_name("qwen3"), None);
        assert_eq!(fixed.fixed_names().collect::<Vec<_>>(), ["gpt-4o"]);
        assert_eq!(fixed.resolve("gpt-4o").as_deref(), Some("qwen3"));
    }

    #[test]
    fn entries_that_mean_nothing_are_refused() {
        assert!(ModelNames::new("*a*", &[], None).is_err());
        assert!(ModelNames::new("a", &[], Some("*")).is_err());
        assert!(ModelNames::new("a*", &["b".to_owned()], None).is_err());
        assert!(ModelNames::new("a", &["b*".to_owned()], None).is_err());
    }
}
