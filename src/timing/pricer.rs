//! From the work of a pass to its length on the clock.

use std::sync::Arc;

use serde::Serialize;

use super::error::{LONGEST_PASS_MS, TimingError};
use super::work::{DecodeWork, PrefillWork};
use super::{Price, TimingProvider};
use crate::base::time::SimDuration;

/// How the two parts of the mixed passes of a run were put together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Composition {
    /// Mixed passes that the provider priced as one forward.
    pub(crate) one_forward: u64,
    /// Mixed passes that cost the sum of their parts.
    pub(crate) sum: u64,
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

/// Prices the passes of one engine.
pub(crate) struct PassPricer {
    provider: Arc<dyn TimingProvider>,
    host: HostTime,
    composition: Composition,
    lookups: u64,
}

impl PassPricer {
    /// A pricer that asks `provider` and adds the host's part.
    pub(crate) fn new(provider: Arc<dyn TimingProvider>, host: HostTime) -> Self {
        Self { provider, host, composition: Composition::default(), lookups: 0 }
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
        let device_ms = match (prefill.is_empty(), decode.is_empty()) {
            (true, true) => return Ok(SimDuration::ZERO),
            (false, true) => self.prefill_ms(prefill)?,
            (true, false) => self.decode_ms(decode)?,
            (false, false) => self.mixed_ms(prefill, decode)?,
        };
        // The one place where time is rounded.
        let ms = self.host.apply(device_ms);
        if ms <= LONGEST_PASS_MS
            && let Some(duration) = SimDuration::from_ms(ms)
        {
            return Ok(duration);
        }
        Err(TimingError::unusable(ms, prefill, decode))
    }

    fn prefill_ms(&mut self, work: &PrefillWork) -> Result<f64, TimingError> {
        self.lookups += 1;
        let price = self.provider.prefill(work)?;
        checked(price, work, &DecodeWork::default())
    }

    fn decode_ms(&mut self, work: &DecodeWork) -> Result<f64, TimingError> {
        self.lookups += 1;
        let price = self.provider.decode(work)?;
        checked(price, &PrefillWork::default(), work)
    }

    fn mixed_ms(&mut self, prefill: &PrefillWork, decode: &DecodeWork) -> Result<f64, TimingError> {
        if let Some(price) = self.provider.mixed(prefill, decode)? {
            self.lookups += 1;
            self.composition.one_forward += 1;
            return Ok(
                checked(price.prefill, prefill, decode)? + checked(price.decode, prefill, decode)?
            );
        }
        self.composition.sum += 1;
        Ok(self.prefill_ms(prefill)? + self.decode_ms(decode)?)
    }

    /// How mixed passes were priced so far.
    pub(crate) const fn composition(&self) -> Composition {
        self.composition
    }

    /// Questions asked of the provider so far.
    pub(crate) const fn lookups(&self) -> u64 {
        self.lookups
    }
}

/// The milliseconds of `price`, if they are a duration.
fn checked(price: Price, prefill: &PrefillWork, decode: &DecodeWork) -> Result<f64, TimingError> {
    if price.ms.is_finite() && price.ms >= 0.0 {
        Ok(price.ms)
    } else {
        Err(TimingError::unusable(price.ms, prefill, decode))
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
        assert!(error.contains("NaN") && error.contains("1 requests with 8 new"), "{error}");
        let error = pricer.price(&PrefillWork::default(), &decode).unwrap_err().to_string();
        assert!(error.contains("-1 ms") && error.contains("16 KV tokens"), "{error}");
    }
}
