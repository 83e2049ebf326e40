//! The log on stderr: one line per event, whatever its values contain.

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

/// Changes the log level while the hub runs.
pub(super) struct LogFilter(reload::Handle<LevelFilter, Registry>);

impl LogFilter {
    /// Starts logging to stderr, and exporting spans if `export` is given.
    pub(super) fn start(log: &LogSettings, export: Option<&SpanExport>) -> Self {
        let (level, handle) = reload::Layer::new(level_filter(log.level));
        // Only the collector needs spans. Every layer has its own filter, so that without a
        // collector tracing knows in advance that spans are disabled.
        let events_only = level.and(filter_fn(|it| it.is_event()));
        let mut layers = vec![log_layer(log.format).with_filter(events_only).boxed()];
        layers.extend(export.map(|it| it.layer().boxed()));
        tracing_subscriber::registry().with(layers).init();
        Self(handle)
    }

    /// Changes the log level.
    pub(super) fn set_level(&self, level: LogLevelSetting) -> Result<()> {
        self.0
            .modify(|it| *it = level_filter(level))
            .context("cannot change log.level")
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
            let lines = layer().with_ansi(is_terminal).event_format(format);
            lines.with_writer(stderr).boxed()
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

/// Escapes line ends and other control characters inside an event.
///
/// tracing-subscriber escapes terminal sequences but not line ends, so a value that a peer
/// chose could otherwise look like another event.
struct SingleLineFormat<F> {
    format: F,
    /// On a terminal the format itself writes escape characters for colours.
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
        let allowed = if self.is_terminal { "\u{1b}" } else { "" };
        writer.write_str(&escape_control(line, allowed))?;
        writer.write_char('\n')
    }
}

/// Escapes the control characters of `text`, except those in `allowed`.
pub(super) fn escape_control(text: &str, allowed: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        // U+2028 and U+2029 end a line for some log readers.
        let needs_escape = c.is_control() || matches!(c, '\u{2028}' | '\u{2029}');
        if needs_escape && !allowed.contains(c) {
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
