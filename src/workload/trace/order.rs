//! Puts rows in order of arrival while they stream by.
//!
//! A row may stand too late in the file by at most the sort window. So once the latest stamp read is
//! more than the window past a row, nothing that is still to come can go before it, and it leaves.
//! Memory holds the rows of one window, plus those of one instant, and never depends on the file's
//! length. There is no bound on the number of rows: it would make the order depend on how dense the
//! traffic is. A file that is known to be in order can be read with a window of zero.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use super::Row;
use super::config::Ties;
use crate::workload::request::{Content, Piece, Segment};

/// The rows that have been read and may not leave yet.
pub(super) struct SortWindow {
    /// The earliest row on top.
    rows: BinaryHeap<Reverse<Ranked>>,
    /// The latest stamp read.
    latest: Option<i128>,
    /// Nanoseconds by which a row may stand too late.
    window: i128,
    ties: Ties,
}

impl SortWindow {
    pub(super) fn new(window: i128, ties: Ties) -> Self {
        Self { rows: BinaryHeap::new(), latest: None, window, ties }
    }

    /// Takes the next row of the file in; O(log rows held). A row that is too late comes back as
    /// the nanoseconds it is behind the latest stamp.
    pub(super) fn push(&mut self, row: Row) -> Result<(), i128> {
        let latest = self.latest.map_or(row.stamp, |latest| latest.max(row.stamp));
        let behind = latest - row.stamp;
        if behind > self.window {
            return Err(behind);
        }
        self.latest = Some(latest);
        self.rows.push(Reverse(Ranked { row, ties: self.ties }));
        Ok(())
    }

    /// The earliest row, if no row still to come can go before it.
    pub(super) fn pop_settled(&mut self) -> Option<Row> {
        let first = self.rows.peek()?.0.row.stamp;
        let settled = self.latest? - self.window;
        let may_leave = match self.ties {
            // A row of the same instant could still go before it.
            Ties::Content => first < settled,
            Ties::File => first <= settled,
        };
        if may_leave { self.pop() } else { None }
    }

    /// The earliest row; at the end of the file, where nothing is still to come.
    pub(super) fn pop(&mut self) -> Option<Row> {
        self.rows.pop().map(|Reverse(ranked)| ranked.row)
    }

    /// The latest stamp read.
    pub(super) const fn latest(&self) -> Option<i128> {
        self.latest
    }

    /// Rows held.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }
}

/// A row with a total order: stamp, then the tie rule, then the place in the file.
struct Ranked {
    row: Row,
    ties: Ties,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_content = || match self.ties {
            // Rows that follow each other stay in their order.
            Ties::Content if self.row.turn.is_some() => Ordering::Equal,
            Ties::Content => by_content(&self.row, &other.row),
            Ties::File => Ordering::Equal,
        };
        let are_tied = |row: &Row| row.turn.is_some() && self.ties == Ties::Content;
        (self.row.stamp.cmp(&other.row.stamp))
            .then_with(|| are_tied(&self.row).cmp(&are_tied(&other.row)))
            .then_with(by_content)
            .then_with(|| (self.row.file, self.row.line).cmp(&(other.row.file, other.row.line)))
    }
}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ranked {}

/// The order of two rows of one instant by everything they hold. The name of the last segment goes
/// first: where names are numbered by first appearance, it gives back the order of the file.
fn by_content(a: &Row, b: &Row) -> Ordering {
    let lengths = |row: &Row| (row.prompt_tokens, row.output_tokens);
    (last_name(&a.content).cmp(&last_name(&b.content)))
        .then_with(|| lengths(a).cmp(&lengths(b)))
        .then_with(|| pieces(&a.content).cmp(pieces(&b.content)))
        .then_with(|| a.priority.cmp(&b.priority))
        .then_with(|| a.max_tokens.cmp(&b.max_tokens))
}

fn pieces(content: &Content) -> &[Piece] {
    match content {
        Content::Private => &[],
        Content::Pieces(pieces) => pieces,
    }
}

fn last_name(content: &Content) -> Option<u64> {
    match pieces(content).last()?.segment {
        Segment::Named(name) | Segment::Tail { name, .. } => Some(name),
        Segment::Prompt(_) | Segment::Output(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn row(stamp: i128, line: u64) -> Row {
        Row::new(stamp, line, 1, 1)
    }

    /// Stamps and lines in the order they leave.
    fn sorted(window: i128, ties: Ties, rows: Vec<Row>) -> Result<Vec<(i128, u64)>, i128> {
        let mut sorter = SortWindow::new(window, ties);
        let mut out = Vec::new();
        for row in rows {
            sorter.push(row)?;
            out.extend(std::iter::from_fn(|| sorter.pop_settled()).map(|r| (r.stamp, r.line)));
        }
        out.extend(std::iter::from_fn(|| sorter.pop()).map(|r| (r.stamp, r.line)));
        Ok(out)
    }

    #[test]
    fn the_window_is_tight() {
        let rows = || vec![row(0, 1), row(10, 2), row(5, 3)];
        assert_eq!(sorted(5, Ties::File, rows()), Ok(vec![(0, 1), (5, 3), (10, 2)]));
        assert_eq!(sorted(4, Ties::File, rows()), Err(5));
    }

    #[test]
    fn a_window_of_zero_holds_one_instant() {
        let mut sorter = SortWindow::new(0, Ties::Content);
        sorter.push(row(0, 1)).unwrap();
        sorter.push(row(0, 2)).unwrap();
        assert!(sorter.pop_settled().is_none());
        sorter.push(row(1, 3)).unwrap();
        assert!(sorter.pop_settled().is_some() && sorter.pop_settled().is_some());
        assert!(sorter.pop_settled().is_none());
        assert_eq!(sorter.len(), 1);
    }

    #[test]
    fn file_order_and_a_window_of_zero_hold_nothing() {
        let mut sorter = SortWindow::new(0, Ties::File);
        for line in 1..9 {
            sorter.push(row(7, line)).unwrap();
            assert_eq!(sorter.pop_settled().map(|r| r.line), Some(line));
        }
    }

    #[test]
    fn equal_stamps_go_by_last_name_then_lengths_then_all_names_then_priority() {
        let with = |names: &[u64], prompt_tokens, output_tokens, priority, line| Row {
            prompt_tokens,
            output_tokens,
            priority,
            content: Content::Pieces(
                names.iter().map(|&n| Piece { segment: Segment::Named(n), tokens: 1 }).collect(),
            ),
            ..row(0, line)
        };
        let rows = vec![
            with(&[1, 9], 2, 5, 0, 1),
            with(&[1, 9], 2, 5, -1, 2),
            with(&[0, 9], 2, 5, 7, 3),
            with(&[1, 9], 2, 4, 0, 4),
            with(&[9], 1, 9, 0, 5),
            with(&[7, 8], 2, 9, 0, 6),
            row(0, 7),
        ];
        let lines: Vec<u64> =
            sorted(0, Ties::Content, rows).unwrap().into_iter().map(|(_, line)| line).collect();
        assert_eq!(lines, [7, 6, 5, 4, 3, 2, 1]);
    }

    proptest! {
        #[test]
        fn rows_within_the_window_leave_in_order(
            stamps in prop::collection::vec(0_i128..500, 1..80),
            ties in prop::sample::select(vec![Ties::Content, Ties::File]),
        ) {
            let rows = || stamps.iter().zip(1..).map(|(&s, line)| row(s, line)).collect::<Vec<_>>();
            let mut expected: Vec<_> = rows().iter().map(|r| (r.stamp, r.line)).collect();
            expected.sort_unstable();
            let mut latest = 0;
            let furthest = stamps.iter().map(|&s| { latest = latest.max(s); latest - s }).max().unwrap();
            prop_assert_eq!(sorted(furthest, ties, rows()), Ok(expected));
            if furthest > 0 {
                prop_assert!(sorted(furthest - 1, ties, rows()).is_err());
            }
        }
    }
}
