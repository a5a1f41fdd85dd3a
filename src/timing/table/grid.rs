//! Measurements over three nested axes, and what lies between and beyond them.
//!
//! The innermost axis is a curve of prices over tokens. Curves are stacked by the next axis, and
//! stacks by the outermost. A lookup goes along the two curves next to the question and then
//! between them, so measured points are reproduced as they are, and nothing is ever interpolated
//! across a measured batch: a flat stair stays flat, and a step between adjacent batches a step.
//!
//! What is inside is itself interpolated: between a curve measured up to 100 tokens and one
//! measured up to 200, half way, tokens up to 150 are inside. There and outside, a curve that is
//! too short goes on with its own trend, which is that of its last two points: a fixed cost and a
//! cost per token, neither of them negative. A curve of one point stays where it is.

/// How many axes a question has.
pub(super) const AXES: usize = 3;

/// What is asked, outermost axis first.
pub(super) type Query = [f64; AXES];

/// Something that has a price at every place.
pub(super) trait Surface {
    /// Its place among the axes.
    const AXIS: usize;

    /// The price at a place, and where the measurements end there.
    fn sample(&self, at: &Query) -> Sample;

    /// The least and the greatest measured value of its axis.
    fn ends(&self) -> (f64, f64);
}

/// The price at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Sample {
    /// In ms.
    pub(super) ms: f64,
    /// The price at the lowest measured place of the innermost axis, with the same weights, in ms.
    pub(super) floor_ms: f64,
    /// Whether the innermost axis was measured here.
    pub(super) on_curve_point: bool,
    /// Whether all outer axes were.
    pub(super) on_curve: bool,
    /// Where the measurements begin and end, along each axis.
    pub(super) ends: [(f64, f64); AXES],
}

/// Prices over the innermost axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Curve {
    /// Ascending, at least one.
    at: Vec<f64>,
    /// One for each.
    ms: Vec<f64>,
}

/// Curves, or stacks of them, over an outer axis.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stack<T> {
    /// Ascending, at least one.
    at: Vec<f64>,
    /// One for each.
    of: Vec<T>,
}

/// Measurements over all three axes.
pub(super) type Grid = Stack<Stack<Curve>>;

impl Grid {
    /// The grid of measured points, which are ascending and different; `None` of none.
    pub(super) fn new(points: &[(Query, f64)]) -> Option<Self> {
        let mut grid = Self::default();
        for &([outer, middle, inner], ms) in points {
            let curve = grid.top(outer).top(middle);
            curve.at.push(inner);
            curve.ms.push(ms);
        }
        (!points.is_empty()).then_some(grid)
    }

    /// The least value of an axis over all of the grid, and the greatest.
    pub(super) fn extent(&self, axis: usize) -> (f64, f64) {
        let join = |(a, b): (f64, f64), (c, d): (f64, f64)| (a.min(c), b.max(d));
        let none = (f64::INFINITY, f64::NEG_INFINITY);
        match axis {
            0 => self.ends(),
            1 => self.of.iter().map(Surface::ends).fold(none, join),
            _ => self.of.iter().flat_map(|stack| &stack.of).map(Surface::ends).fold(none, join),
        }
    }
}

impl<T: Default> Stack<T> {
    /// The element at `place`, which is the last or comes after it.
    fn top(&mut self, place: f64) -> &mut T {
        if self.at.last().is_none_or(|&last| last < place) {
            self.at.push(place);
            self.of.push(T::default());
        }
        self.of.last_mut().expect("one was just pushed")
    }
}

/// The first of the two neighbours of `place` in `at`, and whether it is that very place. Of a
/// place beyond an end, the first of the two at that end.
#[inline]
fn bracket(at: &[f64], place: f64) -> (usize, bool) {
    let next = at.partition_point(|&a| a <= place);
    let first = next.saturating_sub(1);
    #[expect(clippy::float_cmp, reason = "measured means: just there")]
    let measured = at[first] == place;
    if measured { (first, true) } else { (first.min(at.len().saturating_sub(2)), false) }
}

/// The price at `x`, from the prices `a` at `x0` and `b` at `x1`: between them a straight line,
/// beyond them its continuation, with no negative cost per unit nor, below, at zero.
#[inline]
fn line(x0: f64, a: f64, x1: f64, b: f64, x: f64) -> f64 {
    let slope = (b - a) / (x1 - x0);
    if x > x1 {
        b + slope.max(0.0) * (x - x1)
    } else if x < x0 {
        // As x is not negative, x0 is above 0.
        (a - slope.min(a / x0).max(0.0) * (x0 - x)).max(0.0)
    } else {
        a + (b - a) * ((x - x0) / (x1 - x0))
    }
}

impl Surface for Curve {
    const AXIS: usize = AXES - 1;

    #[inline]
    fn sample(&self, at: &Query) -> Sample {
        let x = at[Self::AXIS];
        let (first, measured) = bracket(&self.at, x);
        let ms = if measured || self.at.len() == 1 {
            self.ms[first]
        } else {
            let next = first + 1;
            line(self.at[first], self.ms[first], self.at[next], self.ms[next], x)
        };
        let mut ends = [(0.0, 0.0); AXES];
        ends[Self::AXIS] = self.ends();
        Sample { ms, floor_ms: self.ms[0], on_curve_point: measured, on_curve: true, ends }
    }

    fn ends(&self) -> (f64, f64) {
        (self.at[0], self.at[self.at.len() - 1])
    }
}

impl<T: Surface> Surface for Stack<T> {
    const AXIS: usize = T::AXIS - 1;

    #[inline]
    fn sample(&self, at: &Query) -> Sample {
        let x = at[Self::AXIS];
        let (first, measured) = bracket(&self.at, x);
        let mut sample = self.of[first].sample(at);
        if !measured {
            sample.on_curve = false;
            if self.at.len() > 1 {
                let other = self.of[first + 1].sample(at);
                let (x0, x1) = (self.at[first], self.at[first + 1]);
                sample.ms = line(x0, sample.ms, x1, other.ms, x);
                sample.floor_ms = line(x0, sample.floor_ms, x1, other.floor_ms, x);
                sample.on_curve_point &= other.on_curve_point;
                let weight = ((x - x0) / (x1 - x0)).clamp(0.0, 1.0);
                for (ours, theirs) in sample.ends.iter_mut().zip(other.ends).skip(T::AXIS) {
                    ours.0 += (theirs.0 - ours.0) * weight;
                    ours.1 += (theirs.1 - ours.1) * weight;
                }
            }
        }
        sample.ends[Self::AXIS] = self.ends();
        sample
    }

    fn ends(&self) -> (f64, f64) {
        (self.at[0], self.at[self.at.len() - 1])
    }
}

impl Sample {
    /// Whether it was measured just here.
    pub(super) fn is_exact(&self) -> bool {
        self.on_curve && self.on_curve_point
    }

    /// How far outside of the measurements a place is along an axis, as a factor of the nearest end;
    /// 1 inside. Counts below 1 are taken as 1.
    pub(super) fn stretch(&self, at: &Query, axis: usize) -> f64 {
        // The ends are interpolated: a place on them may miss them by a rounding.
        const ROUNDING: f64 = 1e-12;
        let (place, (low, high)) = (at[axis], self.ends[axis]);
        if place > high * (1.0 + ROUNDING) {
            place.max(1.0) / high.max(1.0)
        } else if place < low * (1.0 - ROUNDING) {
            low.max(1.0) / place.max(1.0)
        } else {
            return 1.0;
        }
        // From 0 to 1 is outside too.
        .max(1.0 + f64::EPSILON)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ms(grid: &Grid, at: Query) -> f64 {
        grid.sample(&at).ms
    }

    /// Batches 1, 2, 4 with a flat stair from 2 to 4, at one KV; then a jump to 5.
    #[test]
    fn stairs_stay_as_they_were_measured() {
        let points = [(1.0, 5.0), (2.0, 8.0), (4.0, 8.0), (5.0, 12.0), (8.0, 12.0)];
        let points: Vec<_> = points.iter().map(|&(batch, ms)| ([1.0, batch, 100.0], ms)).collect();
        let grid = Grid::new(&points).unwrap();
        let at = |batch| grid.sample(&[1.0, batch, 100.0]);
        for &([_, batch, _], ms) in &points {
            assert_eq!((at(batch).ms.to_bits(), at(batch).is_exact()), (ms.to_bits(), true));
        }
        assert_eq!((at(3.0).ms.to_bits(), at(3.0).is_exact()), (8.0_f64.to_bits(), false));
        assert_eq!(at(6.0).ms.to_bits(), 12.0_f64.to_bits());
    }

    #[test]
    fn trends_go_on_beyond_the_ends() {
        // From 10 to 20 tokens 6 to 8 ms: 4 ms and 0.2 ms a token.
        let rising = Grid::new(&[([1.0, 1.0, 10.0], 6.0), ([1.0, 1.0, 20.0], 8.0)]).unwrap();
        assert!((ms(&rising, [1.0, 1.0, 40.0]) - 12.0).abs() < 1e-12);
        assert!((ms(&rising, [1.0, 1.0, 0.0]) - 4.0).abs() < 1e-12);
        // From 1 to 4 ms in 10 tokens: below 10 tokens in proportion, as nothing is free at zero.
        let steep = Grid::new(&[([1.0, 1.0, 10.0], 1.0), ([1.0, 1.0, 20.0], 4.0)]).unwrap();
        assert!((ms(&steep, [1.0, 1.0, 5.0]) - 0.5).abs() < 1e-12);
        // A fall does not go on.
        let falling = Grid::new(&[([1.0, 1.0, 10.0], 4.0), ([1.0, 1.0, 20.0], 3.0)]).unwrap();
        assert!((ms(&falling, [1.0, 1.0, 90.0]) - 3.0).abs() < 1e-12);
        assert!((ms(&falling, [1.0, 1.0, 1.0]) - 4.0).abs() < 1e-12);
        let single = Grid::new(&[([1.0, 1.0, 10.0], 4.0)]).unwrap();
        assert!((ms(&single, [7.0, 9.0, 90.0]) - 4.0).abs() < 1e-12);
    }

    #[test]
    fn the_ends_lie_between_those_of_the_curves() {
        let points = [
            ([1.0, 1.0, 10.0], 1.0),
            ([1.0, 1.0, 100.0], 2.0),
            ([1.0, 3.0, 30.0], 1.0),
            ([1.0, 3.0, 300.0], 2.0),
        ];
        let grid = Grid::new(&points).unwrap();
        let sample = grid.sample(&[1.0, 2.0, 200.0]);
        assert_eq!(sample.ends, [(1.0, 1.0), (1.0, 3.0), (20.0, 200.0)]);
        assert_eq!(sample.stretch(&[1.0, 2.0, 200.0], 2).to_bits(), 1.0_f64.to_bits());
        assert_eq!(sample.stretch(&[1.0, 2.0, 400.0], 2).to_bits(), 2.0_f64.to_bits());
        assert_eq!(sample.stretch(&[1.0, 2.0, 10.0], 2).to_bits(), 2.0_f64.to_bits());
        assert_eq!((grid.extent(1), grid.extent(2)), ((1.0, 3.0), (10.0, 300.0)));
    }

    fn axis() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::btree_set(0_u32..500, 2..6)
            .prop_map(|set| set.into_iter().map(f64::from).collect())
    }

    proptest! {
        /// Interpolation along each of three axes reproduces what is linear along each of them.
        #[test]
        fn a_multilinear_price_is_reproduced(
            (outer, middle, inner) in (axis(), axis(), axis()),
            at in [0.0..1.0_f64, 0.0..1.0, 0.0..1.0],
            c in prop::collection::vec(0.0..2.0_f64, 8),
        ) {
            let price = |[x, y, z]: Query| {
                c[0] + c[1] * x + c[2] * y + c[3] * z + 0.01 * (c[4] * x * y + c[5] * y * z + c[6] * x * z)
                    + 1e-4 * c[7] * x * y * z
            };
            let mut points = Vec::new();
            for &x in &outer {
                for &y in &middle {
                    points.extend(inner.iter().map(|&z| ([x, y, z], price([x, y, z]))));
                }
            }
            let grid = Grid::new(&points).unwrap();
            let place = |axis: &[f64], share: f64| {
                let (low, high) = (axis[0], axis[axis.len() - 1]);
                low + (high - low) * share
            };
            let at = [place(&outer, at[0]), place(&middle, at[1]), place(&inner, at[2])];
            let found = grid.sample(&at);
            prop_assert!((found.ms - price(at)).abs() <= 1e-9 * price(at).max(1.0));
            for axis in 0..AXES {
                prop_assert!(found.stretch(&at, axis) <= 1.0);
            }
            for &(at, ms) in &points {
                let found = grid.sample(&at);
                prop_assert!(found.is_exact());
                prop_assert_eq!(found.ms.to_bits(), ms.to_bits());
            }
        }

        /// Wherever it is asked, a price is a finite number that is not negative.
        #[test]
        fn prices_are_never_negative(
            points in prop::collection::btree_map([0_u32..9, 0..9, 0..9], 0.0..100.0_f64, 1..20),
            at in [0.0..30.0_f64, 0.0..30.0, 0.0..30.0],
        ) {
            let points: Vec<_> =
                points.into_iter().map(|(at, ms)| (at.map(f64::from), ms)).collect();
            let ms = Grid::new(&points).unwrap().sample(&at).ms;
            prop_assert!(ms.is_finite() && ms >= 0.0, "{ms}");
        }
    }
}
