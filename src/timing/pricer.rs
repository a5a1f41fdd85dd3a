//! From the work of a pass to its length on the clock.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::corrections::Corrections;
use super::error::{LONGEST_PASS_MS, TimingError};
use super::evidence::{Evidence, Origin, Part, PassKind};
use super::work::{DecodeWork, PrefillWork};
use super::{MixedPrice, TimingProvider};
use crate::base::detail::PassPrice;
use crate::base::time::SimDuration;

/// How the price of a pass with both kinds of work is put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum MixedRule {
    /// As the provider composes it; the sum where it does not.
    #[default]
    Provider,
    /// Prefill, and what the decodes cost above the same decodes with hardly any KV; the sum where the provider
    /// knows no such share.
    Marginal,
    /// Two passes, one after the other.
    Sum,
    /// The longer of the two.
    Max,
}

/// The host's part of a pass (scheduling, sampling, detokenising).
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum HostTime {
    /// Before the device may start: added to the pass. Synchronous scheduling.
    Added(f64),
    /// While the device works: the longer of the two counts. Asynchronous scheduling.
    Hidden(f64),
}

impl HostTime {
    fn apply(self, device_ms: f64) -> f64 {
        match self {
            Self::Added(ms) => device_ms + ms,
            Self::Hidden(ms) => device_ms.max(ms),
        }
    }
}

/// What a pass costs beyond the provider's answers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Overhead {
    /// Every pass.
    pub(crate) pass_ms: f64,
    /// One with prefill work, beside that.
    pub(crate) prefill_ms: f64,
    /// The least that one with prefill work takes.
    pub(crate) prefill_launch_ms: f64,
    /// Each request of a pass.
    pub(crate) request_ms: f64,
}

impl Overhead {
    /// That of the prefill work and that of the decode work of a pass; the pass itself is the prefill's, where there
    /// is any.
    fn parts_ms(&self, prefill: &PrefillWork, decode: &DecodeWork) -> (f64, f64) {
        let of = |requests: u32| self.request_ms * f64::from(requests);
        if prefill.new_tokens == 0 {
            (0.0, self.pass_ms + of(decode.requests))
        } else {
            (self.pass_ms + self.prefill_ms + of(prefill.requests), of(decode.requests))
        }
    }
}

/// How the answers of a provider become the price of a pass.
#[derive(Clone, Default)]
pub(crate) struct Pricing {
    /// For passes with both kinds of work.
    pub(crate) mixed: MixedRule,
    /// Batch sizes for which CUDA graphs were captured, ascending: a pass that only decodes runs
    /// at the next of them. Empty: at its own.
    pub(crate) graph_sizes: Vec<u32>,
    /// Drafting, for each pass that verifies drafts.
    pub(crate) draft_ms: f64,
    /// What its decode passes cost is added to that.
    pub(crate) draft: Option<Arc<dyn TimingProvider>>,
    /// Factors on the provider's answers, drafting excepted; the evidence is of the answers themselves.
    pub(crate) corrections: Option<Arc<Corrections>>,
    /// Added to the provider's corrected answers.
    pub(crate) overhead: Overhead,
}

/// Prices the passes of one engine.
pub(crate) struct PassPricer {
    provider: Arc<dyn TimingProvider>,
    pricing: Pricing,
    host: HostTime,
    evidence: Evidence,
    mixed_passes: MixedPasses,
    lookups: u64,
    /// Whether passes take no time for now.
    is_free: bool,
    /// What the last price consisted of.
    last: PassPrice,
}

/// How mixed passes were priced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct MixedPasses {
    /// As one forward.
    pub(crate) one_forward: u64,
    /// As two: their sum, or the longer of them.
    pub(crate) two_passes: u64,
}

impl PassPricer {
    /// A pricer that asks `provider`, lets it compose mixed passes, and adds the host's part.
    pub(crate) fn new(provider: Arc<dyn TimingProvider>, host: HostTime) -> Self {
        Self {
            provider,
            pricing: Pricing::default(),
            host,
            evidence: Evidence::default(),
            mixed_passes: MixedPasses::default(),
            lookups: 0,
            is_free: false,
            last: PassPrice::default(),
        }
    }

    /// The same pricer, putting answers together in another way.
    #[must_use]
    pub(crate) fn with_pricing(self, pricing: Pricing) -> Self {
        Self { pricing, ..self }
    }

    /// The same pricer, keeping the worst outliers among its answers.
    #[must_use]
    pub(crate) fn with_outliers(self) -> Self {
        Self { evidence: Evidence::with_outliers(), ..self }
    }

    /// From now on passes take no time, or the time they take.
    pub(crate) fn set_free(&mut self, is_free: bool) {
        self.is_free = is_free;
    }

    /// How long a pass with this work takes. No work costs nothing and asks nobody.
    ///
    /// # Errors
    /// What the provider says, or an answer that is no duration.
    pub(crate) fn price(
        &mut self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
    ) -> Result<SimDuration, TimingError> {
        self.last = PassPrice::default();
        // A request without new tokens is no prefill work, whoever lists it.
        let (prefill_ms, decode_ms, draft_ms) = match (prefill.new_tokens == 0, decode.is_empty()) {
            (true, true) => return Ok(SimDuration::ZERO),
            _ if self.is_free => return Ok(SimDuration::ZERO),
            (false, true) => {
                self.evidence.begin(PassKind::Prefill);
                let factor = self.factor(PassKind::Prefill, prefill.new_tokens);
                (self.prefill_ms(prefill)? * factor, 0.0, 0.0)
            }
            (true, false) => {
                self.evidence.begin(PassKind::Decode);
                let padded = self.padded(decode);
                let factor = self.factor(PassKind::Decode, decode.requests.into());
                (0.0, self.decode_ms(&padded)? * factor, self.draft_ms(decode)?)
            }
            (false, false) => {
                self.evidence.begin(PassKind::Mixed);
                let parts = self.mixed(prefill, decode)?;
                (parts.prefill_ms, parts.decode_ms, self.draft_ms(decode)?)
            }
        };
        let others_ms = prefill_ms + decode_ms + draft_ms;
        let (prefill_more_ms, decode_more_ms) = self.overhead_ms(prefill, decode, others_ms);
        let (prefill_ms, decode_ms) = (prefill_ms + prefill_more_ms, decode_ms + decode_more_ms);
        let device_ms = prefill_ms + decode_ms + draft_ms;
        // The one place where time is rounded.
        let ms = self.host.apply(device_ms);
        let host_ms = ms - device_ms;
        self.last = PassPrice { prefill_ms, decode_ms, draft_ms, host_ms, decode_only_ms: None };
        if ms <= LONGEST_PASS_MS
            && let Some(duration) = SimDuration::from_ms(ms)
        {
            return Ok(duration);
        }
        Err(TimingError::unusable(ms, prefill, decode))
    }

    /// What the last price consisted of. Of a pass with both kinds of work the provider is asked what `decode`,
    /// its decode work, would cost alone; this is no part of the evidence.
    ///
    /// # Errors
    /// What the provider says.
    pub(crate) fn last_in_full(
        &mut self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
    ) -> Result<PassPrice, TimingError> {
        if prefill.new_tokens == 0 || decode.is_empty() {
            return Ok(self.last);
        }
        if self.is_free {
            return Ok(PassPrice { decode_only_ms: Some(0.0), ..self.last });
        }
        let work = self.padded(decode);
        let ms = self.provider.decode(&work, &mut Evidence::default())?;
        let ms = checked(ms, &PrefillWork::default(), &work)?;
        let (_, more_ms) = self.pricing.overhead.parts_ms(&PrefillWork::default(), decode);
        let factor = self.factor(PassKind::Decode, decode.requests.into());
        let device_ms = ms * factor + more_ms + self.last.draft_ms;
        Ok(PassPrice { decode_only_ms: Some(self.host.apply(device_ms)), ..self.last })
    }

    /// The work of a decode pass as the device does it: a CUDA graph replays the batch it was captured
    /// for, and requests that fill it up have one token and no KV. Above the largest graph, and with
    /// drafts, the pass runs as it is.
    fn padded(&self, decode: &DecodeWork) -> DecodeWork {
        let sizes = &self.pricing.graph_sizes;
        if decode.query_tokens != u64::from(decode.requests) {
            return *decode;
        }
        let place = sizes.partition_point(|&size| size < decode.requests);
        sizes.get(place).map_or(*decode, |&requests| DecodeWork {
            requests,
            query_tokens: requests.into(),
            ..*decode
        })
    }

    /// Drafting happens before a pass that verifies drafts.
    fn draft_ms(&mut self, decode: &DecodeWork) -> Result<f64, TimingError> {
        if decode.query_tokens == u64::from(decode.requests) {
            return Ok(0.0);
        }
        let Pricing { draft_ms, draft, .. } = &self.pricing;
        if *draft_ms > 0.0 {
            self.evidence.note(Part::Draft, Origin::Analytic, *draft_ms);
        }
        let Some(provider) = draft else { return Ok(*draft_ms) };
        let work = DecodeWork { query_tokens: decode.requests.into(), ..*decode };
        let asked = |evidence: &mut Evidence| provider.decode(&work, evidence);
        let ms = self.evidence.noting_as(Part::Draft, asked)?;
        Ok(draft_ms + checked(ms, &PrefillWork::default(), &work)?)
    }

    /// What the pass costs beyond the answers, which come to `others_ms`, for its prefill and for its decode work.
    fn overhead_ms(
        &mut self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
        others_ms: f64,
    ) -> (f64, f64) {
        let (mut prefill_ms, decode_ms) = self.pricing.overhead.parts_ms(prefill, decode);
        if prefill.new_tokens > 0 {
            let launch_ms = self.pricing.overhead.prefill_launch_ms;
            prefill_ms += (launch_ms - others_ms - prefill_ms - decode_ms).max(0.0);
        }
        if prefill_ms + decode_ms > 0.0 {
            self.evidence.note(Part::Overhead, Origin::Analytic, prefill_ms + decode_ms);
        }
        (prefill_ms, decode_ms)
    }

    fn prefill_ms(&mut self, work: &PrefillWork) -> Result<f64, TimingError> {
        self.lookups += 1;
        let ms = self.provider.prefill(work, &mut self.evidence)?;
        checked(ms, work, &DecodeWork::default())
    }

    fn decode_ms(&mut self, work: &DecodeWork) -> Result<f64, TimingError> {
        self.lookups += 1;
        let ms = self.provider.decode(work, &mut self.evidence)?;
        checked(ms, &PrefillWork::default(), work)
    }

    /// What the price of a pass is multiplied by.
    fn factor(&self, kind: PassKind, size: u64) -> f64 {
        self.pricing.corrections.as_ref().map_or(1.0, |corrections| corrections.factor(kind, size))
    }

    /// Both parts of a mixed pass, corrected.
    fn mixed(
        &mut self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
    ) -> Result<MixedPrice, TimingError> {
        let parts = self.composed(prefill, decode)?;
        let factor = self.factor(PassKind::Mixed, prefill.new_tokens + decode.query_tokens);
        Ok(MixedPrice {
            prefill_ms: parts.prefill_ms * factor,
            decode_ms: parts.decode_ms * factor,
        })
    }

    fn composed(
        &mut self,
        prefill: &PrefillWork,
        decode: &DecodeWork,
    ) -> Result<MixedPrice, TimingError> {
        let rule = self.pricing.mixed;
        if rule == MixedRule::Provider
            && let Some(price) = self.provider.mixed(prefill, decode, &mut self.evidence)?
        {
            self.lookups += 1;
            self.mixed_passes.one_forward += 1;
            checked(price.prefill_ms, prefill, decode)?;
            checked(price.decode_ms, prefill, decode)?;
            return Ok(price);
        }
        let (prefill_ms, decode_ms) = (self.prefill_ms(prefill)?, self.decode_ms(decode)?);
        if rule == MixedRule::Marginal
            && let Some(base_ms) = self.provider.decode_baseline(decode, &mut self.evidence)?
        {
            self.lookups += 1;
            self.mixed_passes.one_forward += 1;
            let decode_ms = (decode_ms - checked(base_ms, prefill, decode)?).max(0.0);
            return Ok(MixedPrice { prefill_ms, decode_ms });
        }
        self.mixed_passes.two_passes += 1;
        Ok(match rule {
            // The longer of the two hides the other.
            MixedRule::Max if decode_ms > prefill_ms => MixedPrice { prefill_ms: 0.0, decode_ms },
            MixedRule::Max => MixedPrice { prefill_ms, decode_ms: 0.0 },
            MixedRule::Provider | MixedRule::Marginal | MixedRule::Sum => {
                MixedPrice { prefill_ms, decode_ms }
            }
        })
    }

    /// How mixed passes were priced so far.
    pub(crate) const fn mixed_passes(&self) -> MixedPasses {
        self.mixed_passes
    }

    /// What the answers so far rest on.
    pub(crate) const fn evidence(&self) -> &Evidence {
        &self.evidence
    }

    /// Questions asked of the provider so far.
    pub(crate) const fn lookups(&self) -> u64 {
        self.lookups
    }
}

/// `ms`, if it is a duration.
fn checked(ms: f64, prefill: &PrefillWork, decode: &DecodeWork) -> Result<f64, TimingError> {
    if ms.is_finite() && ms >= 0.0 {
        Ok(ms)
    } else {
        Err(TimingError::unusable(ms, prefill, decode))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed::Fixed;
    use super::*;

    fn pricer(mixed_ms: Option<f64>, host: HostTime) -> PassPricer {
        let provider = Fixed { prefill_ms: 10.0, decode_ms: 4.0, mixed_ms };
        PassPricer::new(Arc::new(provider), host)
    }

    fn work() -> (PrefillWork, DecodeWork) {
        let (mut prefill, mut decode) = (PrefillWork::default(), DecodeWork::default());
        prefill.add(8, 0);
        decode.add(1, 16);
        (prefill, decode)
    }

    #[test]
    fn a_mixed_pass_costs_the_sum_unless_the_provider_composes_it() {
        let (prefill, decode) = work();
        let host = HostTime::Added(0.0);
        let sum = pricer(None, host).price(&prefill, &decode).unwrap();
        assert_eq!(sum, SimDuration::from_ns(14_000_000));
        let one = pricer(Some(11.0), host).price(&prefill, &decode).unwrap();
        assert_eq!(one, SimDuration::from_ns(11_000_000));
    }

    #[test]
    fn other_rules_set_the_composition_aside() {
        let (prefill, decode) = work();
        for (rule, expected_ns) in [(MixedRule::Sum, 14_000_000), (MixedRule::Max, 10_000_000)] {
            let pricing = Pricing { mixed: rule, ..Pricing::default() };
            let mut pricer = pricer(Some(11.0), HostTime::Added(0.0)).with_pricing(pricing);
            let duration = pricer.price(&prefill, &decode).unwrap();
            assert_eq!(duration, SimDuration::from_ns(expected_ns));
            assert_eq!(pricer.lookups(), 2);
            let mixed_passes = MixedPasses { one_forward: 0, two_passes: 1 };
            assert_eq!(pricer.mixed_passes(), mixed_passes);
            assert_eq!(pricer.evidence().total(Origin::Analytic).count, 2);
            // Passes of one kind never change with the rule.
            let alone = pricer.price(&prefill, &DecodeWork::default()).unwrap();
            assert_eq!(alone, SimDuration::from_ns(10_000_000));
        }
    }

    #[test]
    fn host_time_is_added_when_synchronous_and_hidden_when_not() {
        let (prefill, _) = work();
        let none = DecodeWork::default();
        for (host, expected_ns) in [
            (HostTime::Added(3.0), 13_000_000),
            (HostTime::Hidden(3.0), 10_000_000),
            (HostTime::Hidden(12.0), 12_000_000),
        ] {
            let duration = pricer(None, host).price(&prefill, &none).unwrap();
            assert_eq!(duration, SimDuration::from_ns(expected_ns));
        }
    }

    #[test]
    fn no_work_costs_nothing_and_asks_nobody() {
        let mut pricer = pricer(None, HostTime::Added(5.0));
        let nothing = pricer.price(&PrefillWork::default(), &DecodeWork::default());
        assert_eq!(nothing, Ok(SimDuration::ZERO));
        assert_eq!(pricer.lookups(), 0);
    }

    #[test]
    fn an_answer_that_is_no_duration_names_the_question() {
        let provider = Fixed { prefill_ms: f64::NAN, decode_ms: -1.0, mixed_ms: None };
        let mut pricer = PassPricer::new(Arc::new(provider), HostTime::Added(5.0));
        let (prefill, decode) = work();
        let error = pricer.price(&prefill, &DecodeWork::default()).unwrap_err().to_string();
        assert!(error.contains("NaN") && error.contains("1 request with 8 new"), "{error}");
        let error = pricer.price(&PrefillWork::default(), &decode).unwrap_err().to_string();
        assert!(error.contains("-1 ms") && error.contains("16 KV tokens"), "{error}");
    }

    #[test]
    fn a_decode_pass_runs_at_the_next_captured_batch() {
        let pricing = Pricing { graph_sizes: vec![1, 2, 4, 8], ..Pricing::default() };
        let pricer = pricer(None, HostTime::Added(0.0)).with_pricing(pricing);
        for (requests, expected) in [(1_u64, 1), (3, 4), (8, 8), (9, 9)] {
            let mut decode = DecodeWork::default();
            (0..requests).for_each(|_| decode.add(1, 100));
            let padded = pricer.padded(&decode);
            assert_eq!((padded.requests, padded.query_tokens), (expected, expected.into()));
            assert_eq!(padded.kv_tokens, 100 * requests);
        }
        let mut drafts = DecodeWork::default();
        (0..3).for_each(|_| drafts.add(4, 100));
        assert_eq!(pricer.padded(&drafts), drafts);
    }

    #[test]
    fn overheads_are_of_the_pass_its_kind_and_its_requests() {
        let overhead =
            Overhead { pass_ms: 1.0, prefill_ms: 2.0, prefill_launch_ms: 0.0, request_ms: 0.5 };
        let corrections = Some(Arc::new(Corrections::constant(2.0, 2.0, 2.0)));
        let pricing = Pricing { corrections, overhead, ..Pricing::default() };
        let (prefill, decode) = work();
        let (no_prefill, no_decode) = (PrefillWork::default(), DecodeWork::default());
        let mut both = pricer(Some(11.0), HostTime::Added(0.0)).with_pricing(pricing);
        // 10 * 2 + 1 + 2 + 0.5, 4 * 2 + 1 + 0.5, and 11 * 2 + 1 + 2 + 2 * 0.5; no factor on what is added.
        assert_eq!(both.price(&prefill, &no_decode), Ok(SimDuration::from_ns(23_500_000)));
        assert_eq!(both.price(&no_prefill, &decode), Ok(SimDuration::from_ns(9_500_000)));
        assert_eq!(both.price(&prefill, &decode), Ok(SimDuration::from_ns(26_000_000)));
        let price = both.last_in_full(&prefill, &decode).unwrap();
        assert_eq!(price.decode_only_ms, Some(9.5));
        assert_eq!(both.price(&no_prefill, &no_decode), Ok(SimDuration::ZERO));
    }

    #[test]
    fn launching_hides_behind_the_device() {
        let (prefill, decode) = work();
        let none = PrefillWork::default();
        for (launch_ms, expected_ns) in [(5.0, 14_000_000), (30.0, 30_000_000)] {
            let overhead = Overhead { prefill_launch_ms: launch_ms, ..Overhead::default() };
            let pricing = Pricing { overhead, ..Pricing::default() };
            let mut pricer = pricer(None, HostTime::Added(0.0)).with_pricing(pricing);
            // 10 and 4 ms, one after the other.
            assert_eq!(pricer.price(&prefill, &decode), Ok(SimDuration::from_ns(expected_ns)));
            // A graph replays what only decodes.
            assert_eq!(pricer.price(&none, &decode), Ok(SimDuration::from_ns(4_000_000)));
        }
    }

    #[test]
    fn drafting_is_paid_once_a_pass_that_verifies() {
        let pricing = Pricing { draft_ms: 3.0, ..Pricing::default() };
        let mut pricer = pricer(None, HostTime::Added(0.0)).with_pricing(pricing);
        let mut decode = DecodeWork::default();
        decode.add(1, 100);
        let none = PrefillWork::default();
        assert_eq!(pricer.price(&none, &decode), Ok(SimDuration::from_ns(4_000_000)));
        decode.add(4, 100);
        assert_eq!(pricer.price(&none, &decode), Ok(SimDuration::from_ns(7_000_000)));
    }

    #[test]
    fn corrections_are_by_kind_and_a_mixed_pass_takes_one_factor_on_both_parts() {
        let corrections = Some(Arc::new(Corrections::constant(1.5, 0.75, 1.25)));
        let pricing = Pricing { corrections, draft_ms: 3.0, ..Pricing::default() };
        // As one forward 11 ms: 10 of prefill and 1 of decode.
        let mut pricer = pricer(Some(11.0), HostTime::Added(0.0)).with_pricing(pricing);
        let (prefill, decode) = work();
        let (no_prefill, no_decode) = (PrefillWork::default(), DecodeWork::default());
        // 10 * 1.5, 4 * 0.75, and 10 * 1.25 + 1 * 1.25.
        assert_eq!(pricer.price(&prefill, &no_decode), Ok(SimDuration::from_ns(15_000_000)));
        assert_eq!(pricer.price(&no_prefill, &decode), Ok(SimDuration::from_ns(3_000_000)));
        let parts = pricer.mixed(&prefill, &decode).unwrap();
        assert_eq!(parts, MixedPrice { prefill_ms: 12.5, decode_ms: 1.25 });
        assert_eq!(pricer.price(&prefill, &decode), Ok(SimDuration::from_ns(13_750_000)));
        // Answers are noted as they were given: 10, 4, 11 and 11.
        assert_eq!(pricer.evidence().total(Origin::Analytic).ms.to_bits(), 36.0_f64.to_bits());
        // Drafting is not corrected: 4 * 0.75 + 3.
        let mut drafts = DecodeWork::default();
        drafts.add(4, 16);
        assert_eq!(pricer.price(&no_prefill, &drafts), Ok(SimDuration::from_ns(6_000_000)));
    }

    #[test]
    fn a_draft_pass_may_have_a_price_of_its_own() {
        let draft: Arc<dyn TimingProvider> =
            Arc::new(Fixed { prefill_ms: 0.0, decode_ms: 0.5, mixed_ms: None });
        let pricing = Pricing { draft_ms: 3.0, draft: Some(draft), ..Pricing::default() };
        let mut pricer = pricer(None, HostTime::Added(0.0)).with_pricing(pricing);
        let mut decode = DecodeWork::default();
        decode.add(4, 100);
        let none = PrefillWork::default();
        assert_eq!(pricer.price(&none, &decode), Ok(SimDuration::from_ns(7_500_000)));
        let drafting = &pricer.evidence().to_json()["decode_only"]["draft"]["analytic"];
        assert_eq!((&drafting["count"], &drafting["ms"]), (&2.into(), &3.5.into()));
    }

    #[test]
    fn a_prompt_without_new_tokens_makes_no_mixed_pass() {
        let (mut prefill, decode) = (PrefillWork::default(), work().1);
        prefill.add(0, 64);
        let ns = pricer(Some(11.0), HostTime::Added(0.0)).price(&prefill, &decode);
        assert_eq!(ns, Ok(SimDuration::from_ns(4_000_000)));
    }
}
