//! The pass notation: `D 0 | P 1[412..923]` decodes request 0 and computes tokens 412 to 922 of
//! request 1.
//!
//! Rows keep their scheduling order; neighbours of a kind share a letter. `P` is prefill, `D`
//! decode, `*` marks a resumption after a preemption, `x` the preempted.

use std::fmt;

use super::plan::{Entry, Row};
use crate::base::ids::RequestId;

/// A pass in pass notation.
pub(crate) struct Notation<'a> {
    /// Its rows.
    pub(crate) rows: &'a [Row],
    /// Who was preempted while it was planned.
    pub(crate) preempted: &'a [RequestId],
}

impl fmt::Display for Notation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open: Option<bool> = None;
        for row in self.rows {
            if open != Some(row.is_decode) {
                let letter = if row.is_decode { "D" } else { "P" };
                write!(f, "{}{letter}", if open.is_some() { " | " } else { "" })?;
                open = Some(row.is_decode);
            }
            write!(f, " {}", row.request)?;
            if row.entry == Entry::Resumed {
                f.write_str("*")?;
            }
            if !row.is_decode {
                let end = row.computed_before + row.tokens;
                write!(f, "[{}..{end}]", row.computed_before)?;
            }
        }
        for (i, request) in self.preempted.iter().enumerate() {
            let lead = match (i, open.is_some()) {
                (0, true) => " | x ",
                (0, false) => "x ",
                _ => " ",
            };
            write!(f, "{lead}{request}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::ids::SlotId;

    fn row(request: u32, computed_before: u32, tokens: u32, entry: Entry, is_decode: bool) -> Row {
        Row {
            slot: SlotId(0),
            request: RequestId(request),
            tokens,
            computed_before,
            entry,
            is_chunk: false,
            is_decode,
            drafts: 0,
            is_padding: false,
            emitted_tokens: 0,
            finished: false,
        }
    }

    #[test]
    fn kinds_are_grouped_and_entries_marked() {
        let rows = [
            row(0, 100, 1, Entry::Running, true),
            row(4, 80, 1, Entry::Running, true),
            row(1, 412, 511, Entry::Running, false),
            row(7, 0, 16, Entry::New, false),
            row(2, 32, 8, Entry::Resumed, false),
        ];
        let text = Notation { rows: &rows, preempted: &[RequestId(9), RequestId(5)] }.to_string();
        assert_eq!(text, "D 0 4 | P 1[412..923] 7[0..16] 2*[32..40] | x 9 5");
        let text = Notation { rows: &[], preempted: &[RequestId(3)] }.to_string();
        assert_eq!(text, "x 3");
    }
}
