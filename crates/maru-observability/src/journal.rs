//! The call journal: every call leaves a [`CallRecord`]. The latest records are kept in
//! memory, and counts per minute for an hour.
//!
//! A call costs two reads of the clock, one lock and the copied texts. Serialising and
//! masking happen only when a record is viewed.

mod clients;
mod record;
mod request_id;
mod ring;
mod stats;

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::{sync::Notify, time::Instant};
use tracing::Span;

use maru_runtime::clock;
use ring::RecordRing;

use super::telemetry::{RemoteTrace, spans};
pub use clients::{ClientRecord, KnownClients, client_label};
pub use maru_config::mask_secrets;
pub use record::{CallRecord, CallRequest, ToolCallOutcome};
pub use request_id::RequestId;
pub(crate) use stats::latency_bucket;
pub use stats::{CallSeries, CallStats, MinuteStats, StatsSummary};

/// The latest calls.
#[derive(Debug)]
pub struct CallJournal {
    state: Mutex<JournalState>,
    /// Wakes subscribers when a record is added.
    notify: Notify,
    subscriber_count: AtomicUsize,
    clients: KnownClients,
    callbacks: RwLock<Vec<RegisteredCallback>>,
}

/// Called with every record; must not block.
pub type RecordCallback = Box<dyn Fn(&Arc<CallRecord>) + Send + Sync>;

struct RegisteredCallback(RecordCallback);

#[derive(Debug)]
struct JournalState {
    ring: RecordRing,
    stats: CallStats,
}

/// A call in progress. If it is dropped before it finishes, the call was cancelled.
#[derive(Debug)]
pub struct CallRecorder<'a> {
    journal: &'a CallJournal,
    request: Option<CallRequest>,
    started_at: Instant,
    /// When the call was forwarded to its handler.
    forwarded_at: Option<Instant>,
    answered_at: Option<Instant>,
    span: Span,
}

/// A subscription to new records, which ends when this is dropped.
#[derive(Debug)]
pub struct JournalSubscription<'a>(&'a CallJournal);

impl Default for CallJournal {
    fn default() -> Self {
        let kept = JournalState {
            ring: RecordRing::new(now_millis()),
            stats: CallStats::default(),
        };
        Self {
            state: Mutex::new(kept),
            notify: Notify::new(),
            subscriber_count: AtomicUsize::new(0),
            clients: KnownClients::default(),
            callbacks: RwLock::default(),
        }
    }
}

impl CallJournal {
    /// Starts to record a call, in the trace that the client named or in the current one.
    pub fn begin_call(
        &self,
        mut request: CallRequest,
        trace: Option<RemoteTrace>,
    ) -> CallRecorder<'_> {
        let span = spans::tool_call(&request.tool, &request.server, &request.principal);
        // If the HTTP request is in the same trace, the call stays below that request's span.
        if let Some(trace) = trace.filter(|it| !it.is_current()) {
            trace.adopt(&span);
        }
        if let Some(id) = RequestId::of_span(&span) {
            request.request_id = id;
        }
        CallRecorder {
            journal: self,
            request: Some(request),
            started_at: Instant::now(),
            forwarded_at: None,
            answered_at: None,
            span,
        }
    }

    /// The record of this number, if it is still kept.
    pub fn get(&self, id: u64) -> Option<Arc<CallRecord>> {
        self.lock().ring.get(id)
    }

    /// The newest `limit` records before number `before` that `wanted` accepts, newest first.
    pub fn recent(
        &self,
        before: Option<u64>,
        limit: usize,
        wanted: impl Fn(&CallRecord) -> bool,
    ) -> Vec<Arc<CallRecord>> {
        let all = self.lock().ring.before(before);
        all.into_iter()
            .filter(|it| wanted(it))
            .take(limit)
            .collect()
    }

    /// The newest `limit` records after number `id`, oldest first.
    pub fn since(&self, id: u64, limit: usize) -> Vec<Arc<CallRecord>> {
        self.lock().ring.since(id, limit)
    }

    /// The number of the newest record.
    pub fn last_id(&self) -> u64 {
        self.lock().ring.last_id()
    }

    /// Reads the counts per minute of every tool and server.
    pub fn read_stats<T>(&self, read: impl FnOnce(&CallStats) -> T) -> T {
        read(&self.lock().stats)
    }

    /// Calls `callback` with every record from now on.
    pub fn on_record(&self, callback: RecordCallback) {
        let mut all = self
            .callbacks
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        all.push(RegisteredCallback(callback));
    }

    /// The client programs.
    pub fn clients(&self) -> &KnownClients {
        &self.clients
    }

    /// Subscribes to new records.
    pub fn subscribe(&self) -> JournalSubscription<'_> {
        self.subscriber_count.fetch_add(1, Relaxed);
        JournalSubscription(self)
    }

    fn add_record(&self, mut record: CallRecord) {
        let mut kept = self.lock();
        kept.stats.count(&record);
        record.id = kept.ring.next_id();
        let record = Arc::new(record);
        kept.ring.push(Arc::clone(&record));
        drop(kept);
        for callback in &*self
            .callbacks
            .read()
            .unwrap_or_else(PoisonError::into_inner)
        {
            (callback.0)(&record);
        }
        if self.subscriber_count.load(Relaxed) > 0 {
            self.notify.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallRecorder<'_> {
    /// The span of the call.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// The request that the call is part of: its trace, where spans are exported.
    pub fn request_id(&self) -> Option<RequestId> {
        self.request.as_ref().map(|it| it.request_id)
    }

    /// The call is forwarded to its handler.
    pub fn mark_forwarded(&mut self) {
        self.forwarded_at = Some(Instant::now());
    }

    /// The handler has responded.
    pub fn mark_answered(&mut self) {
        self.answered_at = Some(Instant::now());
    }

    /// Records the end of the call.
    pub fn finish(mut self, outcome: ToolCallOutcome, result: &str) {
        self.record_outcome(outcome, result);
    }

    /// Leaves no record, because the call is sent again with the caller's input.
    pub fn discard(mut self) {
        self.request = None;
    }

    fn record_outcome(&mut self, outcome: ToolCallOutcome, result: &str) {
        let Some(request) = self.request.take() else {
            return;
        };
        let done = self.answered_at.unwrap_or_else(Instant::now);
        spans::record_tool_outcome(&self.span, outcome);
        let record = CallRecord {
            id: 0,
            ended_at: now_millis(),
            outcome,
            duration: done - self.started_at,
            server_duration: self
                .forwarded_at
                .map_or_else(Default::default, |it| done - it),
            argument_bytes: request.arguments.len(),
            result_bytes: result.len(),
            result: record::truncate_text(result, record::MAX_RESULT_BYTES),
            request: request.truncate_arguments(),
        };
        self.journal.add_record(record);
    }
}

impl Drop for CallRecorder<'_> {
    fn drop(&mut self) {
        self.record_outcome(ToolCallOutcome::Cancelled, "");
    }
}

impl JournalSubscription<'_> {
    /// Resolves when there is a record after number `seen`.
    pub async fn wait_past(&self, seen: u64) {
        loop {
            // Created before the check, so that no wake-up is missed.
            let notified = self.0.notify.notified();
            if self.0.last_id() > seen {
                return;
            }
            notified.await;
        }
    }
}

impl std::fmt::Debug for RegisteredCallback {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("RegisteredCallback")
    }
}

impl Drop for JournalSubscription<'_> {
    fn drop(&mut self) {
        self.0.subscriber_count.fetch_sub(1, Relaxed);
    }
}

/// Milliseconds since 1970.
pub fn now_millis() -> u64 {
    u64::try_from(clock::now_ms()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(tool: &str, arguments: &str) -> CallRequest {
        CallRequest {
            tool: tool.into(),
            server: "maru".into(),
            principal: "local".into(),
            client: None,
            remote_ip: None,
            request_id: RequestId::next(),
            arguments: arguments.into(),
        }
    }

    #[test]
    fn every_end_of_a_call_leaves_one_record() {
        let journal = CallJournal::default();
        journal
            .begin_call(request("a", "{}"), None)
            .finish(ToolCallOutcome::Ok, "done");
        drop(journal.begin_call(request("b", "{}"), None));
        journal.begin_call(request("c", "{}"), None).discard();
        let found: Vec<_> = journal
            .recent(None, 10, |_| true)
            .iter()
            .map(|it| (it.request.tool.to_string(), it.outcome))
            .collect();
        let expected = [
            ("b".to_owned(), ToolCallOutcome::Cancelled),
            ("a".to_owned(), ToolCallOutcome::Ok),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn long_texts_are_cut_on_a_character_and_their_size_is_kept() {
        let journal = CallJournal::default();
        let long = "가".repeat(10_000);
        journal
            .begin_call(request("a", &long), None)
            .finish(ToolCallOutcome::Ok, &long);
        let record = journal.get(journal.last_id()).unwrap();
        assert!(record.request.arguments.len() <= record::MAX_ARGUMENT_BYTES);
        assert!(record.result.len() <= record::MAX_RESULT_BYTES && record.result.ends_with('가'));
        assert_eq!(
            (record.argument_bytes, record.result_bytes),
            (30_000, 30_000)
        );
    }

    #[tokio::test]
    async fn subscriber_sees_records_from_before_it_waited() {
        let journal = CallJournal::default();
        let listening = journal.subscribe();
        let seen = journal.last_id();
        journal
            .begin_call(request("a", "{}"), None)
            .finish(ToolCallOutcome::Ok, "");
        listening.wait_past(seen).await;
        assert_eq!(journal.since(seen, 10).len(), 1);
    }
}
