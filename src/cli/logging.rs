//! The log of the hub: one line for one event, whatever its values hold.

use std::{
    fmt,
    io::{IsTerminal as _, stderr},
};

use anyhow::{Context as _, Result};
use tracing::{Event, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry,
    filter::{FilterExt as _, filter_fn},
    fmt::{
        FmtContext, FormatEvent, FormatFields,
        format::{Format, Writer},
        layer,
    },
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::SubscriberInitExt as _,
};

use crate::{
    config::{LogFormat, LogLevelSetting, LogSettings},
    observability::telemetry::SpanExport,
};

/// Changes what is logged while the hub runs.
pub(super) struct LogFilter(reload::Handle<LevelFilter, Registry>);

impl LogFilter {
    /// Logs to stderr from now on, as the settings say, and exports spans if there is a
    /// way for them.
    pub(super) fn start(log: &LogSettings, export: Option<&SpanExport>) -> Self {
        let (level, handle) = reload::Layer::new(level_filter(log.level));
        // Spans are for the collector, and without one they are not made: every layer has
        // a filter of its own, so that tracing knows in advance that nobody wants them.
        let logged = level.and(filter_fn(|it| it.is_event()));
        let mut layers = vec![log_layer(log.format).with_filter(logged).boxed()];
        layers.extend(export.map(|it| it.layer().boxed()));
        tracing_subscriber::registry().with(layers).init();
        Self(handle)
    }

    /// Logs as much as `level` from now on.
    pub(super) fn set_level(&self, level: LogLevelSetting) -> Result<()> {
        let changed = self.0.modify(|it| *it = level_filter(level));
        changed.context("cannot change log.level")
    }
}

fn log_layer(format: LogFormat) -> Box<dyn Layer<Registry> + Send + Sync> {
    match format {
        LogFormat::Text => {
            let is_terminal = stderr().is_terminal();
            let format = SingleLineFormat {
                format: Format::default().with_ansi(is_terminal),
                is_terminal,
            };
            let written = layer().with_ansi(is_terminal).event_format(format);
            written.with_writer(stderr).boxed()
        }
        LogFormat::Json => layer().json().with_writer(stderr).boxed(),
    }
}

fn level_filter(level: LogLevelSetting) -> LevelFilter {
    match level {
        LogLevelSetting::Off => LevelFilter::OFF,
        LogLevelSetting::Error => LevelFilter::ERROR,
        LogLevelSetting::Warn => LevelFilter::WARN,
        LogLevelSetting::Info => LevelFilter::INFO,
        LogLevelSetting::Debug => LevelFilter::DEBUG,
        LogLevelSetting::Trace => LevelFilter::TRACE,
    }
}

/// Writes line ends and other control characters inside an event as escapes.
///
/// tracing-subscriber escapes terminal sequences but not line ends, so that a value
/// which a peer chose could look like an event of its own.
struct SingleLineFormat<F> {
    format: F,
    /// Colours are written by the format itself, with the escape character.
    is_terminal: bool,
}

impl<S, N, F> FormatEvent<S, N> for SingleLineFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.format
            .format_event(context, Writer::new(&mut text), event)?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let kept = if self.is_terminal { "\u{1b}" } else { "" };
        writer.write_str(&escape_control(line, kept))?;
        writer.write_char('\n')
    }
}

/// `text` with control characters as escapes, except those in `kept`.
pub(super) fn escape_control(text: &str, kept: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // U+2028 and U+2029 end a line for some readers of a log.
        let breaks = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if breaks && !kept.contains(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_other_letters_stay() {
        let text = "연차\r\n\tINFO \u{1b}[2J\u{2028}x\u{85}";
        let escaped = r"연차\r\n\tINFO \u{1b}[2J\u{2028}x\u{85}";
        assert_eq!(escape_control(text, ""), escaped);
        assert_eq!(escape_control("\u{1b}[2m\n", "\u{1b}"), "\u{1b}[2m\\n");
    }
}
