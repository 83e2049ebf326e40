//! Why a thing of a file was not imported.

use maru_upstream::RegistrationError;

/// Why a thing was not imported.
pub(super) struct ImportError {
    pub(super) message: String,
    /// What has to be accepted first.
    pub(super) warnings: Vec<String>,
}

impl ImportError {
    #[expect(
        clippy::needless_pass_by_value,
        reason = "`map_err` passes the error itself"
    )]
    pub(super) fn new(error: impl ToString) -> Self {
        Self {
            message: error.to_string(),
            warnings: Vec::new(),
        }
    }
}

impl From<RegistrationError> for ImportError {
    fn from(error: RegistrationError) -> Self {
        let message = error.to_string();
        let warnings = match error {
            RegistrationError::WarningsNotAccepted { warnings, .. } => warnings,
            _ => Vec::new(),
        };
        Self { message, warnings }
    }
}
