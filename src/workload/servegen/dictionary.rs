//! Distributions as the pools write them: a Python dictionary `{tokens: probability, ...}` as text.

use crate::workload::lengths::Weighted;

/// Reads a dictionary of numbers up to `max` and their probabilities, which need not add up to 1;
/// `None` where it is empty.
///
/// # Errors
/// Where the text is no such dictionary: what was found, and what is expected.
pub(super) fn read(text: &str, max: u32) -> Result<Option<Weighted<u32>>, String> {
    let mut rest = Rest { text, at: 0 };
    rest.expect('{')?;
    let mut values: Vec<(u32, f64)> = Vec::new();
    // A comma may stand behind the last entry, as in Python.
    while !rest.skip('}') {
        let accepted = format!("an integer from 0 to {max}");
        let value = rest.number(&accepted, |word| word.parse().ok().filter(|&n| n <= max))?;
        rest.expect(':')?;
        let accepted = "a probability of at least 0";
        let weight = rest.number(accepted, |word| {
            word.parse().ok().filter(|weight| (0.0..=1e15).contains(weight))
        })?;
        values.push((value, weight));
        if !rest.skip(',') {
            rest.expect('}')?;
            break;
        }
    }
    if !rest.is_empty() {
        return Err(rest.found("the end"));
    }
    if values.is_empty() {
        return Ok(None);
    }
    // In order, so that a larger draw is a larger value.
    values.sort_by_key(|&(value, _)| value);
    if let Some(twice) = values.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(format!("{} is there twice, expected each value once", twice[0].0));
    }
    if values.iter().all(|&(_, weight)| weight <= 0.0) {
        return Err("all probabilities are 0, expected one above".to_owned());
    }
    Ok(Some(Weighted::new(values.into_iter())))
}

/// What has not been read.
struct Rest<'a> {
    text: &'a str,
    /// The byte it begins at.
    at: usize,
}

impl<'a> Rest<'a> {
    fn trim(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
    }

    fn is_empty(&mut self) -> bool {
        self.trim();
        self.at == self.text.len()
    }

    /// Goes behind `mark`, if it is next.
    fn skip(&mut self, mark: char) -> bool {
        self.trim();
        let is_next = self.text[self.at..].starts_with(mark);
        self.at += if is_next { mark.len_utf8() } else { 0 };
        is_next
    }

    fn expect(&mut self, mark: char) -> Result<(), String> {
        if self.skip(mark) { Ok(()) } else { Err(self.found(&format!("`{mark}`"))) }
    }

    /// The number that is next, as `parse` takes it.
    fn number<T>(
        &mut self,
        accepted: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, String> {
        self.trim();
        let word = self.word();
        // Only what Python writes: no signs of infinity, and no plus.
        let is_plain = word.starts_with(|c: char| c.is_ascii_digit());
        let parsed = parse(word).filter(|_| is_plain).ok_or_else(|| self.found(accepted))?;
        self.at += word.len();
        Ok(parsed)
    }

    /// What is next, up to a mark.
    fn word(&self) -> &'a str {
        let rest = &self.text[self.at..];
        let end = rest.find(|c: char| ",:{}".contains(c) || c.is_whitespace());
        &rest[..end.unwrap_or(rest.len())]
    }

    /// The error that something else than `accepted` is next.
    fn found(&mut self, accepted: &str) -> String {
        self.trim();
        let word = match self.word() {
            "" => self.text[self.at..].chars().next().map(String::from),
            word => Some(word.chars().take(40).collect()),
        };
        let found = word.map_or("the end".to_owned(), |word| format!("{word:?}"));
        let place = self.text[..self.at].chars().count() + 1;
        format!("{found} at character {place}, expected {accepted}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_dictionary_is_values_by_probability() {
        let values = read(" {50: 0.25, 41: 5e-1 ,60:0.25,} ", 100).unwrap().unwrap();
        // In order of value: 41 up to 1/2, 50 up to 3/4, 60 up to 1.
        let at = [0.0, 0.49, 0.5, 0.74, 0.75, 1.0].map(|share| *values.at(share));
        assert_eq!(at, [41, 41, 50, 50, 60, 60]);
        assert!(read("{}", 9).unwrap().is_none());
        // 3 : 1, though that does not add up to 1.
        let values = read("{1: 3, 2: 1}", 9).unwrap().unwrap();
        assert_eq!([*values.at(0.7), *values.at(0.8)], [1, 2]);
    }

    #[test]
    fn each_unusable_text_says_where_and_what() {
        for (text, expected) in [
            ("", "the end at character 1, expected `{`"),
            ("[1]", "\"[1]\" at character 1, expected `{`"),
            ("{1: 1", "the end at character 6, expected `}`"),
            ("{1: 1} 2", "\"2\" at character 8, expected the end"),
            ("{1: 1 2: 1}", "\"2\" at character 7, expected `}`"),
            ("{1 1}", "\"1\" at character 4, expected `:`"),
            ("{,}", "\",\" at character 2, expected an integer from 0 to 99"),
            ("{-1: 1}", "\"-1\" at character 2, expected an integer from 0 to 99"),
            ("{1.5: 1}", "\"1.5\" at character 2, expected an integer"),
            ("{100: 1}", "\"100\" at character 2, expected an integer"),
            ("{'a': 1}", "\"'a'\" at character 2, expected an integer"),
            ("{1: -0.5}", "\"-0.5\" at character 5, expected a probability of at least 0"),
            ("{1: nan}", "\"nan\" at character 5"),
            ("{1: inf}", "\"inf\" at character 5"),
            ("{1: 1e999}", "\"1e999\" at character 5"),
            ("{1: 0, 2: 0.0}", "all probabilities are 0, expected one above"),
            ("{1: 1, 1: 1}", "1 is there twice, expected each value once"),
        ] {
            let error = read(text, 99).unwrap_err();
            assert!(error.starts_with(expected), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_is_too_strange(text in "[{}:, 0-9.e\u{e4}-]{0,30}") {
            let _ = read(&text, 99);
        }
    }
}
