//! Calls that a backend hands out apart from the text, gathered from their fragments.

use serde_json::Value;

use super::{call_stream::CallStream, decoder::ResponseTooLarge};

/// The most calls that a backend may make in one response.
const MAX_NATIVE_CALLS: usize = 128;
/// How often arguments may be parsed before the response ends, by their length.
const MAX_NORMALIZE_RATIO: usize = 15;

/// A call of the backend's own, as far as it has arrived.
#[derive(Debug, Default)]
pub(super) struct NativeCall {
    index: u64,
    pub(super) id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    /// Gemini's signature of the thoughts that led to it.
    pub(super) thought_signature: Option<String>,
    /// Anthropic's reasoning before it, with its signature.
    pub(super) anthropic_content: Option<Value>,
    /// Streams the arguments while they arrive.
    pub(super) stream: Option<CallStream>,
    /// How many bytes of the arguments the stream has taken.
    pub(super) streamed_bytes: usize,
    /// How many bytes of arguments were parsed in vain, all attempts together.
    normalized_bytes: usize,
    /// How long the arguments were at the last attempt.
    last_normalized_len: Option<usize>,
}

/// A fragment of a call.
#[derive(Debug, Default)]
pub(super) struct ToolCallFragment<'a> {
    /// Which call; without it, the call before.
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
    pub(super) thought_signature: Option<&'a str>,
    pub(super) anthropic_content: Option<&'a Value>,
}

/// The calls of one response, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct NativeCalls {
    pub(super) calls: Vec<NativeCall>,
    /// How many of them have been handed out.
    pub(super) emitted: usize,
}

impl NativeCall {
    /// Whether the arguments may be parsed once more before the response ends, and counts
    /// that. Broken arguments must not be parsed whole with each fragment that follows.
    pub(super) fn may_normalize(&mut self) -> bool {
        let len = self.arguments.len();
        let is_known = self.last_normalized_len.replace(len) == Some(len);
        if is_known || self.normalized_bytes > MAX_NORMALIZE_RATIO * len {
            return false;
        }
        self.normalized_bytes += len;
        true
    }

    /// What has arrived. Index and id stay, so that nothing else is taken for it.
    pub(super) fn take(&mut self) -> Self {
        let rest = Self {
            index: self.index,
            id: self.id.clone(),
            ..Self::default()
        };
        std::mem::replace(self, rest)
    }
}

impl NativeCalls {
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// How many bytes of arguments have not been handed out.
    pub(super) fn held_bytes(&self) -> usize {
        let calls = self.calls.iter();
        calls.skip(self.emitted).map(|it| it.arguments.len()).sum()
    }

    /// Adds a fragment. Some backends send the index, some the id, some neither but once.
    pub(super) fn push(&mut self, fragment: &ToolCallFragment<'_>) -> Result<(), ResponseTooLarge> {
        let call = self.find_or_add(fragment)?;
        if call.id.is_empty() {
            call.id.push_str(fragment.id);
        }
        // Some repeat the name with every fragment.
        if call.name != fragment.name {
            call.name.push_str(fragment.name);
        }
        call.arguments.push_str(fragment.arguments);
        if let Some(signature) = fragment.thought_signature {
            call.thought_signature = Some(signature.to_owned());
        }
        if let Some(content) = fragment.anthropic_content {
            call.anthropic_content = Some(content.clone());
        }
        Ok(())
    }

    fn find_or_add(
        &mut self,
        fragment: &ToolCallFragment<'_>,
    ) -> Result<&mut NativeCall, ResponseTooLarge> {
        let known = match fragment.index {
            Some(index) => {
                let same = self.calls.iter().rposition(|it| it.index == index);
                // Another id at the same index is another call all the same.
                same.filter(|at| {
                    let id = &self.calls[*at].id;
                    fragment.id.is_empty()
                        || id.is_empty()
                        || id == fragment.id
                        || fragment.name.is_empty()
                })
            }
            None if fragment.name.is_empty() => self.calls.len().checked_sub(1),
            None => None,
        };
        if let Some(at) = known {
            return Ok(&mut self.calls[at]);
        }
        if self.calls.len() >= MAX_NATIVE_CALLS {
            return Err(ResponseTooLarge);
        }
        self.calls.push(NativeCall {
            index: fragment.index.unwrap_or(self.calls.len() as u64),
            ..NativeCall::default()
        });
        Ok(self.calls.last_mut().expect("one was added"))
    }
}
