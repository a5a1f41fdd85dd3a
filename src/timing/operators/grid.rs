//! Measurements on a grid, and what lies between and beyond them.
//!
//! A [`Grid`] has every crossing of its axes. Between neighbours it is linear along each axis
//! (multilinear); beyond the ends the outermost two go on, or the last one stays. Crossings
//! nobody measured are filled when the grid is made, so that a look-up is one binary search an axis.

use std::path::Path;

use super::super::error::ProfileError;
use super::super::evidence::Origin;
use super::config::Outside;

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Point<const N: usize> {
    /// Where it was made, one coordinate an axis.
    pub(super) at: [f64; N],
    /// What it took.
    pub(super) ms: f64,
    /// The line of its file, from 1.
    pub(super) line: u64,
}

/// What a crossing rests on; later is weaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rest {
    /// Nothing yet. No crossing of a grid that was made.
    Nothing,
    Measured,
    /// Measured crossings on both sides.
    Between,
    /// Measured crossings on one side.
    Beyond,
}

/// An answer of a grid.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Found {
    /// The time.
    pub(super) ms: f64,
    /// How it was found.
    pub(super) origin: Origin,
    /// How far outside, as a factor of the nearest edge; 1 inside.
    pub(super) stretch: f64,
}

impl Found {
    /// Whether it lies outside of the measurements.
    pub(super) fn is_outside(&self) -> bool {
        matches!(self.origin, Origin::Clamped | Origin::Extrapolated)
    }
}

/// Times over `N` coordinates.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid<const N: usize> {
    /// Ascending, none empty.
    axes: [Vec<f64>; N],
    /// ms by crossing, the last axis running fastest.
    values: Vec<f64>,
    rests: Vec<Rest>,
    outside: Outside,
}

/// The place of a coordinate on an axis.
#[derive(Clone, Copy)]
struct Place {
    /// The neighbour below it.
    low: usize,
    /// Its share of the neighbour above; outside of 0 to 1 beyond the ends.
    weight: f64,
    stretch: f64,
}

/// Crossings of the largest grid.
const CROSSINGS_MAX: usize = 1 << 20;

impl<const N: usize> Grid<N> {
    /// The grid through `points` of the file at `path`.
    ///
    /// A crossing that was not measured is filled from measured or filled neighbours: by the line between two of
    /// them, along the last axis that has them; where no axis has neighbours on both sides, by the trend of
    /// the nearest two on one side; where there are no two, by the nearest one.
    ///
    /// # Errors
    /// No point, two at one place, or so few of so many places that the grid would be mostly holes.
    pub(super) fn new(
        path: &Path,
        mut points: Vec<Point<N>>,
        outside: Outside,
    ) -> Result<Self, ProfileError> {
        if points.is_empty() {
            return Err(ProfileError::file(path, "holds no measurement of the kind needed"));
        }
        points.sort_by(|a, b| compare(&a.at, &b.at).then(a.line.cmp(&b.line)));
        if let Some([first, second]) =
            points.windows(2).find(|pair| compare(&pair[0].at, &pair[1].at).is_eq())
        {
            let what = format!(
                "the same place as line {} ({}), expected each place once",
                first.line,
                first.at.map(|x| x.to_string()).join(", ")
            );
            return Err(ProfileError::row(path, second.line, what));
        }
        let axes: [Vec<f64>; N] = std::array::from_fn(|axis| {
            let mut places: Vec<f64> = points.iter().map(|point| point.at[axis]).collect();
            places.sort_by(f64::total_cmp);
            places.dedup_by(|a, b| a.total_cmp(b).is_eq());
            places
        });
        let crossings = axes.iter().try_fold(1_usize, |all, axis| all.checked_mul(axis.len()));
        let Some(crossings) = crossings.filter(|&crossings| crossings <= CROSSINGS_MAX) else {
            let sizes = axes.each_ref().map(|axis| axis.len().to_string()).join(" * ");
            let what = format!(
                "{} measurements are spread over {sizes} crossings, expected at most {CROSSINGS_MAX}",
                points.len()
            );
            return Err(ProfileError::file(path, what));
        };
        let mut grid = Self {
            axes,
            values: vec![0.0; crossings],
            rests: vec![Rest::Nothing; crossings],
            outside,
        };
        for point in points {
            let mut index = 0;
            for (axis, x) in grid.axes.iter().zip(point.at) {
                index = index * axis.len() + axis.partition_point(|&place| place < x);
            }
            grid.values[index] = point.ms;
            grid.rests[index] = Rest::Measured;
        }
        grid.fill();
        Ok(grid)
    }

    /// Gives every crossing a value.
    fn fill(&mut self) {
        while self.rests.contains(&Rest::Nothing) {
            let sweep = |grid: &mut Self, how: Fill| (0..N).rev().any(|axis| grid.sweep(axis, how));
            let _ = sweep(self, Fill::Between)
                || sweep(self, Fill::Trend)
                || sweep(self, Fill::Nearest);
        }
    }

    /// Fills the holes of every line along `axis`; whether there were any that could be.
    fn sweep(&mut self, axis: usize, how: Fill) -> bool {
        let length = self.axes[axis].len();
        let step: usize = self.axes[axis + 1..].iter().map(Vec::len).product();
        let mut filled = false;
        let mut known: Vec<usize> = Vec::with_capacity(length);
        for start in (0..self.values.len()).filter(|index| (index / step).is_multiple_of(length)) {
            let at = |place: usize| start + place * step;
            known.clear();
            known.extend((0..length).filter(|&place| self.rests[at(place)] != Rest::Nothing));
            if known.is_empty() || known.len() == length {
                continue;
            }
            for place in (0..length).filter(|place| known.binary_search(place).is_err()) {
                let above = known.partition_point(|&other| other < place);
                let is_between = (1..known.len()).contains(&above);
                let (low, high, rest) = match how {
                    Fill::Between if is_between => (known[above - 1], known[above], Rest::Between),
                    Fill::Trend if !is_between && known.len() > 1 => {
                        let high = above.clamp(1, known.len() - 1);
                        (known[high - 1], known[high], Rest::Beyond)
                    }
                    Fill::Nearest => {
                        let nearest = known[above.min(known.len() - 1)];
                        (nearest, nearest, Rest::Beyond)
                    }
                    Fill::Between | Fill::Trend => continue,
                };
                let (a, b) = (self.axes[axis][low], self.axes[axis][high]);
                let weight = if low == high || (self.outside == Outside::Clamp && !is_between) {
                    f64::from(u8::from(place > high))
                } else {
                    (self.axes[axis][place] - a) / (b - a)
                };
                let (low, high) = (at(low), at(high));
                let value = self.values[low] + weight * (self.values[high] - self.values[low]);
                // Not `max`, which would take a NaN for nothing.
                self.values[at(place)] = if value < 0.0 { 0.0 } else { value };
                self.rests[at(place)] = rest.max(self.rests[low]).max(self.rests[high]);
                filled = true;
            }
        }
        filled
    }

    /// The time at `x`.
    #[inline]
    pub(super) fn at(&self, x: [f64; N]) -> Found {
        let places: [Place; N] = std::array::from_fn(|axis| self.place(axis, x[axis]));
        let mut found = Found { ms: 0.0, origin: Origin::Exact, stretch: 1.0 };
        let mut rest = Rest::Measured;
        for place in places {
            if place.weight != 0.0 && (place.weight - 1.0).abs() > 0.0 {
                rest = rest.max(Rest::Between);
            }
            found.stretch = found.stretch.max(place.stretch);
        }
        for corner in 0..1_usize << N {
            let (mut weight, mut index) = (1.0, 0);
            for (axis, place) in places.iter().enumerate() {
                let is_high = (corner >> axis) & 1;
                weight *= if is_high == 1 { place.weight } else { 1.0 - place.weight };
                index = index * self.axes[axis].len() + place.low + is_high;
            }
            if weight != 0.0 {
                found.ms += weight * self.values[index];
                rest = rest.max(self.rests[index]);
            }
        }
        // Not `max`, which would take a NaN for nothing.
        if found.ms < 0.0 {
            found.ms = 0.0;
        }
        if rest == Rest::Beyond || found.stretch > 1.0 {
            found.origin = match self.outside {
                Outside::Clamp => Origin::Clamped,
                Outside::Extrapolate | Outside::Refuse => Origin::Extrapolated,
            };
        } else if rest == Rest::Between {
            found.origin = Origin::Interpolated;
        }
        found
    }

    fn place(&self, axis: usize, x: f64) -> Place {
        let places = &self.axes[axis];
        let last = places.len() - 1;
        // A factor needs an edge above 0; below 1 nothing is far.
        let stretch = if x > places[last] {
            x.max(1.0) / places[last].max(1.0)
        } else if x < places[0] {
            places[0].max(1.0) / x.max(1.0)
        } else {
            1.0
        };
        let is_outside = x > places[last] || x < places[0];
        let stretch = if is_outside { stretch.max(1.0 + f64::EPSILON) } else { stretch };
        if last == 0 {
            return Place { low: 0, weight: 0.0, stretch };
        }
        let low = places.partition_point(|&place| place <= x).clamp(1, last) - 1;
        let weight = (x - places[low]) / (places[low + 1] - places[low]);
        let weight = match self.outside {
            Outside::Clamp => weight.clamp(0.0, 1.0),
            Outside::Extrapolate | Outside::Refuse => weight,
        };
        Place { low, weight, stretch }
    }

    /// Every time multiplied by `factor`.
    #[must_use]
    pub(super) fn times(mut self, factor: f64) -> Self {
        self.values.iter_mut().for_each(|ms| *ms *= factor);
        self
    }

    /// The same grid, none of whose answers counts as measured: its times were derived.
    #[must_use]
    pub(super) fn derived(self) -> Self {
        self.derived_where(|_| true)
    }

    /// The same grid, where the times of some places were derived.
    #[must_use]
    pub(super) fn derived_where(mut self, was_derived: impl Fn([f64; N]) -> bool) -> Self {
        for (index, rest) in self.rests.iter_mut().enumerate() {
            let mut left = index;
            let mut at = [0.0; N];
            for (axis, x) in self.axes.iter().zip(&mut at).rev() {
                *x = axis[left % axis.len()];
                left /= axis.len();
            }
            if was_derived(at) {
                *rest = (*rest).max(Rest::Between);
            }
        }
        self
    }
}

/// How holes are filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    Between,
    Trend,
    Nearest,
}

fn compare<const N: usize>(a: &[f64; N], b: &[f64; N]) -> std::cmp::Ordering {
    let orders = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
    orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
}

/// Times over one coordinate.
pub(super) type Curve = Grid<1>;

impl Curve {
    /// The sum of `curves`, each as often as it is run, on the union of their places: as all of them are linear
    /// between their places, so is it. Measured where all were, outside where one is.
    /// `None` without curves.
    pub(super) fn sum(curves: &[(Self, f64)]) -> Option<Self> {
        let outside = curves.first()?.0.outside;
        let mut places: Vec<f64> =
            curves.iter().flat_map(|(curve, _)| curve.axes[0].iter().copied()).collect();
        places.sort_by(f64::total_cmp);
        places.dedup_by(|a, b| a.total_cmp(b).is_eq());
        let (mut values, mut rests) = (Vec::new(), Vec::new());
        for &x in &places {
            let (mut ms, mut rest) = (0.0, Rest::Measured);
            for (curve, count) in curves {
                let found = curve.at([x]);
                ms += count * found.ms;
                rest = rest.max(match found.origin {
                    Origin::Exact => Rest::Measured,
                    Origin::Interpolated | Origin::Analytic => Rest::Between,
                    Origin::Clamped | Origin::Extrapolated => Rest::Beyond,
                });
            }
            values.push(ms);
            rests.push(rest);
        }
        Some(Self { axes: [places], values, rests, outside })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid<const N: usize>(rows: &[([f64; N], f64)], outside: Outside) -> Grid<N> {
        let points = rows.iter().zip(2..).map(|(&(at, ms), line)| Point { at, ms, line }).collect();
        Grid::new(Path::new("some.csv"), points, outside).unwrap()
    }

    #[track_caller]
    fn assert_found(found: Found, ms: f64, origin: Origin) {
        assert!((found.ms - ms).abs() < 1e-12 && found.origin == origin, "{found:?}");
    }

    #[test]
    fn measured_places_are_exact_and_bilinear_times_are_met_between() {
        // 3 + 2x + 5y + 7xy, on an uneven grid.
        let time = |x: f64, y: f64| 3.0 + 2.0 * x + 5.0 * y + 7.0 * x * y;
        let rows: Vec<_> = [0.0, 1.0, 4.0]
            .into_iter()
            .flat_map(|x| [2.0, 3.0, 10.0].map(|y| ([x, y], time(x, y))))
            .collect();
        let grid = grid(&rows, Outside::Extrapolate);
        for (at, ms) in rows {
            assert_found(grid.at(at), ms, Origin::Exact);
        }
        for (x, y) in [(0.5, 2.5), (3.0, 9.0), (1.0, 7.0), (4.0, 2.25)] {
            assert_found(grid.at([x, y]), time(x, y), Origin::Interpolated);
        }
        let far = grid.at([8.0, 20.0]);
        assert_found(far, time(8.0, 20.0), Origin::Extrapolated);
        // Both axes at twice their end.
        assert!((far.stretch - 2.0).abs() < 1e-12, "{far:?}");
        // Below the first place the first two go on.
        assert_found(grid.at([0.0, 1.0]), time(0.0, 1.0), Origin::Extrapolated);
    }

    #[test]
    fn beyond_the_ends_a_curve_goes_on_or_stays_and_never_falls_below_nothing() {
        let rows = [([10.0], 5.0), ([20.0], 6.0), ([40.0], 2.0)];
        let on = grid(&rows, Outside::Extrapolate);
        // (2 - 6) / 20 = -0.2 ms for each further one.
        assert_found(on.at([45.0]), 1.0, Origin::Extrapolated);
        assert_found(on.at([100.0]), 0.0, Origin::Extrapolated);
        let stays = grid(&rows, Outside::Clamp);
        assert_found(stays.at([45.0]), 2.0, Origin::Clamped);
        assert_found(stays.at([0.0]), 5.0, Origin::Clamped);
        let single = grid(&[([3.0], 4.0)], Outside::Extrapolate);
        assert_found(single.at([3.0]), 4.0, Origin::Exact);
        assert_found(single.at([4.0]), 4.0, Origin::Extrapolated);
    }

    #[test]
    fn holes_are_filled_from_their_neighbours_and_say_so() {
        // x + 10y; (2, 1) lies between neighbours along x, (3, 2) ends its lines.
        let time = |[x, y]: [f64; 2]| x + 10.0 * y;
        let places = [[1.0, 1.0], [3.0, 1.0], [1.0, 2.0], [2.0, 2.0]];
        let grid = grid(&places.map(|at| (at, time(at))), Outside::Extrapolate);
        assert_found(grid.at([2.0, 1.0]), 12.0, Origin::Interpolated);
        // The line y = 2 goes on from 21 and 22.
        assert_found(grid.at([3.0, 2.0]), 23.0, Origin::Extrapolated);
        assert_found(grid.at([2.5, 1.5]), 17.5, Origin::Extrapolated);
        assert_found(grid.at([1.5, 1.5]), 16.5, Origin::Interpolated);
    }

    #[test]
    fn a_sum_is_exact_where_all_were_measured() {
        let long = grid(&[([1.0], 1.0), ([100.0], 100.0)], Outside::Extrapolate);
        let short = grid(&[([1.0], 5.0), ([11.0], 15.0)], Outside::Extrapolate);
        let sum = Curve::sum(&[(long, 1.0), (short, 32.0)]).unwrap();
        // x + 32 * (x + 4) everywhere.
        assert_found(sum.at([1.0]), 161.0, Origin::Exact);
        assert_found(sum.at([11.0]), 491.0, Origin::Interpolated);
        assert_found(sum.at([6.0]), 326.0, Origin::Interpolated);
        assert_found(sum.at([50.0]), 1778.0, Origin::Extrapolated);
        assert_eq!(Curve::sum(&[]), None);
    }

    #[test]
    fn two_measurements_of_one_place_name_both_lines() {
        let rows = [([1.0], 1.0), ([2.0], 1.0), ([1.0], 1.5)];
        let points = rows.into_iter().zip(2..).map(|((at, ms), line)| Point { at, ms, line });
        let error = Grid::new(Path::new("some.csv"), points.collect(), Outside::Clamp).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("some.csv:4: the same place as line 2 (1)"), "{error}");
        let none = Grid::<1>::new(Path::new("some.csv"), Vec::new(), Outside::Clamp).unwrap_err();
        assert!(none.to_string().contains("holds no measurement"), "{none}");
    }
}
