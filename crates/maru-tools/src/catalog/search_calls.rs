//! Calls of the tools by which clients find and call others.

use std::sync::Arc;

use maru_observability::journal::{CallRecorder, CallRequest, ToolCallOutcome};
use maru_protocol::RpcError;

use super::{Catalog, RequestedCall, call_outcome};
use crate::{
    call_arguments::CallArguments,
    caller::Caller,
    context::RequestContext,
    entry::{CatalogEntry, EntryResponse},
    search::RankedTool,
    search_tools::{self, SearchTool},
};

impl Catalog {
    /// Ranks the tools that `caller` sees, the best for `query` first.
    pub async fn rank_tools(
        &self,
        caller: &Caller,
        query: &str,
    ) -> Result<Vec<RankedTool>, RpcError> {
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let Some(search) = self.search.get() else {
            return Ok(Vec::new());
        };
        let is_visible = |it: &CatalogEntry| view.contains_tool(it);
        Ok(search.rank(&snapshot, query, is_visible).await)
    }

    /// Finds tools, or calls one that was found. Such a call is checked, limited and recorded
    /// as a call of that tool.
    pub(super) async fn call_search_tool(
        &self,
        tool: SearchTool,
        caller: &Caller,
        arguments: Arc<CallArguments>,
        context: Arc<RequestContext>,
    ) -> Result<EntryResponse, RpcError> {
        caller.require_call_role()?;
        if tool == SearchTool::Find {
            return self.find_tools(caller, arguments, &context).await;
        }
        let inner = match tool.entry().validate_arguments(&arguments) {
            Ok(()) => search_tools::inner_call(&arguments).await,
            Err(error) => Err(RpcError::invalid_params(format!(
                "wrong arguments: {error}"
            ))),
        };
        let refused = match inner {
            Ok(inner) => {
                let call = RequestedCall {
                    name: &inner.name,
                    arguments: inner.arguments,
                    through: Some(tool),
                };
                return self.call_entry(caller, call, context).await;
            }
            Err(error) => error.message.into_owned(),
        };
        let response = tool.entry().failure(&refused);
        self.begin_search_call(tool, caller, &arguments, &context)
            .finish(ToolCallOutcome::Refused, response.as_json());
        Ok(EntryResponse::Complete(response))
    }

    async fn find_tools(
        &self,
        caller: &Caller,
        arguments: Arc<CallArguments>,
        context: &RequestContext,
    ) -> Result<EntryResponse, RpcError> {
        let tool = SearchTool::Find;
        let started = self.begin_search_call(tool, caller, &arguments, context);
        if let Err(error) = self.check_call(caller, tool.entry(), &arguments).await {
            let response = tool.entry().failure(&error);
            started.finish(ToolCallOutcome::Refused, response.as_json());
            return Ok(EntryResponse::Complete(response));
        }
        let (query, limit) = search_tools::find_arguments(&arguments);
        let ranked = self.rank_tools(caller, query).await?;
        let snapshot = self.snapshot();
        let view = snapshot.visible_to(caller)?;
        let found = search_tools::found_tools(&view, &ranked, limit);
        let found = self.limits().result_limits.apply(found);
        started.finish(call_outcome(&found), found.as_json());
        Ok(EntryResponse::Complete(found))
    }

    fn begin_search_call(
        &self,
        tool: SearchTool,
        caller: &Caller,
        arguments: &CallArguments,
        context: &RequestContext,
    ) -> CallRecorder<'_> {
        let entry = tool.entry();
        let request = CallRequest {
            tool: Arc::clone(&entry.public_name),
            server: Arc::clone(&entry.server),
            principal: caller.principal.shared_name(),
            client: context.client.clone(),
            remote_ip: caller.remote_ip,
            request_id: context.request_id,
            arguments: arguments.shared_text(),
        };
        self.journal.begin_call(request, context.remote_trace())
    }
}
