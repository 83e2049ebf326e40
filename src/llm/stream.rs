//! An answer while it comes, moved on by whoever reads it.

use std::{mem, time::Duration};

use futures_util::FutureExt as _;
use hyper::{body::Bytes, header::CONTENT_TYPE};
use tokio::time::Instant;

use super::{
    Answer, Error, Event, gemini,
    lines::Events,
    openai::{self, Wrong},
    queue::Turn,
    reading::Reading,
};
use crate::{
    config::Backend,
    outbound::{self, Reply},
    tasks::{WorkSlice, within},
};

/// How long a stream that has begun may be silent.
const SILENCE: Duration = Duration::from_secs(120);
/// How long a stream may stay open after it said that it is complete.
const GOODBYE: Duration = Duration::from_millis(200);
/// Pieces that are read together when they are there already.
const AT_ONCE: usize = 64;
/// Bytes that are read together.
const BYTES_AT_ONCE: usize = 32 << 10;

/// An answer while it comes. Dropping it closes the backend's stream and frees
/// the place in the queue.
#[derive(Debug)]
pub struct Stream {
    reply: Reply,
    source: Source,
    backend: Backend,
    model: String,
    end: Instant,
    limit: Duration,
    place: usize,
    /// A backend that sends without end must not keep others waiting.
    slice: WorkSlice,
    /// Bytes that were read since the slice was looked at.
    unspent: usize,
    _turn: Turn,
}

/// What is being read, and what it means so far.
#[derive(Debug)]
struct Source {
    /// Events of a stream; `None` for one document.
    events: Option<Events>,
    reading: Reading,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// It said that it is complete; only the end of the body is missing.
    Complete,
    Ended,
}

/// What a stream is made of.
pub(super) struct Parts {
    pub(super) reply: Reply,
    pub(super) reading: Reading,
    pub(super) backend: Backend,
    pub(super) model: String,
    pub(super) end: Instant,
    pub(super) limit: Duration,
    pub(super) turn: Turn,
}

impl Stream {
    /// Fails if the backend answers with neither JSON nor events.
    pub(super) fn new(parts: Parts) -> Result<Self, Error> {
        let kind = parts.reply.header(&CONTENT_TYPE).unwrap_or_default();
        let events = match kind.split(';').next().unwrap_or_default().trim() {
            "text/event-stream" => Some(Events::default()),
            "application/json" | "" => None,
            _ => {
                return Err(Error::Answer {
                    model: parts.model,
                    what: "neither JSON nor an event stream",
                });
            }
        };
        Ok(Self {
            reply: parts.reply,
            source: Source {
                events,
                reading: parts.reading,
                state: State::Open,
            },
            backend: parts.backend,
            model: parts.model,
            end: parts.end,
            limit: parts.limit,
            place: parts.turn.place,
            slice: WorkSlice::default(),
            unspent: 0,
            _turn: parts.turn,
        })
    }

    /// The place in the queue that the request had when it came; 0 if it did
    /// not wait.
    pub fn place(&self) -> usize {
        self.place
    }

    /// Adds what comes next to `out`, everything that is there already at once;
    /// false when nothing more comes. After an error nothing more comes.
    pub async fn read(&mut self, out: &mut Vec<Event>) -> Result<bool, Error> {
        let read = match (self.source.state, self.source.events.is_some()) {
            (State::Ended, _) => return Ok(false),
            (_, true) => self.read_events(out).await,
            (_, false) => self.read_document(out).await,
        };
        if read.is_err() {
            self.source.state = State::Ended;
            // What was held back is not lost.
            self.source.reading.give_up(out);
        }
        read
    }

    /// Reads to the end.
    pub async fn whole(mut self) -> Result<Answer, Error> {
        let mut answer = Answer::default();
        let mut events = Vec::new();
        while self.read(&mut events).await? {
            for event in events.drain(..) {
                answer.add(event);
            }
        }
        for event in events {
            answer.add(event);
        }
        Ok(answer)
    }

    async fn read_events(&mut self, out: &mut Vec<Event>) -> Result<bool, Error> {
        // Before anything is read: whoever stops waiting here loses nothing.
        self.slice.spend(mem::take(&mut self.unspent)).await;
        let patience = match self.source.state {
            State::Complete => GOODBYE,
            _ => SILENCE.min(self.end.saturating_duration_since(Instant::now())),
        };
        let chunk = match within(patience, self.reply.chunk()).await {
            Some(chunk) => chunk,
            None if self.source.state == State::Complete => return Ok(false),
            None => return Err(self.late()),
        };
        let mut next = Some(chunk);
        let mut pieces = 0;
        while let Some(chunk) = next {
            let Some(chunk) = chunk else {
                return self.end_of_body(out).map(|()| false);
            };
            self.take(chunk, out)?;
            pieces += 1;
            let goes_on = pieces < AT_ONCE && self.unspent < BYTES_AT_ONCE;
            next = match goes_on {
                true => self.reply.chunk().now_or_never(),
                false => None,
            };
        }
        Ok(true)
    }

    fn take(
        &mut self,
        chunk: Result<Bytes, outbound::Error>,
        out: &mut Vec<Event>,
    ) -> Result<(), Error> {
        let taken = match chunk {
            Ok(chunk) => {
                self.unspent += chunk.len();
                self.source.take(&chunk, self.backend, out)
            }
            Err(_) if self.source.state == State::Complete => Ok(()),
            Err(source) => {
                let model = self.model.clone();
                return Err(Error::Unreachable { model, source });
            }
        };
        taken.map_err(|what| self.wrong(what))
    }

    fn end_of_body(&mut self, out: &mut Vec<Event>) -> Result<(), Error> {
        let ended = self.source.end(self.backend, out);
        ended.map_err(|what| self.wrong(what))
    }

    async fn read_document(&mut self, out: &mut Vec<Event>) -> Result<bool, Error> {
        let left = self.end.saturating_duration_since(Instant::now());
        let body = within(left, self.reply.text()).await;
        let body = body.ok_or_else(|| self.late())?;
        let body = body.map_err(|source| Error::Unreachable {
            model: self.model.clone(),
            source,
        })?;
        self.source.state = State::Ended;
        let source = &mut self.source;
        let read = read(self.backend, &body, &mut source.reading, out);
        match read {
            Ok(true) => source.reading.end(out),
            Ok(false) => return Err(self.wrong("an answer without a choice")),
            Err(what) => return Err(self.wrong(what)),
        }
        Ok(false)
    }

    fn wrong(&self, what: Wrong) -> Error {
        let model = self.model.clone();
        Error::Answer { model, what }
    }

    fn late(&self) -> Error {
        Error::Late {
            model: self.model.clone(),
            limit: self.limit,
        }
    }
}

impl Source {
    fn take(&mut self, chunk: &[u8], backend: Backend, out: &mut Vec<Event>) -> Result<(), Wrong> {
        let Self {
            events: Some(events),
            reading,
            state,
        } = self
        else {
            return Ok(());
        };
        let mut wrong = None;
        let fed = events.feed(chunk, |data| {
            if wrong.is_none() {
                wrong = one(data, backend, reading, state, out).err();
            }
        });
        fed.map_err(|_| "an event that is too long")?;
        wrong.map_or(Ok(()), Err)
    }

    /// The body has ended: well, if the backend said why.
    fn end(&mut self, backend: Backend, out: &mut Vec<Event>) -> Result<(), Wrong> {
        let mut wrong = None;
        if let Some(mut events) = self.events.take() {
            let (reading, state) = (&mut self.reading, &mut self.state);
            events.end(|data| wrong = one(data, backend, reading, state, out).err());
        }
        let complete = self.state == State::Complete || self.reading.is_finished();
        self.state = State::Ended;
        if !complete {
            return Err(wrong.unwrap_or("a stream that ended early"));
        }
        self.reading.end(out);
        Ok(())
    }
}

/// One event of a stream.
fn one(
    data: &[u8],
    backend: Backend,
    reading: &mut Reading,
    state: &mut State,
    out: &mut Vec<Event>,
) -> Result<(), Wrong> {
    if *state == State::Complete || data.iter().all(u8::is_ascii_whitespace) {
        return Ok(());
    }
    if data == b"[DONE]" {
        *state = State::Complete;
        reading.end(out);
        return Ok(());
    }
    read(backend, data, reading, out).map(|_| ())
}

fn read(
    backend: Backend,
    data: &[u8],
    reading: &mut Reading,
    out: &mut Vec<Event>,
) -> Result<bool, Wrong> {
    match backend {
        Backend::Openai => openai::read(data, reading, out),
        Backend::Gemini => gemini::read(data, reading, out),
    }
}
