//! Meters one request: reserves what it is expected to use, and counts what it used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_config::ModelPrice;
use maru_store::UsageTotals;
use tokio::time::Instant;

use super::{super::Error, TokenEstimate, UsageLedger, UsageSubject};
use crate::TokenUsage;

/// The most tokens that are counted of one request: backends may say anything.
pub(in super::super) const MAX_COUNTED_TOKENS: u64 = 1_000_000_000;
/// Ten thousand units of the currency, in billionths.
const MAX_COST: f64 = 1e13;
/// Billionths of the currency for a token, at a price of one unit for a million.
const NANOS_PER_TOKEN: f64 = 1e3;

/// The model of a request, as it is counted.
#[derive(Clone, Debug)]
pub(in super::super) struct MeteredModel {
    pub(in super::super) name: Arc<str>,
    /// The name in the settings, under which failures of a name are counted that a caller
    /// chose.
    pub(in super::super) configured_name: Arc<str>,
    pub(in super::super) price: ModelPrice,
}

/// Meters a request until it is counted. Clones are one request.
#[derive(Clone, Debug)]
pub(in super::super) struct RequestMeter(Arc<MeteredRequest>);

#[derive(Debug)]
struct MeteredRequest {
    ledger: Arc<UsageLedger>,
    subject: UsageSubject,
    model: MeteredModel,
    estimate: TokenEstimate,
    /// Tokens and cost that are reserved.
    reserved: (i64, i64),
    is_counted: AtomicBool,
}

/// What a request used, and how it ended.
#[derive(Debug, Default)]
pub(in super::super) struct RequestUsage<'a> {
    /// What the backend reported.
    pub(in super::super) reported: Option<&'a TokenUsage>,
    /// Bytes of text in the response.
    pub(in super::super) response_bytes: u64,
    pub(in super::super) is_error: bool,
    /// Until the first piece of the response, if there was any.
    pub(in super::super) first_token: Option<Duration>,
    pub(in super::super) duration: Duration,
}

impl RequestMeter {
    /// Reserves what a request is expected to use, or says which budget has not enough left.
    pub(in super::super) fn start(
        ledger: &Arc<UsageLedger>,
        caller: &Arc<str>,
        model: MeteredModel,
        estimate: TokenEstimate,
    ) -> Result<Self, Error> {
        let subject = UsageSubject {
            caller: Arc::clone(caller),
            model: Arc::clone(&model.name),
        };
        let cost = cost(&model.price, estimate.input, 0, estimate.output);
        let tokens = to_i64(estimate.input.saturating_add(estimate.output));
        ledger.reserve(&subject, tokens, cost)?;
        Ok(Self(Arc::new(MeteredRequest {
            ledger: Arc::clone(ledger),
            subject,
            model,
            estimate,
            reserved: (tokens, cost),
            is_counted: AtomicBool::new(false),
        })))
    }

    /// Counts the request for `backend`, the first time only; what it cost then.
    pub(in super::super) fn count(&self, backend: &Arc<str>, usage: &RequestUsage<'_>) -> i64 {
        let request = &*self.0;
        if request.is_counted.swap(true, Relaxed) {
            return 0;
        }
        let totals = request.totals(usage);
        let is_chosen_name = request.model.name != request.model.configured_name;
        let mut subject = request.subject.clone();
        if is_chosen_name && usage.first_token.is_none() {
            subject.model = Arc::clone(&request.model.configured_name);
        }
        request
            .ledger
            .record(&subject, backend, is_chosen_name, &totals);
        totals.cost
    }
}

impl MeteredRequest {
    fn totals(&self, usage: &RequestUsage<'_>) -> UsageTotals {
        let has_response = usage.first_token.is_some();
        let is_estimated = has_response && usage.reported.is_none_or(|it| it.total() == 0);
        let estimated = TokenUsage::from_counts(
            self.estimate.input,
            TokenEstimate::tokens_of_bytes(usage.response_bytes),
            0,
        );
        let tokens = match usage.reported {
            Some(reported) if !is_estimated => reported,
            _ if is_estimated => &estimated,
            _ => &TokenUsage::default(),
        };
        let count = |tokens: u64| tokens.min(MAX_COUNTED_TOKENS);
        let (input, output) = (count(tokens.input()), count(tokens.output()));
        let cached = count(tokens.cached()).min(input);
        UsageTotals {
            requests: 1,
            errors: i64::from(usage.is_error),
            estimated: i64::from(is_estimated),
            input_tokens: to_i64(input),
            cached_tokens: to_i64(cached),
            output_tokens: to_i64(output),
            reasoning_tokens: to_i64(count(tokens.reasoning()).min(output)),
            responses: i64::from(has_response),
            first_token_ms: usage.first_token.map_or(0, milliseconds),
            duration_ms: milliseconds(usage.duration),
            cost: cost(&self.model.price, input, cached, output),
        }
    }
}

impl Drop for MeteredRequest {
    fn drop(&mut self) {
        let (tokens, cost) = self.reserved;
        self.ledger.release(&self.subject, tokens, cost);
    }
}

/// Meters a request for embeddings. Dropping it counts the request as failed.
#[derive(Debug)]
pub struct EmbeddingMeter {
    meter: Option<RequestMeter>,
    backend: Arc<str>,
    started_at: Instant,
}

impl EmbeddingMeter {
    pub(in super::super) fn new(meter: Option<RequestMeter>, backend: &str) -> Self {
        Self {
            meter,
            backend: backend.into(),
            started_at: Instant::now(),
        }
    }

    /// Counts the request with the tokens that the backend reported. A model that counts
    /// none uses none.
    pub fn finish(self, tokens: u64) {
        let reported = TokenUsage::from_counts(tokens, 0, tokens);
        let duration = self.started_at.elapsed();
        if let Some(meter) = &self.meter {
            // Nothing is estimated: a model of maru's own has no tokens.
            let usage = RequestUsage {
                reported: Some(&reported),
                first_token: (tokens > 0).then_some(duration),
                duration,
                ..RequestUsage::default()
            };
            meter.count(&self.backend, &usage);
        }
    }
}

impl Drop for EmbeddingMeter {
    fn drop(&mut self) {
        if let Some(meter) = &self.meter {
            let usage = RequestUsage {
                is_error: true,
                duration: self.started_at.elapsed(),
                ..RequestUsage::default()
            };
            meter.count(&self.backend, &usage);
        }
    }
}

/// In billionths of the currency.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "counts and costs are bounded far below the precision"
)]
fn cost(price: &ModelPrice, input: u64, cached: u64, output: u64) -> i64 {
    let uncached = input.saturating_sub(cached) as f64 * price.input;
    let cached = cached as f64 * price.cached.unwrap_or(price.input);
    let sum = uncached + cached + output as f64 * price.output;
    (sum * NANOS_PER_TOKEN).round().clamp(0.0, MAX_COST) as i64
}

fn to_i64(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_exact_to_a_billionth() {
        let price = ModelPrice {
            input: 0.15,
            output: 0.6,
            cached: Some(0.0375),
        };
        // 900 × 150 + 100 × 37.5 + 10 × 600 billionths.
        assert_eq!(cost(&price, 1000, 100, 10), 144_750);
        assert_eq!(cost(&ModelPrice::default(), 1000, 100, 10), 0);
        let expensive = ModelPrice {
            input: 1e6,
            output: 1e6,
            cached: None,
        };
        assert_eq!(cost(&expensive, u64::MAX, 0, 1), 10_000_000_000_000);
    }
}
