//! What a caller gets whose call needs a sign-in: a page to open, in the form that its
//! client understands. Pure.

use std::{borrow::Cow, collections::BTreeMap};

use maru_protocol::{ProtocolVersion, RpcError, code};
use maru_tools::{EntryResponse, EntryResult, InputRequired, InputResponses, RequestContext};
use serde_json::{Value, json};

/// The key of the input request.
const SIGN_IN_KEY: &str = "maru_sign_in";
/// The error of 2025-11-25 that asks a client to open a page.
const URL_ELICITATION_REQUIRED: i64 = -32042;

/// A caller's answer to an earlier request to sign in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignInAnswer {
    /// It was not asked.
    NotAsked,
    Accepted,
    Declined,
}

/// A request to sign in.
pub(super) struct SignInRequest<'a> {
    pub(super) server: &'a str,
    pub(super) reason: &'a str,
    /// The page at which the caller may sign in; `None` if only an admin may.
    pub(super) page: Option<&'a str>,
    /// Whether a tool is called, whose failure is a result.
    pub(super) is_call: bool,
}

impl SignInAnswer {
    /// Finds the answer among the inputs of a call.
    pub(super) fn of(context: &RequestContext) -> Self {
        match context.inputs.responses.get(SIGN_IN_KEY) {
            None => Self::NotAsked,
            Some(answer) if answer["action"] == "accept" => Self::Accepted,
            Some(_) => Self::Declined,
        }
    }

    pub(super) fn is_accepted(self) -> bool {
        self == Self::Accepted
    }

    /// Returns the context without the answer, which is not for the server.
    pub(super) fn remaining_context(self, context: &RequestContext) -> Cow<'_, RequestContext> {
        if self == Self::NotAsked {
            return Cow::Borrowed(context);
        }
        let mut responses = context.inputs.responses.clone();
        responses.shift_remove(SIGN_IN_KEY);
        Cow::Owned(RequestContext {
            inputs: InputResponses {
                responses,
                ..context.inputs.clone()
            },
            ..context.clone()
        })
    }
}

impl SignInRequest<'_> {
    /// Writes the response to the caller.
    pub(super) fn respond(
        &self,
        context: &RequestContext,
        answer: SignInAnswer,
    ) -> Result<EntryResponse, RpcError> {
        let can_open = !context.capabilities["elicitation"]["url"].is_null();
        match self.page {
            Some(page) if can_open && answer != SignInAnswer::Declined => {
                self.ask(page, context.version)
            }
            _ => self.fail(),
        }
    }

    fn ask(&self, page: &str, version: ProtocolVersion) -> Result<EntryResponse, RpcError> {
        let message = format!("Sign in to {} to continue.", self.server);
        let elicitation = json!({
            "mode": "url",
            "elicitationId": format!("{SIGN_IN_KEY}:{}", self.server),
            "url": page,
            "message": message,
        });
        if version.is_modern() {
            let request = json!({"method": "elicitation/create", "params": elicitation});
            return Ok(EntryResponse::InputRequired(InputRequired {
                requests: BTreeMap::from([(SIGN_IN_KEY.to_owned(), request)]),
                state: None,
            }));
        }
        let data: Value = json!({"elicitations": [elicitation]});
        Err(RpcError::new(URL_ELICITATION_REQUIRED, message).with_data(data))
    }

    fn fail(&self) -> Result<EntryResponse, RpcError> {
        let server = self.server;
        let advice = match self.page {
            Some(page) => format!("open {page}, sign in, then call again"),
            None => format!("ask an admin to sign in with: maru servers login {server}"),
        };
        let message = format!("{}; {advice}", self.reason);
        if self.is_call {
            let failure = EntryResult::server_unavailable(server, &message);
            return Ok(EntryResponse::Complete(failure));
        }
        Err(RpcError::new(code::INTERNAL_ERROR, message))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn respond(
        capabilities: Value,
        version: ProtocolVersion,
        page: Option<&str>,
    ) -> Result<EntryResponse, RpcError> {
        let context = RequestContext {
            capabilities: Arc::new(capabilities),
            version,
            ..RequestContext::default()
        };
        let request = SignInRequest {
            server: "a",
            reason: "server a needs a sign-in",
            page,
            is_call: true,
        };
        request.respond(&context, SignInAnswer::of(&context))
    }

    #[test]
    fn clients_that_open_pages_are_asked_in_the_form_of_their_version() {
        let able = || json!({"elicitation": {"url": {}}});
        let address = "http://127.0.0.1:9/oauth/start/a";
        let page = Some(address);
        let modern = respond(able(), ProtocolVersion::V2026_07_28, page).unwrap();
        let EntryResponse::InputRequired(asked) = modern else {
            panic!("an input request");
        };
        assert_eq!(asked.requests[SIGN_IN_KEY]["params"]["url"], address);
        let error = respond(able(), ProtocolVersion::LATEST_WITH_HANDSHAKE, page).unwrap_err();
        assert_eq!(error.code, URL_ELICITATION_REQUIRED);
        assert_eq!(error.data.unwrap()["elicitations"][0]["url"], address);
    }

    #[test]
    fn other_clients_get_a_failed_result_with_the_page_or_whom_to_ask() {
        let check = |capabilities: Value, page: Option<&str>, expected: &str| {
            let response = respond(capabilities, ProtocolVersion::V2026_07_28, page).unwrap();
            let EntryResponse::Complete(result) = response else {
                panic!("a result");
            };
            assert!(result.is_error());
            assert!(result.as_json().contains(expected), "{}", result.as_json());
        };
        check(
            json!({}),
            Some("http://h/oauth/start/a"),
            "open http://h/oauth/start/a",
        );
        check(
            json!({"elicitation": {"url": {}}}),
            None,
            "maru servers login a",
        );
    }

    #[test]
    fn answer_is_read_and_not_forwarded() {
        let mut context = RequestContext::default();
        assert_eq!(SignInAnswer::of(&context), SignInAnswer::NotAsked);
        let answer = json!({"action": "accept"});
        context
            .inputs
            .responses
            .insert(SIGN_IN_KEY.to_owned(), answer);
        let read = SignInAnswer::of(&context);
        assert!(read.is_accepted());
        assert!(read.remaining_context(&context).inputs.responses.is_empty());
        let declined = json!({"action": "decline"});
        context
            .inputs
            .responses
            .insert(SIGN_IN_KEY.to_owned(), declined);
        assert_eq!(SignInAnswer::of(&context), SignInAnswer::Declined);
    }
}
