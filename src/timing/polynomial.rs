//! Prices from polynomials whose coefficients the scenario gives.

use super::TimingProvider;
use super::config::{DecodePolynomial, PrefillPolynomial};
use super::error::TimingError;
use super::evidence::{Evidence, Origin, Part};
use super::work::{DecodeWork, PrefillWork};

/// Polynomials over new tokens (prefill) and over KV, batch and pool occupancy (decode). The two
/// parts of a mixed pass are priced separately, so such a pass costs their sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Polynomial {
    prefill: PrefillPolynomial,
    decode: DecodePolynomial,
    /// Tokens the KV pool holds: what occupancy is a share of.
    kv_capacity_tokens: f64,
}

impl Polynomial {
    /// The provider for an engine whose pool holds `kv_capacity_tokens` tokens.
    pub(crate) fn new(
        prefill: PrefillPolynomial,
        decode: DecodePolynomial,
        kv_capacity_tokens: u64,
    ) -> Self {
        Self { prefill, decode, kv_capacity_tokens: kv_capacity_tokens as f64 }
    }
}

impl TimingProvider for Polynomial {
    fn prefill(&self, work: &PrefillWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let tokens = work.new_tokens as f64;
        let PrefillPolynomial { token_squared_ms, token_ms, attended_pair_ms, constant_ms } =
            self.prefill;
        let pairs = (work.new_by_past + work.new_triangle) as f64;
        let ms = (token_squared_ms * tokens + token_ms) * tokens
            + attended_pair_ms * pairs
            + constant_ms;
        evidence.note(Part::Prefill, Origin::Analytic, ms);
        Ok(ms)
    }

    fn decode(&self, work: &DecodeWork, evidence: &mut Evidence) -> Result<f64, TimingError> {
        let kv = work.kv_tokens as f64;
        // Requests that share cached blocks each count them, the pool holds them once.
        let occupancy = (kv / self.kv_capacity_tokens).min(1.0);
        let p = &self.decode;
        let ms = p.constant_ms
            + p.request_ms * f64::from(work.requests)
            + p.kv_token_ms * kv
            + p.longest_kv_token_ms * f64::from(work.longest_kv_tokens)
            + (p.occupancy_squared_ms * occupancy + p.occupancy_ms) * occupancy;
        let ms = ms.max(p.min_ms);
        evidence.note(Part::Decode, Origin::Analytic, ms);
        Ok(ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uneven_work_is_told_from_even_work() {
        let prefill = PrefillPolynomial { attended_pair_ms: 0.001, ..PrefillPolynomial::default() };
        let decode = DecodePolynomial { longest_kv_token_ms: 0.01, ..DecodePolynomial::default() };
        let provider = Polynomial::new(prefill, decode, 10_000);
        let mut work = PrefillWork::default();
        work.add(10, 100);
        work.add(30, 0);
        // 10 * 100 + 10 * 11 / 2 + 30 * 31 / 2 = 1000 + 55 + 465 pairs.
        let ms = provider.prefill(&work, &mut Evidence::default()).unwrap();
        assert!((ms - 1.52).abs() < 1e-12, "{ms}");
        let mut work = DecodeWork::default();
        work.add(1, 100);
        work.add(1, 300);
        let ms = provider.decode(&work, &mut Evidence::default()).unwrap();
        assert!((ms - 3.0).abs() < 1e-12, "{ms}");
    }

    #[test]
    fn the_mocker_curve_is_the_published_one() {
        let provider = Polynomial::new(PrefillPolynomial::MOCKER, DecodePolynomial::MOCKER, 10_000);
        let mut prefill = PrefillWork::default();
        prefill.add(1000, 0);
        // 4.209989e-07 * 1e6 + 1.518344e-02 * 1e3 + 16.50142 = 0.4209989 + 15.18344 + 16.50142.
        let ms = provider.prefill(&prefill, &mut Evidence::default()).unwrap();
        assert!((ms - 32.105_858_9).abs() < 1e-9, "{ms}");

        let mut decode = DecodeWork::default();
        decode.add(1, 5000);
        // p = 0.5: -25.74 * 0.25 + 54.01 * 0.5 + 5.74 = -6.435 + 27.005 + 5.74.
        let ms = provider.decode(&decode, &mut Evidence::default()).unwrap();
        assert!((ms - 26.31).abs() < 1e-9, "{ms}");
        decode.add(1, 95_000);
        // p stops at 1: -25.74 + 54.01 + 5.74.
        let ms = provider.decode(&decode, &mut Evidence::default()).unwrap();
        assert!((ms - 34.01).abs() < 1e-9, "{ms}");
    }
}
