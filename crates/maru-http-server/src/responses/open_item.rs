//! The item of a response that is being written.

use serde_json::Value;

use super::{
    client_tools::ToolOrigin,
    input_items::pack_reasoning,
    output_item::{CallItem, MessageItem, ReasoningItem},
};

/// The item that is being written.
#[derive(Debug)]
pub(super) enum OpenItem {
    Message {
        id: String,
        text: String,
        refusal: String,
    },
    Reasoning {
        id: String,
        text: String,
        /// Reasoning with the backend's signature.
        blocks: Vec<Value>,
        /// Bytes of the text that the blocks hold.
        signed: usize,
    },
    Call {
        id: String,
        call_id: String,
        origin: ToolOrigin,
        arguments: String,
    },
}

impl OpenItem {
    pub(super) fn id(&self) -> &str {
        match self {
            Self::Message { id, .. } | Self::Reasoning { id, .. } | Self::Call { id, .. } => id,
        }
    }

    /// Writes the item as it is so far.
    pub(super) fn write(&self, status: &'static str, seals_reasoning: bool, out: &mut String) {
        match self {
            Self::Message { id, text, refusal } => MessageItem {
                id,
                text,
                refusal,
                status,
            }
            .write(out),
            Self::Reasoning {
                id, text, blocks, ..
            } => ReasoningItem {
                id,
                text,
                sealed: seals_reasoning.then(|| pack_reasoning(text, blocks)),
            }
            .write(out),
            Self::Call {
                id,
                call_id,
                origin,
                arguments,
            } => CallItem {
                id,
                call_id,
                origin,
                arguments,
                status,
            }
            .write(out),
        }
    }
}
