//! What a mixed pass costs above its parts.

/// `constant_ms + decode_request_ms * B + prefill_token_ms * T` over the decoding requests B and the
/// new tokens T of a mixed pass. No coefficient is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Overhead {
    pub(super) constant_ms: f64,
    pub(super) decode_request_ms: f64,
    pub(super) prefill_token_ms: f64,
}

/// What a measured mixed pass took above its parts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Residual {
    pub(super) decode_requests: f64,
    pub(super) prefill_tokens: f64,
    pub(super) ms: f64,
}

const TERMS: usize = 3;

impl Overhead {
    pub(super) fn ms(&self, decode_requests: f64, prefill_tokens: f64) -> f64 {
        self.constant_ms
            + self.decode_request_ms * decode_requests
            + self.prefill_token_ms * prefill_tokens
    }

    /// The overhead with the least sum of squared errors, among those without negative coefficients.
    ///
    /// With three coefficients, the best of them is the best of eight: for each set of coefficients
    /// that are not 0, the unconstrained least squares, where those are not negative (Lawson and
    /// Hanson, Solving Least Squares Problems, chapter 23). Of equally good ones, the one with fewer
    /// coefficients.
    pub(super) fn fit(residuals: &[Residual]) -> Self {
        let rows: Vec<([f64; TERMS], f64)> =
            residuals.iter().map(|r| ([1.0, r.decode_requests, r.prefill_tokens], r.ms)).collect();
        // Terms are scaled to 1, so that singular is singular in any unit.
        let mut scale = [0.0_f64; TERMS];
        for (terms, _) in &rows {
            for (scale, term) in scale.iter_mut().zip(terms) {
                *scale = scale.max(*term);
            }
        }
        let scale = scale.map(|s| if s > 0.0 { s } else { 1.0 });
        let squares = |coefficients: &[f64; TERMS]| -> f64 {
            rows.iter()
                .map(|(terms, ms)| {
                    let fitted: f64 =
                        (0..TERMS).map(|t| coefficients[t] * terms[t] / scale[t]).sum();
                    (fitted - ms) * (fitted - ms)
                })
                .sum()
        };
        let mut best = [0.0; TERMS];
        let mut least = squares(&best);
        let total = least;
        for set in [0b001, 0b010, 0b100, 0b011, 0b101, 0b110, 0b111_u32] {
            let terms: Vec<usize> = (0..TERMS).filter(|term| set & 1 << term != 0).collect();
            let Some(solved) = least_squares(&rows, &scale, &terms) else { continue };
            if solved.iter().any(|&c| c < 0.0) {
                continue;
            }
            let sum = squares(&solved);
            // Fewer coefficients come first and stay unless more of them fit better.
            if sum < least - 1e-12 * total {
                (best, least) = (solved, sum);
            }
        }
        let [constant_ms, decode_request_ms, prefill_token_ms] =
            [0, 1, 2].map(|term| best[term] / scale[term]);
        Self { constant_ms, decode_request_ms, prefill_token_ms }
    }
}

/// Coefficients of some of the scaled terms, by the normal equations; `None` if the passes do not
/// tell these terms apart.
fn least_squares(
    rows: &[([f64; TERMS], f64)],
    scale: &[f64; TERMS],
    terms: &[usize],
) -> Option<[f64; TERMS]> {
    let size = terms.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for (values, ms) in rows {
        for (row, &a) in terms.iter().enumerate() {
            let value = values[a] / scale[a];
            for (column, &b) in terms.iter().enumerate() {
                matrix[row][column] += value * values[b] / scale[b];
            }
            matrix[row][size] += value * ms;
        }
    }
    for pivot in 0..size {
        let best = (pivot..size)
            .max_by(|&a, &b| matrix[a][pivot].abs().total_cmp(&matrix[b][pivot].abs()))?;
        matrix.swap(pivot, best);
        if matrix[pivot][pivot].abs() < 1e-9 * rows.len() as f64 {
            return None;
        }
        for row in 0..size {
            if row != pivot {
                let factor = matrix[row][pivot] / matrix[pivot][pivot];
                let pivot_row = matrix[pivot].clone();
                for (cell, above) in matrix[row].iter_mut().zip(pivot_row).skip(pivot) {
                    *cell -= factor * above;
                }
            }
        }
    }
    let mut coefficients = [0.0; TERMS];
    for (row, &term) in terms.iter().enumerate() {
        coefficients[term] = matrix[row][size] / matrix[row][row];
    }
    Some(coefficients)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn residual(decode_requests: f64, prefill_tokens: f64, ms: f64) -> Residual {
        Residual { decode_requests, prefill_tokens, ms }
    }

    fn assert_near(found: Overhead, expected: [f64; 3]) {
        let found = [found.constant_ms, found.decode_request_ms, found.prefill_token_ms];
        for (found, expected) in found.into_iter().zip(expected) {
            assert!((found - expected).abs() < 1e-9, "{found} is not {expected}");
        }
    }

    #[test]
    fn a_plane_is_found_again() {
        let rows: Vec<_> = [(1.0, 64.0), (8.0, 64.0), (1.0, 4096.0), (8.0, 512.0), (3.0, 100.0)]
            .iter()
            .map(|&(b, t)| residual(b, t, 0.5 + 0.25 * b + 0.001 * t))
            .collect();
        assert_near(Overhead::fit(&rows), [0.5, 0.25, 0.001]);
    }

    #[test]
    fn one_pass_gives_a_constant_and_none_nothing() {
        assert_near(Overhead::fit(&[residual(4.0, 100.0, 0.75)]), [0.75, 0.0, 0.0]);
        assert_eq!(Overhead::fit(&[]), Overhead::default());
    }

    #[test]
    fn coefficients_are_never_negative() {
        // Cheaper than its parts: nothing to add.
        assert_eq!(Overhead::fit(&[residual(4.0, 100.0, -1.0)]), Overhead::default());
        // 2 ms at one request and 1 ms at three: the best line falls; the best flat one is at 1.5.
        let falling = [residual(1.0, 50.0, 2.0), residual(3.0, 50.0, 1.0)];
        assert_near(Overhead::fit(&falling), [1.5, 0.0, 0.0]);
    }
}
