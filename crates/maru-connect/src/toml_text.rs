//! Changes TOML, and keeps its comments and order.

use serde_json::Value;
use toml_edit::{DocumentMut, InlineTable, Item, Table, Value as TomlValue, value};

use super::Error;

/// Sets the value under `path`, whose tables are made where they are missing.
pub(crate) fn set_member(text: &str, path: &[&str], new: &Value) -> Result<String, Error> {
    let parsed = text.parse::<DocumentMut>();
    let mut document = parsed.map_err(|error| Error::Syntax {
        format: "TOML",
        message: error.to_string().trim().to_owned(),
    })?;
    let Some((name, parents)) = path.split_last() else {
        return Ok(text.to_owned());
    };
    let mut table = document.as_table_mut();
    for parent in parents {
        let item = table.entry(parent).or_insert_with(|| {
            let mut made = Table::new();
            made.set_implicit(true);
            Item::Table(made)
        });
        let shape = || Error::Shape((*parent).to_owned());
        table = item.as_table_mut().ok_or_else(shape)?;
    }
    match (table.get_mut(name), new) {
        (Some(Item::Table(old)), Value::Object(members)) => {
            old.retain(|key, _| members.contains_key(key));
            for (key, member) in members {
                set_value(old, key, member);
            }
        }
        (_, Value::Object(members)) => {
            let mut made = Table::new();
            for (key, member) in members {
                set_value(&mut made, key, member);
            }
            table.insert(name, Item::Table(made));
        }
        (_, other) => set_value(table, name, other),
    }
    Ok(document.to_string())
}

/// Sets a value and keeps the comment behind it.
fn set_value(table: &mut Table, key: &str, new: &Value) {
    let mut new = toml_value(new);
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *new.decor_mut() = old.decor().clone();
    }
    table.insert(key, value(new));
}

fn toml_value(value: &Value) -> TomlValue {
    match value {
        Value::Null => TomlValue::from(""),
        Value::Bool(it) => TomlValue::from(*it),
        Value::Number(it) => match it.as_i64() {
            Some(whole) => TomlValue::from(whole),
            None => TomlValue::from(it.as_f64().unwrap_or_default()),
        },
        Value::String(it) => TomlValue::from(it.as_str()),
        Value::Array(items) => items.iter().map(toml_value).collect(),
        Value::Object(members) => {
            let members = members
                .iter()
                .map(|(key, it)| (key.as_str(), toml_value(it)));
            TomlValue::InlineTable(members.collect::<InlineTable>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_other_tables_stay() {
        let text =
            "# mine\nmodel = \"o5\" # best\n\n[mcp_servers.git] # keep\ncommand = \"git-mcp\"\n";
        let server = json!({"url": "u", "http_headers": {"Authorization": "Bearer t"}});
        let merged = set_member(text, &["mcp_servers", "maru"], &server).unwrap();
        assert!(merged.starts_with(text), "{merged}");
        assert!(
            merged.contains(
                "[mcp_servers.maru]\nurl = \"u\"\nhttp_headers = { Authorization = \"Bearer t\" }"
            ),
            "{merged}"
        );
        let again = set_member(&merged, &["mcp_servers", "maru"], &server).unwrap();
        assert_eq!(again, merged);
        let changed = set_member(&merged, &["mcp_servers", "maru"], &json!({"url": "v"})).unwrap();
        assert!(
            changed.contains("url = \"v\"") && !changed.contains("http_headers"),
            "{changed}"
        );
        let model = set_member(text, &["model"], &json!("qwen")).unwrap();
        assert!(model.contains("model = \"qwen\" # best"), "{model}");
    }

    #[test]
    fn file_of_another_shape_is_left_alone() {
        for text in ["mcp_servers = 1", "a = [", "= 3"] {
            assert!(
                set_member(text, &["mcp_servers", "maru"], &json!({})).is_err(),
                "{text}"
            );
        }
    }
}
