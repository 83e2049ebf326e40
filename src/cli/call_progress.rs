//! What a person sees while a tool runs: how long, how far, and what it says.

use std::{cell::RefCell, pin::pin, time::Duration};

use serde_json::Value;
use tokio::time::{self, Instant};

use super::terminal::{ProgressLine, text_of};

/// How often the line is drawn. A call that is over sooner shows none.
const DRAW_INTERVAL: Duration = Duration::from_millis(250);

/// The line of a call on a terminal.
pub(super) struct CallProgressLine<'a> {
    tool: &'a str,
    started: Instant,
    line: RefCell<ProgressLine>,
    /// The last progress that the tool reported.
    reported: RefCell<String>,
}

impl<'a> CallProgressLine<'a> {
    pub(super) fn new(tool: &'a str) -> Self {
        Self {
            tool,
            started: Instant::now(),
            line: ProgressLine::new().into(),
            reported: RefCell::default(),
        }
    }

    /// Draws the line until `work` is done.
    pub(super) async fn show_during<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = time::sleep(DRAW_INTERVAL) => self.draw(),
            }
        }
    }

    /// Takes a notification of the tool: its progress, or a message.
    pub(super) fn on_notification(&self, notification: &Value) {
        let params = &notification["params"];
        match notification["method"].as_str() {
            Some("notifications/progress") => {
                self.reported.replace(progress_text(params));
                self.draw();
            }
            Some("notifications/message") => {
                let text = text_of(params, "data");
                self.line.borrow_mut().print_above(&text);
            }
            _ => (),
        }
    }

    fn draw(&self) {
        let seconds = self.started.elapsed().as_secs();
        let text = format!("{} {seconds} s {}", self.tool, self.reported.borrow());
        self.line.borrow_mut().show(text.trim_end());
    }
}

/// `3 of 10 (30 %) copying`.
fn progress_text(params: &Value) -> String {
    let (done, total) = (&params["progress"], &params["total"]);
    let share = match (done.as_f64(), total.as_f64()) {
        (Some(done), Some(total)) if total > 0.0 => {
            format!("{done} of {total} ({:.0} %)", done / total * 100.0)
        }
        _ => text_of(params, "progress"),
    };
    let message = text_of(params, "message");
    format!("{share} {message}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_has_a_share_where_the_total_is_known() {
        let text = |params: Value| progress_text(&params);
        assert_eq!(
            text(json!({"progress": 3, "total": 10, "message": "copying"})),
            "3 of 10 (30 %) copying"
        );
        assert_eq!(text(json!({"progress": 3.5})), "3.5");
        assert_eq!(
            text(json!({"progress": 1, "total": 0, "message": "x"})),
            "1 x"
        );
    }
}
