//! MCP protocol versions and their negotiation.

use std::fmt;

/// A version of MCP; later versions compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// 2024-11-05, with the HTTP+SSE transport.
    V2024_11_05,
    /// 2025-03-26, with Streamable HTTP and batches.
    V2025_03_26,
    /// 2025-06-18, with the version header and structured output.
    V2025_06_18,
    /// 2025-11-25, the last with a handshake.
    V2025_11_25,
    /// 2026-07-28, stateless.
    V2026_07_28,
}

impl ProtocolVersion {
    /// All versions, newest first, as a server lists them.
    pub const ALL: [Self; 5] = [
        Self::V2026_07_28,
        Self::V2025_11_25,
        Self::V2025_06_18,
        Self::V2025_03_26,
        Self::V2024_11_05,
    ];
    /// The newest version that `initialize` can negotiate.
    pub const LATEST_WITH_HANDSHAKE: Self = Self::V2025_11_25;

    /// Parses a version such as `2025-06-18`.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|version| version.as_str() == name)
    }

    /// Returns the version as it is written on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// Whether requests carry their own version and need no `initialize` handshake.
    pub const fn is_modern(self) -> bool {
        matches!(self, Self::V2026_07_28)
    }

    /// Whether tools have output schemas and results structured content.
    pub fn has_structured_output(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Returns the version that `initialize` answers to a client that requests `name`.
    pub fn negotiate(name: &str) -> Self {
        Self::parse(name)
            .filter(|version| !version.is_modern())
            .unwrap_or(Self::LATEST_WITH_HANDSHAKE)
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initialize_never_negotiates_a_stateless_version() {
        assert_eq!(
            ProtocolVersion::negotiate("2024-11-05"),
            ProtocolVersion::V2024_11_05
        );
        assert_eq!(
            ProtocolVersion::negotiate("2026-07-28"),
            ProtocolVersion::V2025_11_25
        );
        assert_eq!(
            ProtocolVersion::negotiate("1999-01-01"),
            ProtocolVersion::V2025_11_25
        );
    }
}
