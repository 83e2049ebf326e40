//! Whether responses of a model begin inside its reasoning. Some chat templates open the
//! reasoning in the prompt, so the text has only the tag that closes it; a stream has to
//! know that before its first piece goes out.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use maru_config::StartsInReasoning;

/// Models that are remembered, per entry of the settings.
const MAX_REMEMBERED_MODELS: usize = 1000;
/// Parts of the names of models whose templates open the reasoning.
const REASONING_MODELS: [&str; 3] = ["deepseek-r1", "qwq", "thinking"];

/// How a response is expected to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningStart {
    /// With an answer, or with a tag that opens the reasoning.
    NotExpected,
    /// Perhaps inside reasoning: its text waits for the closing tag, or for its end.
    Likely,
    /// Inside reasoning.
    Certain,
}

/// How the responses of the models of one entry begin.
#[derive(Debug)]
pub(super) struct ReasoningStarts {
    setting: StartsInReasoning,
    /// What the last response of a model showed, where its name promises something else.
    models: Mutex<HashMap<String, bool>>,
}

impl ReasoningStarts {
    pub(super) fn new(setting: StartsInReasoning) -> Self {
        Self {
            setting,
            models: Mutex::default(),
        }
    }

    /// How the next response of `model` is expected to begin.
    pub(super) fn expected(&self, model: &str) -> ReasoningStart {
        match self.setting {
            StartsInReasoning::Always => ReasoningStart::Certain,
            StartsInReasoning::Auto if self.is_likely(model) => ReasoningStart::Likely,
            StartsInReasoning::Auto | StartsInReasoning::Never => ReasoningStart::NotExpected,
        }
    }

    /// Remembers how a response of `model` began.
    pub(super) fn record(&self, model: &str, started_in_reasoning: bool) {
        if self.is_likely(model) == started_in_reasoning {
            return;
        }
        let mut models = self.lock();
        if models.len() < MAX_REMEMBERED_MODELS || models.contains_key(model) {
            models.insert(model.to_owned(), started_in_reasoning);
        }
    }

    fn is_likely(&self, model: &str) -> bool {
        let known = self.lock().get(model).copied();
        known.unwrap_or_else(|| {
            let name = model.to_ascii_lowercase();
            REASONING_MODELS.iter().any(|it| name.contains(it))
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, bool>> {
        self.models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
