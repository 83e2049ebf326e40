//! What is let through: changed tools, and programs from elsewhere.

use super::{Manager, Unchanged, View};
use crate::upstream::{draft::Draft, server::Transport};

impl Manager {
    /// Accepts the changed definition of `tool`, or of all that wait.
    pub async fn accept(&self, name: &str, tool: Option<&str>) -> Result<View, Unchanged> {
        let entry = self.find(name)?;
        let accepted = self.settings.pins().accept(name, tool).await?;
        if accepted == 0 && tool.is_some() {
            return Err(Unchanged::NothingToAccept);
        }
        entry.handle.republish().await;
        Ok(self.view(entry))
    }

    /// Which program is started is decided on this machine, unless the settings
    /// say otherwise.
    pub(super) fn check_programs(
        &self,
        draft: &Draft,
        before: Option<&Transport>,
    ) -> Result<(), Unchanged> {
        if !self.rules.programs_refused || draft.kind != "STDIO" {
            return Ok(());
        }
        let wanted = Transport::read(&draft.kind, &draft.config, before)?;
        match before == Some(&wanted) {
            true => Ok(()),
            false => Err(Unchanged::Programs),
        }
    }
}
