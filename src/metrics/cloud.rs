//! Many points as few, for a picture: the plane is cut into cells, and each keeps its highest point.
//!
//! What is kept follows from the points alone, never from the order in which they came. The
//! extremes of each group stay in any case.

use std::collections::BTreeMap;

/// Cells held while points come in; above it they become larger.
const CELLS_MAX: usize = 8192;

/// Steps an octave is cut into at first, as a power of two.
const OCTAVE_BITS: u32 = 5;

/// How far apart two values of an axis have to be to lie in different cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Steps {
    /// So many, in the unit of the axis; at least 1.
    Even(u64),
    /// A part of themselves.
    Octaves,
}

/// A point of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Point {
    pub(crate) group: u16,
    pub(crate) x: u64,
    pub(crate) y: u64,
}

/// Points, as many as a picture can show.
#[derive(Clone, Debug)]
pub(crate) struct Cloud {
    /// Steps of x; those of y are parts of an octave.
    x: Steps,
    /// How often the cells became larger.
    level: u32,
    /// The highest point of each, by group, x and y.
    cells: BTreeMap<(u16, u64, u64), Point>,
    /// By group: the points that are furthest out.
    extremes: BTreeMap<u16, [Point; 4]>,
}

impl Cloud {
    /// No points yet.
    pub(crate) fn new(x: Steps) -> Self {
        Self { x, level: 0, cells: BTreeMap::new(), extremes: BTreeMap::new() }
    }

    /// One more point.
    pub(crate) fn add(&mut self, point: Point) {
        let [left, right, low, high] = self.extremes.entry(point.group).or_insert([point; 4]);
        *left = (*left).min(point);
        *right = (*right).max(point);
        if (point.y, point.x) < (low.y, low.x) {
            *low = point;
        }
        if (point.y, point.x) > (high.y, high.x) {
            *high = point;
        }
        self.keep(point);
        while self.cells.len() > CELLS_MAX && self.level < 63 {
            self.enlarge();
        }
    }

    /// At most so many points and four a group, in order of x.
    pub(crate) fn into_points(mut self, points_max: usize) -> Vec<Point> {
        while self.cells.len() > points_max.max(1) && self.level < 63 {
            self.enlarge();
        }
        let extremes = self.extremes.into_values().flatten();
        let mut points: Vec<_> = self.cells.into_values().chain(extremes).collect();
        points.sort_unstable_by_key(|point| (point.x, point.y, point.group));
        points.dedup();
        points
    }

    fn keep(&mut self, point: Point) {
        let x = match self.x {
            Steps::Even(step) => (point.x / step) >> self.level,
            Steps::Octaves => octave_step(point.x, self.level),
        };
        let cell = (point.group, x, octave_step(point.y, self.level));
        let kept = self.cells.entry(cell).or_insert(point);
        if (point.y, point.x) > (kept.y, kept.x) {
            *kept = point;
        }
    }

    /// Makes cells larger: each of the new ones consists of whole old ones.
    fn enlarge(&mut self) {
        self.level += 1;
        let points = std::mem::take(&mut self.cells);
        points.into_values().for_each(|point| self.keep(point));
    }
}

/// The number of the step in which `value` lies: an octave has `2^bits` of them, fewer at each level.
fn octave_step(value: u64, level: u32) -> u64 {
    let bits = OCTAVE_BITS.saturating_sub(level);
    // Past that octaves are merged.
    let merged = level.saturating_sub(OCTAVE_BITS).min(63);
    let octave = u64::from(value.checked_ilog2().unwrap_or(0));
    let within = if octave >= u64::from(bits) {
        (value >> (octave - u64::from(bits))) & ((1 << bits) - 1)
    } else {
        (value << (u64::from(bits) - octave)) & ((1 << bits) - 1)
    };
    ((octave << bits) + within) >> merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(group: u16, x: u64, y: u64) -> Point {
        Point { group, x, y }
    }

    #[test]
    fn few_points_are_all_there() {
        let points = [point(0, 1, 500), point(1, 1, 500), point(0, 4, 9), point(0, 700, 0)];
        let mut cloud = Cloud::new(Steps::Octaves);
        points.iter().rev().for_each(|&point| cloud.add(point));
        let kept = cloud.into_points(4000);
        assert_eq!(kept, [points[0], points[1], points[2], points[3]]);
    }

    #[test]
    fn many_points_keep_their_extremes_in_whatever_order_they_come() {
        // A plane full of points, one far above, one far below, one far to the right.
        let plane = (0..200_000_u64).map(|n| point(0, 1 + n % 997, 1_000 + n * 7 % 100_003));
        let far = [point(0, 500, 9_000_000), point(0, 600, 3), point(0, 80_000, 2_000)];
        let all: Vec<_> = plane.chain(far).collect();
        for steps in [Steps::Octaves, Steps::Even(3)] {
            let (mut forth, mut back) = (Cloud::new(steps), Cloud::new(steps));
            all.iter().for_each(|&point| forth.add(point));
            all.iter().rev().for_each(|&point| back.add(point));
            let kept = forth.into_points(1000);
            assert!(kept.len() <= 1004 && kept.len() > 100, "{}", kept.len());
            assert!(far.iter().all(|point| kept.contains(point)));
            assert_eq!(kept, back.into_points(1000));
        }
    }

    #[test]
    fn a_larger_cell_holds_whole_smaller_ones() {
        for level in 0..12 {
            for value in 0..5_000 {
                let here = |value| octave_step(value, level);
                assert!(here(value) <= here(value + 1));
                let alike = here(value) == here(value + 1);
                let above = octave_step(value, level + 1) == octave_step(value + 1, level + 1);
                assert!(above || !alike, "{value} at {level}");
            }
        }
    }
}
