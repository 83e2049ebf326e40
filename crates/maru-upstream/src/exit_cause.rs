//! Which line of a program's stderr tells why it ended, and what to do about it.

/// A word of a line, in lower case, and how much it tells.
const TELLING: [(&str, u8); 31] = [
    ("fatal", 6),
    ("is not set", 6),
    ("not set in", 6),
    ("must be set", 6),
    ("is required", 5),
    ("are required", 5),
    ("missing", 5),
    ("environment variable", 5),
    ("panicked at", 5),
    ("cannot connect", 5),
    ("cannot find", 5),
    ("could not find", 5),
    ("no module named", 5),
    ("no such file", 5),
    ("not found", 5),
    ("permission denied", 5),
    ("access denied", 5),
    ("unauthorized", 5),
    ("address already in use", 5),
    ("connection refused", 5),
    ("no such", 4),
    ("unable to", 4),
    ("failed to", 4),
    ("invalid", 4),
    ("denied", 4),
    ("error:", 4),
    ("exception:", 4),
    ("failed", 3),
    ("error", 3),
    ("exception", 3),
    ("abort", 2),
];
/// A line that begins with one of these is no cause, whatever words are in it.
const NOISE_PREFIXES: [&str; 15] = [
    "at ",
    "file \"",
    "node:",
    "node.js v",
    "npm notice",
    "npm warn",
    "npm error a complete log",
    "npm err! a complete log",
    "npm error code",
    "npm err! code",
    "during handling of",
    "the above exception",
    "traceback",
    "throw ",
    "see '",
];
/// A program that ends because it does not know the first request often names it.
const PROBE_WORDS: [&str; 9] = [
    "server/discover",
    "method not found",
    "unknown method",
    "unsupported method",
    "invalid request",
    "unexpected request",
    "unexpected message",
    "not initialized",
    "protocol",
];

/// The line that tells most; the first of several that tell as much. A program that says
/// nothing telling is quoted with its last line.
pub(super) fn telling_line<'a>(lines: &[&'a str]) -> Option<&'a str> {
    let mut best: Option<(&str, u8)> = None;
    let mut is_quoted_source = false;
    for line in lines {
        // Python quotes a line of source below the place that it names.
        let score = if is_quoted_source {
            0
        } else {
            line_score(line)
        };
        is_quoted_source = line.trim_start().starts_with("File \"");
        if score > best.map_or(0, |(_, score)| score) {
            best = Some((line, score));
        }
    }
    best.map(|(line, _)| line).or_else(|| lines.last().copied())
}

/// Whether a program that ended after the first request may have ended because of it, so
/// that starting it again with an older handshake can help.
pub(super) fn may_dislike_request(exit_code: Option<i32>, line: Option<&str>) -> bool {
    match (exit_code, line) {
        (Some(126 | 127), _) => false,
        (Some(0), _) | (_, None) => true,
        (_, Some(line)) => {
            let line = line.to_lowercase();
            line_score(&line) == 0 || PROBE_WORDS.iter().any(|it| line.contains(it))
        }
    }
}

/// What to install when a well-known program is missing.
pub(super) fn install_hint(program: &str) -> Option<&'static str> {
    let name = program.rsplit(['/', '\\']).next().unwrap_or(program);
    Some(match name {
        "npx" | "npm" | "node" => "install Node.js, or name the full path of the program",
        "uvx" | "uv" => "install uv (pip install uv), or name the full path of the program",
        "docker" => "install Docker, or name the full path of the program",
        "python" | "python3" | "pip" | "pipx" => {
            "install Python 3, or name the full path of the program"
        }
        "bunx" | "bun" => "install Bun, or name the full path of the program",
        "deno" => "install Deno, or name the full path of the program",
        _ => return None,
    })
}

/// What to do about a line of stderr that many people meet.
pub(super) fn hint_for(line: &str) -> Option<&'static str> {
    let line = line.to_lowercase();
    let has = |words: &str| line.contains(words);
    if has("docker daemon") || has("docker.sock") {
        return Some("start Docker, or add this user to the group docker");
    }
    if has("404") && has("npm") {
        return Some("there is no npm package of this name; check its spelling");
    }
    if let Some((_, after)) = line.split_once("sh: ").filter(|_| has("not found")) {
        let name = after
            .trim_start_matches("1: ")
            .split(':')
            .next()
            .unwrap_or_default();
        return install_hint(name.trim());
    }
    None
}

fn line_score(line: &str) -> u8 {
    let line = line.trim().to_lowercase();
    let is_noise = NOISE_PREFIXES.iter().any(|it| line.starts_with(it))
        || !line.contains(char::is_alphabetic)
        || line.starts_with(['{', '}', '^', '|', '['])
            && !line.starts_with("[error")
            && !line.starts_with("[fatal");
    if is_noise {
        return 0;
    }
    let scores = TELLING.iter().filter(|(word, _)| line.contains(word));
    scores.map(|(_, score)| *score).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(stderr: &str, expected: &str) {
        let lines: Vec<&str> = stderr.lines().filter(|it| !it.trim().is_empty()).collect();
        assert_eq!(telling_line(&lines).map(str::trim), Some(expected));
    }

    #[test]
    fn line_that_tells_is_chosen() {
        check(
            "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/@x%2fnothing - Not found\nnpm error 404\nnpm error 404  '@x/nothing@*' is not in this registry.\nnpm error A complete log of this run can be found in: /home/u/.npm/_logs/a.log",
            "npm error 404 Not Found - GET https://registry.example/@x%2fnothing - Not found",
        );
        check(
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n\nRun 'docker run --help' for more information",
            "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
        );
        check(
            "node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module '/srv/index.js'\n    at Module._resolveFilename (node:internal/modules/cjs/loader:1225:15)\n    at node:internal/main/run_main_module:28:49 {\n  code: 'MODULE_NOT_FOUND',\n  requireStack: []\n}\n\nNode.js v20.20.2",
            "Error: Cannot find module '/srv/index.js'",
        );
        check(
            "FATAL: DB_HOST is not set\n    at connect (/srv/db.js:10:3)\n    at error (/srv/main.js:2:1)\nprocess exits after an error",
            "FATAL: DB_HOST is not set",
        );
        check(
            "Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in <module>\n    import missing_module\nModuleNotFoundError: No module named 'missing_module'",
            "ModuleNotFoundError: No module named 'missing_module'",
        );
        check("starting\nlistening\nbye", "bye");
        assert_eq!(telling_line(&[]), None);
    }

    #[test]
    fn program_is_started_again_only_if_the_request_may_be_at_fault() {
        assert!(!may_dislike_request(Some(127), None));
        assert!(!may_dislike_request(
            Some(1),
            Some("FATAL: DB_HOST is not set")
        ));
        assert!(may_dislike_request(
            Some(1),
            Some("Error: Method not found: server/discover")
        ));
        assert!(may_dislike_request(Some(0), Some("bye")));
        assert!(may_dislike_request(Some(3), None));
    }

    #[test]
    fn hints_name_what_to_install() {
        assert!(install_hint("/usr/bin/npx").unwrap().contains("Node.js"));
        assert!(
            hint_for("sh: 1: uvx: not found")
                .unwrap()
                .contains("install uv")
        );
        assert!(
            hint_for("npm error 404 Not Found")
                .unwrap()
                .contains("package")
        );
        assert_eq!(install_hint("my-server"), None);
    }
}
