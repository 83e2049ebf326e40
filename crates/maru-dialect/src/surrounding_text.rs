//! Tells from the prose around a call whether it is meant or shown as an example.

use super::cursor::TextCursor;

/// Words that announce an example, whatever else the line says.
const EXAMPLE_WORDS: [&str; 17] = [
    "example",
    "e.g.",
    "for instance",
    "looks like",
    "look like",
    "would write",
    "would emit",
    "would return",
    "you write",
    "written so",
    "예시",
    "예를 들",
    "예컨대",
    "처럼 씁니다",
    "例",
    "beispiel",
    "exemple",
];
/// Words that announce an example, unless the model says that it calls.
const FORMAT_WORDS: [&str; 3] = ["syntax", "format", "형식"];
/// Words with which a model says that it does not call.
const REFUSAL_WORDS: [&str; 8] = [
    "refuse",
    "will not",
    "won't",
    "won’t",
    "cannot run",
    "do not run",
    "하지 않",
    "할 수 없",
];
/// Words with which a model says that it calls a tool now.
const INTENT_WORDS: [&str; 27] = [
    "i will",
    "i'll",
    "i’ll",
    "let me",
    "let's",
    "let’s",
    "i need to",
    "i am going to",
    "i'm going to",
    "i’m going to",
    "i can use",
    "i should",
    "calling",
    "제가",
    "하겠",
    "할게",
    "볼게",
    "보겠",
    "호출합니다",
    "확인합니다",
    "사용합니다",
    "실행합니다",
    "我将",
    "我会",
    "让我",
    "我来",
    "ます",
];
/// Words of a text that explains JSON rather than acts by it.
const EXPLANATION_WORDS: [&str; 28] = [
    " api",
    "endpoint",
    "request body",
    "response body",
    "payload",
    "your client",
    "the client",
    "a client",
    "the server",
    "the model",
    "the function returns",
    "this function",
    "this registers",
    "this would",
    "the above",
    "above ",
    "dataset",
    "config",
    "documentation",
    "schema",
    "log ",
    "the log",
    "you can adapt",
    "replace ",
    "위 예",
    "위의",
    "위에서",
    "의미합니다",
];
/// What a quotation begins with.
const OPENING_QUOTES: [char; 9] = ['"', '\'', '“', '„', '‘', '「', '『', '«', '《'];
/// What an item of a list begins with.
const LIST_BULLETS: [&str; 4] = ["-", "*", "+", "•"];
/// What a line of a log begins with, or has after its time.
const LOG_LEVELS: [&str; 6] = ["TRACE", "DEBUG", "INFO", "WARN", "WARNING", "ERROR"];
/// The shortest time or date at the beginning of a line of a log.
const MIN_LOG_TIME_BYTES: usize = 8;
/// How many bytes after a call are examined.
const MAX_FOLLOWING_BYTES: usize = 240;

/// Whether the end of the text before a call without markers announces an example.
pub(super) fn announces_example(text_before: &str, prompted: bool) -> bool {
    let line = last_line(text_before);
    contains_any(&line, &EXAMPLE_WORDS)
        || contains_any(&line, &REFUSAL_WORDS)
        || (contains_any(&line, &FORMAT_WORDS) && !prompted && !contains_any(&line, &INTENT_WORDS))
}

/// Whether the sentence that leads to a frame announces an example. A sentence that
/// ended before the frame does not.
pub(super) fn leads_to_example(text_before: &str) -> bool {
    if text_before.is_empty() {
        return false;
    }
    let line = last_line(text_before);
    if line.ends_with(['.', '!', '?', '。']) && !line.ends_with("e.g.") {
        return false;
    }
    let sentence = line.rsplit(". ").next().unwrap_or_default();
    contains_any(sentence, &EXAMPLE_WORDS) && !contains_any(sentence, &INTENT_WORDS)
}

/// Whether JSON in the middle of a line is shown rather than meant as a call: in a line of
/// a log, which tells what happened before, as an item of a numbered list
/// or one of examples, or between quotation marks.
pub(super) fn is_shown_in_line(text_before: &str) -> bool {
    if text_before.ends_with(OPENING_QUOTES) {
        return true;
    }
    let line = text_before.rsplit('\n').next().unwrap_or_default().trim();
    if LIST_BULLETS.contains(&line) {
        return is_in_list_of_examples(text_before);
    }
    let is_number = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    if line.strip_suffix(['.', ')']).is_some_and(is_number) {
        return true;
    }
    let first = line.split_whitespace().next().unwrap_or_default();
    let first = first.trim_matches(['[', ']', ':']);
    let in_time = |c: char| c.is_ascii_digit() || "-:/.,TZ+".contains(c);
    LOG_LEVELS.contains(&first) || (first.len() >= MIN_LOG_TIME_BYTES && first.chars().all(in_time))
}

/// Whether the line that leads to a list announces examples.
fn is_in_list_of_examples(text_before: &str) -> bool {
    let is_item = |line: &str| LIST_BULLETS.iter().any(|it| line.starts_with(it));
    let mut lines = text_before.lines().rev().map(str::trim);
    let lead = lines.find(|it| !it.is_empty() && !is_item(it));
    lead.is_some_and(|it| announces_example(it, true))
}

/// Whether what stands before a call of a prompted model decides that it is meant: the
/// model says so, or nothing stands there, a fence included.
pub(super) fn is_certainly_meant(text_before: &str, fenced: bool) -> bool {
    let is_first = text_before.trim().is_empty() && !fenced;
    let line = last_line(text_before);
    let explains = contains_any(&line, &FORMAT_WORDS) || contains_any(&line, &EXPLANATION_WORDS);
    !explains
        && !announces_example(text_before, true)
        && (is_first || contains_any(&line, &INTENT_WORDS))
}

/// Whether a call without markers is meant although words follow it.
pub(super) fn is_meant(text_before: &str, after: TextCursor<'_>, prompted: bool) -> bool {
    let line = last_line(text_before);
    let intends = contains_any(&line, &INTENT_WORDS);
    if announces_example(text_before, prompted) || (!prompted && !intends) {
        return false;
    }
    let following = following_line(after);
    let explains = |text: &str| contains_any(text, &EXPLANATION_WORDS);
    !contains_any(&following, &EXAMPLE_WORDS)
        && !explains(&following)
        && (intends || !explains(&line))
}

fn contains_any(text: &str, words: &[&str]) -> bool {
    words.iter().any(|word| text.contains(word))
}

/// The last line that is not empty, in lower case.
fn last_line(text: &str) -> String {
    let line = text.trim_end().rsplit('\n').next().unwrap_or_default();
    line.to_lowercase()
}

/// The beginning of the next line that is not empty, in lower case.
fn following_line(after: TextCursor<'_>) -> String {
    let mut ahead = after;
    ahead.skip_space();
    let start = ahead.position();
    while ahead.position() - start < MAX_FOLLOWING_BYTES && ahead.peek().is_some_and(|c| c != '\n')
    {
        ahead.bump();
    }
    after.slice(start, ahead.position()).to_lowercase()
}
