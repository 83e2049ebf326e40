//! A frame that is being read, and the events it comes to.

use super::{
    Broken, Call, Event,
    arguments::as_object,
    cursor::Cursor,
    json::{Json, write_object},
    marker,
    repair::{Flaw, Repair},
    shape::{Found, Outcome, outcomes},
    tools::Tools,
};

/// What became of a frame.
pub(super) enum Verdict {
    /// It was none: its opener is text.
    No,
    /// It ends at `end` and stands for these events.
    Done { end: usize, events: Vec<Event> },
}

/// A frame that is being read.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) tools: &'a Tools,
    pub(super) dialect: &'static str,
    pub(super) closers: &'static [&'static str],
    pub(super) explicit: bool,
    /// Where the frame begins, its opener included.
    pub(super) start: Cursor<'a>,
    /// Whether a marker that opens a frame is next.
    pub(super) opener: &'a dyn Fn(Cursor<'_>) -> bool,
}

impl Scene<'_> {
    /// What the frame holds up to `end`.
    pub(super) fn raw(&self, end: usize) -> String {
        self.start.slice(self.start.at(), end).to_owned()
    }

    /// Where the first closer from `cursor` on begins and ends.
    pub(super) fn closer_from(&self, cursor: Cursor<'_>) -> Option<(usize, usize)> {
        let mut ahead = cursor;
        loop {
            let at = ahead.find(self.closers.first()?.get(..1)?)?;
            ahead.jump(at);
            if let Some(length) = self.closers.iter().find_map(|it| marker::length(it, ahead)) {
                return Some((at, at + length));
            }
            ahead.bump();
        }
    }

    /// A call of the tool that stands apart from its arguments.
    pub(super) fn addressed(&self, name: &str, value: &Json, repairs: &mut Vec<Repair>) -> Outcome {
        let Some(arguments) = as_object(value, repairs) else {
            return Outcome::Not("its arguments are no object");
        };
        let nameless = name
            .trim_start_matches("functions.")
            .chars()
            .all(|c| c.is_ascii_digit() || c == ':');
        let counter = name.starts_with("call_") && self.tools.find(name).is_none();
        let tool = match nameless || counter {
            true => self.tools.find_by_keys(&arguments),
            false => self.tools.find(name),
        };
        match tool {
            Some(tool) => Outcome::Call(Found::new(tool, arguments)),
            None => Outcome::Unknown(name.to_owned()),
        }
    }

    /// The events of JSON values.
    pub(super) fn judge(&self, values: &[Json], repairs: &[Repair], end: usize) -> Verdict {
        let mut found = Vec::new();
        for value in values {
            for outcome in outcomes(value, self.tools, self.explicit) {
                found.push((outcome, value.write()));
            }
        }
        if found.is_empty() {
            found.push((Outcome::Not("it holds no call"), String::new()));
        }
        self.events(found, repairs, end)
    }

    /// The events of what was found; the first stands for the whole frame.
    pub(super) fn events(
        &self,
        mut found: Vec<(Outcome, String)>,
        repairs: &[Repair],
        end: usize,
    ) -> Verdict {
        let good = |(outcome, _): &(Outcome, String)| {
            matches!(outcome, Outcome::Call(_) | Outcome::Answer(_))
        };
        if !found.iter().any(good) {
            found.truncate(1);
        }
        let mut whole = Some(self.raw(end));
        let events = found.into_iter().map(|(outcome, part)| {
            let raw = whole.take().unwrap_or(part);
            self.event(outcome, raw, repairs)
        });
        let events = events.collect();
        Verdict::Done { end, events }
    }

    fn event(&self, outcome: Outcome, raw: String, repairs: &[Repair]) -> Event {
        match outcome {
            Outcome::Call(found) => self.call(found, raw, repairs),
            Outcome::Answer(text) => Event::Text(text),
            Outcome::Unknown(name) => {
                let reason = format!("no tool is called {name:?}");
                self.broken(raw, Some(name), reason)
            }
            Outcome::Not(reason) => self.broken(raw, None, format!("this is no call: {reason}")),
        }
    }

    fn call(&self, found: Found, raw: String, repairs: &[Repair]) -> Event {
        let mut arguments = String::new();
        write_object(&found.arguments, &mut arguments);
        let mut repairs = repairs.to_vec();
        for repair in found.repairs {
            if !repairs.contains(&repair) {
                repairs.push(repair);
            }
        }
        Event::Call(Call {
            name: found.name,
            arguments,
            id: found.id,
            dialect: self.dialect,
            repairs,
            raw,
            explicit: self.explicit,
        })
    }

    fn broken(&self, text: String, name: Option<String>, reason: String) -> Event {
        let dialect = self.dialect;
        Event::Broken(Broken {
            text,
            dialect,
            name,
            reason,
        })
    }

    /// A frame that cannot be read: it lasts up to its closer, or to the end.
    pub(super) fn fail(&self, at: Cursor<'_>, flaw: Flaw) -> Verdict {
        let end = match self.closer_from(at) {
            Some((_, end)) => end,
            None => at.end(),
        };
        let events = vec![self.broken(self.raw(end), None, flaw.to_string())];
        Verdict::Done { end, events }
    }
}
