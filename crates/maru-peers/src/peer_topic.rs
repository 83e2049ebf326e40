//! What hubs ask each other for.

/// What an exchange is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerTopic {
    /// A response of a client to a request of the hub that holds its stream.
    SessionMessage,
    /// A request of a session that its client cancelled; the hub that runs it is unknown.
    SessionCancel,
    /// What all hubs must know of a session: its end, its log level, its subscriptions.
    SessionNote,
    /// A message to a session of HTTP+SSE, which lives at the hub that holds its stream.
    SseMessage,
    /// A stream that its client resumes.
    StreamResume,
    /// A request with the answer to a question that another hub asked.
    InputRound,
    /// The runs of the agent that are in progress, and decisions about their calls.
    AgentRun,
    /// A person's answer to a tool that was called in the console of another hub.
    ToolInput,
    /// The connection to a program that one hub runs for all.
    SingleProgram,
    /// The state of a server at each hub.
    ServerState,
}

impl PeerTopic {
    const ALL: [Self; 10] = [
        Self::SessionMessage,
        Self::SessionCancel,
        Self::SessionNote,
        Self::SseMessage,
        Self::StreamResume,
        Self::InputRound,
        Self::AgentRun,
        Self::ToolInput,
        Self::SingleProgram,
        Self::ServerState,
    ];

    /// Its name in an envelope.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::SessionMessage => "session-message",
            Self::SessionCancel => "session-cancel",
            Self::SessionNote => "session-note",
            Self::SseMessage => "sse-message",
            Self::StreamResume => "stream-resume",
            Self::InputRound => "input-round",
            Self::AgentRun => "agent-run",
            Self::ToolInput => "tool-input",
            Self::SingleProgram => "single-program",
            Self::ServerState => "server-state",
        }
    }

    /// Parses the name; a newer hub may send others.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }
}
