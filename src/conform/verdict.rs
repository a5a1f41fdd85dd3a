//! What a comparison came to.

use serde::Serialize;
use serde_json::Value;

use super::files::Numbered;

/// What came of one case.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Every line is the same.
    Same {
        /// How many lines were compared.
        lines: usize,
    },
    /// A line differs.
    Different {
        /// The line of the recording's file, from 1.
        line: usize,
        /// What was recorded there; nothing if we go on where the recording has ended.
        expected: Option<String>,
        /// What our engine does; nothing if it has ended where the recording goes on.
        found: Option<String>,
        /// The keys whose values differ, those of objects as `outer.inner`.
        keys: Vec<String>,
    },
}

impl Verdict {
    /// That line `line` differs.
    pub(super) fn different<L: Serialize>(
        line: usize,
        expected: Option<&L>,
        found: Option<&L>,
    ) -> Self {
        let value = |line| serde_json::to_value(line).expect("a line is plain data");
        let mut keys = Vec::new();
        if let (Some(expected), Some(found)) = (expected, found) {
            differing_keys(&value(expected), &value(found), "", &mut keys);
        }
        let json = |line| serde_json::to_string(line).expect("a line is plain data");
        Self::Different { line, expected: expected.map(json), found: found.map(json), keys }
    }

    /// The same, found when requests that decode in step were not touched one by one.
    #[must_use]
    pub(super) fn in_step(mut self) -> Self {
        if let Self::Different { found: Some(found), .. } = &mut self {
            found.push_str(" (in step)");
        }
        self
    }
}

/// Where two values differ, by key and, of objects in them, by theirs.
fn differing_keys(expected: &Value, found: &Value, outer: &str, keys: &mut Vec<String>) {
    let (Some(expected), Some(found)) = (expected.as_object(), found.as_object()) else { return };
    let added = found.keys().filter(|key| !expected.contains_key(*key));
    for key in expected.keys().chain(added) {
        match (expected.get(key), found.get(key)) {
            (ours, theirs) if ours == theirs => {}
            (Some(ours @ Value::Object(_)), Some(theirs @ Value::Object(_))) => {
                differing_keys(ours, theirs, &format!("{outer}{key}."), keys);
            }
            _ => keys.push(format!("{outer}{key}")),
        }
    }
}

/// Compares lines one by one, up to the first that differs.
pub(super) fn compare<L: PartialEq + Serialize>(
    expected: &[Numbered<L>],
    found: impl IntoIterator<Item = L>,
) -> Verdict {
    let mut found = found.into_iter();
    for Numbered { number, line } in expected {
        let ours = found.next();
        if ours.as_ref() != Some(line) {
            return Verdict::different(*number, Some(line), ours.as_ref());
        }
    }
    let after = expected.last().map_or(1, |last| last.number + 1);
    match found.next() {
        Some(ours) => Verdict::different(after, None, Some(&ours)),
        None => Verdict::Same { lines: expected.len() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn recorded(lines: &[Value]) -> Vec<Numbered<Value>> {
        // With empty lines between them.
        let numbered = lines.iter().zip((3..).step_by(2));
        numbered.map(|(line, number)| Numbered { number, line: line.clone() }).collect()
    }

    #[test]
    fn the_first_difference_is_told_by_its_line_in_the_file() {
        let [a, b, c] = ["a", "b", "c"].map(|k| json!({ "k": k }));
        let expected = recorded(&[a.clone(), b.clone()]);
        let with = |lines: &[&Value]| compare(&expected, lines.iter().map(|&line| line.clone()));
        assert_eq!(with(&[&a, &b]), Verdict::Same { lines: 2 });
        let line_of = |verdict| match verdict {
            Verdict::Different { line, expected, found, .. } => (line, expected, found),
            verdict => panic!("{verdict:?}"),
        };
        let text = |line: &Value| Some(line.to_string());
        assert_eq!(line_of(with(&[&a, &c])), (5, text(&b), text(&c)));
        assert_eq!(line_of(with(&[&a])), (5, text(&b), None));
        assert_eq!(line_of(with(&[&a, &b, &c])), (6, None, text(&c)));
        assert_eq!(line_of(compare(&[], [c.clone()])), (1, None, text(&c)));
    }

    #[test]
    fn the_keys_that_differ_are_named_one_by_one() {
        let expected = json!({"f": 1, "at": {"avail": 3, "evict": 4}, "ids": [1, 2], "old": 0});
        let found = json!({"f": 1, "at": {"avail": 3, "evict": 5}, "ids": [1, 3], "new": 0});
        let Verdict::Different { keys, .. } = Verdict::different(1, Some(&expected), Some(&found))
        else {
            panic!()
        };
        assert_eq!(keys, ["at.evict", "ids", "old", "new"]);
        let Verdict::Different { keys, .. } = Verdict::different(1, Some(&expected), None) else {
            panic!()
        };
        assert!(keys.is_empty());
    }
}
