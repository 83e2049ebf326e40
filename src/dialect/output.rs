//! Puts events together: joins text, leaves out white space and control
//! tokens beside frames, and keeps apart what may turn out to be a draft.

use std::mem;

use super::Event;

/// How much of the visible text is remembered.
const TAIL: usize = 160;

/// What came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Last {
    #[default]
    Nothing,
    Text,
    Reasoning,
    Call,
    Broken,
}

/// The events so far that were not handed out yet.
#[derive(Debug, Default)]
pub(super) struct Output {
    ready: Vec<Event>,
    /// Events that count only if the reasoning around them never ends.
    draft: Option<Draft>,
    /// White space and tokens that wait for what follows them.
    held: String,
    /// The same without the tokens.
    space: String,
    /// A token that only structures the message is among what is held.
    structured: bool,
    thought_space: String,
    /// The next reasoning is the first of its frame.
    begins: bool,
    /// There was reasoning that was not empty.
    thought_before: bool,
    /// Space was left out since the last text.
    gap: bool,
    pub(super) last: Last,
    /// The end of the visible text.
    tail: String,
    /// Whether there was text, reasoning, a call.
    pub(super) texted: bool,
    pub(super) thought: bool,
    pub(super) called: bool,
}

#[derive(Debug)]
struct Draft {
    events: Vec<Event>,
    called: bool,
    /// What was so before it.
    texted: bool,
    gap: bool,
}

impl Output {
    pub(super) fn text(&mut self, text: &str) {
        let solid = text.trim_end();
        if solid.is_empty() {
            self.hold(text);
            return;
        }
        let text_only = match self.last {
            Last::Call | Last::Reasoning => solid.trim_start(),
            Last::Nothing if self.structured => solid.trim_start(),
            _ => solid,
        };
        self.release(solid.len() > text_only.len());
        self.append(text_only);
        self.last = Last::Text;
        self.texted = true;
        self.hold(&text[solid.len()..]);
    }

    /// A token that means nothing beside a frame and at the end.
    pub(super) fn token(&mut self, token: &str) {
        self.held.push_str(token);
    }

    /// A token that never is text.
    pub(super) fn structure(&mut self, token: &str) {
        self.held.push_str(token);
        self.structured = true;
    }

    pub(super) fn reasoning(&mut self, text: &str) {
        let solid = text.trim_end();
        let start = self.last != Last::Reasoning || self.begins;
        if solid.is_empty() {
            if !start {
                self.thought_space.push_str(text);
            }
            return;
        }
        self.forget();
        let mut piece = mem::take(&mut self.thought_space);
        if start && self.thought_before {
            piece.push('\n');
        }
        self.begins = false;
        self.thought_before = true;
        piece.push_str(if start { solid.trim_start() } else { solid });
        self.thought_space.push_str(&text[solid.len()..]);
        self.last = Last::Reasoning;
        self.thought = true;
        self.push(Event::Reasoning(piece));
    }

    /// Reasoning ended: what follows is something else, more of it included.
    pub(super) fn end_reasoning(&mut self) {
        self.forget();
        self.thought_space.clear();
        self.last = Last::Reasoning;
        self.thought = true;
        self.begins = true;
    }

    /// Its end came without a beginning.
    pub(super) fn was_reasoning(&mut self) {
        if self.texted {
            self.push(Event::TextWasReasoning);
            self.texted = false;
        }
        self.end_reasoning();
    }

    pub(super) fn aside(&mut self, text: &str) {
        self.push(Event::Aside(text.to_owned()));
    }

    pub(super) fn event(&mut self, event: Event) {
        match &event {
            Event::Text(text) => return self.text(text),
            Event::Call(_) => {
                self.forget();
                self.last = Last::Call;
                match &mut self.draft {
                    Some(draft) => draft.called = true,
                    None => self.called = true,
                }
            }
            Event::Broken(_) => {
                match self.last {
                    Last::Call | Last::Reasoning if self.space.len() == self.held.len() => {
                        self.forget();
                    }
                    _ => {
                        let held = mem::take(&mut self.held);
                        self.forget();
                        self.append(&held);
                    }
                }
                self.last = Last::Broken;
            }
            _ => (),
        }
        self.push(event);
    }

    /// From here on, events wait for [`Self::keep_draft`] or [`Self::drop_draft`].
    pub(super) fn begin_draft(&mut self) {
        self.draft = Some(Draft {
            events: Vec::new(),
            called: false,
            texted: self.texted,
            gap: self.gap,
        });
    }

    /// Whether the draft ends with a call.
    pub(super) fn draft_ends_with_call(&self) -> bool {
        let last = self.draft.as_ref().and_then(|draft| draft.events.last());
        matches!(last, Some(Event::Call(_))) && self.held.len() == self.space.len()
    }

    pub(super) fn keep_draft(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.thought_space.clear();
            self.called |= draft.called;
            for event in draft.events {
                self.push(event);
            }
        }
    }

    pub(super) fn drop_draft(&mut self) {
        if let Some(draft) = self.draft.take() {
            self.forget();
            self.last = Last::Reasoning;
            self.begins = false;
            self.texted = draft.texted;
            self.gap = draft.gap;
        }
    }

    /// The message is over.
    pub(super) fn finish(&mut self) {
        let rest = match self.last {
            Last::Broken => mem::take(&mut self.held),
            Last::Call | Last::Reasoning => String::new(),
            Last::Text | Last::Nothing => mem::take(&mut self.space),
        };
        self.forget();
        self.append(&rest);
        self.keep_draft();
    }

    /// Hands out what cannot change any more.
    pub(super) fn drain_to(&mut self, events: &mut Vec<Event>) {
        for event in self.ready.drain(..) {
            join(events, event);
        }
    }

    /// The end of the visible text, and whether that is all of it.
    pub(super) fn tail(&self) -> &str {
        let mut from = self.tail.len().saturating_sub(TAIL);
        while !self.tail.is_char_boundary(from) {
            from += 1;
        }
        &self.tail[from..]
    }

    fn hold(&mut self, space: &str) {
        self.held.push_str(space);
        self.space.push_str(space);
    }

    fn forget(&mut self) {
        self.gap |= !self.space.is_empty();
        self.held.clear();
        self.space.clear();
        self.structured = false;
    }

    /// Writes what was held back before text; `gap` says that space before
    /// that text was left out.
    fn release(&mut self, gap: bool) {
        let gap = self.gap || gap || !self.space.is_empty();
        // Given back below: between lines something is held each time.
        let (held, space) = (mem::take(&mut self.held), mem::take(&mut self.space));
        self.append(match (self.last, self.structured) {
            // Text on both sides of a frame does not run together.
            (Last::Call | Last::Reasoning, _) if gap && self.texted => "\n",
            (Last::Call | Last::Reasoning, _) | (Last::Nothing, true) => "",
            (_, true) => &space,
            (_, false) => &held,
        });
        (self.held, self.space) = (held, space);
        self.forget();
        self.gap = false;
    }

    fn append(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut from = text.len().saturating_sub(TAIL + 4);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        self.tail.push_str(&text[from..]);
        if self.tail.len() > 8 * TAIL {
            let kept = self.tail().to_owned();
            self.tail = kept;
        }
        let list = match &mut self.draft {
            Some(draft) => &mut draft.events,
            None => &mut self.ready,
        };
        match list.last_mut() {
            Some(Event::Text(last)) => last.push_str(text),
            _ => list.push(Event::Text(text.to_owned())),
        }
    }

    fn push(&mut self, event: Event) {
        match &mut self.draft {
            Some(draft) => join(&mut draft.events, event),
            None => join(&mut self.ready, event),
        }
    }
}

/// Appends an event; text that continues is joined.
fn join(events: &mut Vec<Event>, event: Event) {
    match (events.last_mut(), event) {
        (Some(Event::Text(last)), Event::Text(text))
        | (Some(Event::Reasoning(last)), Event::Reasoning(text))
        | (Some(Event::Aside(last)), Event::Aside(text)) => last.push_str(&text),
        (_, event) => events.push(event),
    }
}
