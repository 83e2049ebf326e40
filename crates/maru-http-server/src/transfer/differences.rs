//! What an import changes.

use serde_json::{Value, json};

/// The members of `after` that differ from `before`, by their place. A member that `after`
/// lacks stays as it is.
pub(super) fn differences(before: &Value, after: &Value) -> Vec<Value> {
    let mut found = Vec::new();
    compare(before, after, "", &mut found);
    found
}

/// `after` with the members that only `before` has.
pub(super) fn merge(before: Option<&Value>, after: &Value) -> Value {
    match (before, after) {
        (Some(Value::Object(before)), Value::Object(members)) => {
            let mut merged = before.clone();
            for (name, it) in members {
                merged.insert(name.clone(), merge(before.get(name), it));
            }
            merged.into()
        }
        _ => after.clone(),
    }
}

fn compare(before: &Value, after: &Value, at: &str, found: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(_), Value::Object(members)) => {
            for (name, it) in members {
                let at = if at.is_empty() {
                    name.clone()
                } else {
                    format!("{at}.{name}")
                };
                compare(&before[name], it, &at, found);
            }
        }
        _ if before == after => (),
        _ => {
            // A secret in the file is shown as little as one of the hub.
            let is_secret = before.as_str().is_some_and(|it| it.contains("${"));
            let hidden = || Value::from("***");
            let now = if is_secret { hidden() } else { after.clone() };
            let is_secret_place = at.contains(".env.") || at.contains(".headers.");
            let now = if is_secret_place { hidden() } else { now };
            found.push(json!({"at": at, "before": before, "now": now}));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_members_are_listed_and_secrets_are_not() {
        let before =
            json!({"name": "x", "config": {"args": ["a"], "env": {"K": "${X_K}"}}, "kept": 1});
        let after =
            json!({"name": "x", "config": {"args": ["b"], "env": {"K": "s3cret", "L": "s3cret"}}});
        let found = differences(&before, &after);
        assert_eq!(
            found,
            [
                json!({"at": "config.args", "before": ["a"], "now": ["b"]}),
                json!({"at": "config.env.K", "before": "${X_K}", "now": "***"}),
                json!({"at": "config.env.L", "before": null, "now": "***"}),
            ]
        );
        assert!(differences(&before, &before).is_empty());
        let merged = merge(Some(&before), &after);
        assert_eq!(
            (&merged["kept"], &merged["config"]["args"]),
            (&json!(1), &json!(["b"]))
        );
        assert_eq!(merge(None, &after), after);
    }
}
