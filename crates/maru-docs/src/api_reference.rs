//! The reference of the HTTP API, from the `OpenAPI` document.

use std::fmt::Write as _;

use serde_json::Value;

use super::markdown::escape;

/// The `OpenAPI` document of the hub.
pub const OPENAPI_JSON: &str = include_str!("../../../docs/openapi.json");

const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];

/// One table of all routes.
pub(super) fn render() -> String {
    let document: Value = serde_json::from_str(OPENAPI_JSON).unwrap_or_default();
    let mut out = String::from(
        "<div class=\"table\"><table><thead><tr><th>Route</th><th>What it does</th>\
         <th>Parameters</th><th>Responses</th></tr></thead><tbody>\n",
    );
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, item) in paths {
        for method in METHODS {
            let operation = &item[method];
            if operation.is_object() {
                write_row(&mut out, path, method, item, operation);
            }
        }
    }
    out.push_str("</tbody></table></div>\n");
    out
}

fn write_row(out: &mut String, path: &str, method: &str, item: &Value, operation: &Value) {
    let text = |value: &Value| escape(value.as_str().unwrap_or_default());
    let shared = item["parameters"].as_array().into_iter().flatten();
    let own = operation["parameters"].as_array().into_iter().flatten();
    let parameters: Vec<String> = shared
        .chain(own)
        .filter_map(|it| it["name"].as_str())
        .map(|it| format!("<code>{}</code>", escape(it)))
        .collect();
    let responses = operation["responses"].as_object().into_iter().flatten();
    let responses: Vec<String> = responses.map(|(status, _)| escape(status)).collect();
    let description = match text(&operation["description"]) {
        description if description.is_empty() => String::new(),
        description => format!("<br><small>{description}</small>"),
    };
    // Writing to a `String` cannot fail.
    let _ = writeln!(
        out,
        "<tr><td><code>{} {}</code></td><td>{}{description}</td><td>{}</td><td>{}</td></tr>",
        method.to_uppercase(),
        escape(path),
        text(&operation["summary"]),
        parameters.join(" "),
        responses.join(" "),
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_the_document_has_a_row() {
        let document: Value = serde_json::from_str(OPENAPI_JSON).unwrap();
        let html = render();
        for path in document["paths"].as_object().unwrap().keys() {
            assert!(html.contains(&format!(" {}<", escape(path))), "{path}");
        }
    }
}
