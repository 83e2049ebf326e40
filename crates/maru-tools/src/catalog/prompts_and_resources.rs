//! Prompts, resources and completions of a catalog.

use std::sync::Arc;

use maru_protocol::RpcError;

use super::Catalog;
use crate::{
    call_arguments::CallArguments,
    caller::Caller,
    context::RequestContext,
    entry::{EntryAction, EntryResponse},
    not_found::{entry_not_found, resource_not_found},
};

impl Catalog {
    /// Renders a prompt.
    pub async fn get_prompt(
        &self,
        caller: &Caller,
        name: &str,
        arguments: Arc<CallArguments>,
        context: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let entry = view
            .prompts
            .get(name)
            .ok_or_else(|| entry_not_found(&view.prompts, "prompt", name))?;
        self.invoke_or_error(caller, entry, EntryAction::GetPrompt(arguments), context)
            .await
    }

    /// Reads a resource.
    pub async fn read_resource(
        &self,
        caller: &Caller,
        uri: &str,
        context: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let entry = view
            .find_resource(uri)
            .ok_or_else(|| resource_not_found(uri))?;
        self.invoke_or_error(
            caller,
            entry,
            EntryAction::ReadResource(uri.to_owned()),
            context,
        )
        .await
    }

    /// Completes an argument of the prompt or resource template `key`.
    pub async fn complete(
        &self,
        caller: &Caller,
        key: &str,
        action: EntryAction,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let entry = view.prompts.get(key).or_else(|| view.templates.get(key));
        let entry =
            entry.ok_or_else(|| RpcError::invalid_params("no such prompt or resource template"))?;
        self.invoke_or_error(caller, entry, action, Arc::default())
            .await
    }
}
