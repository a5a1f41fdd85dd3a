//! Figures as a person reads them: rounded, with thousands separated; `-` for the unknown.

/// What stands where nothing is known.
pub(crate) const UNKNOWN: &str = "-";

/// A count with its thousands separated.
pub(crate) fn count(value: u64) -> String {
    separated(&value.to_string())
}

/// A figure with four significant digits or more: three decimals below 10, two below 1000, one
/// below 10,000, none above. Exactly nothing is `0`.
pub(crate) fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        0.0 => 0,
        v if v < 10.0 => 3,
        v if v < 1_000.0 => 2,
        v if v < 10_000.0 => 1,
        _ => 0,
    };
    decimal(value, decimals)
}

/// A mean of counts, with one decimal.
pub(crate) fn mean(value: f64) -> String {
    decimal(value, 1)
}

fn decimal(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let sign = if value < 0.0 { "-" } else { "" };
    match text.split_once('.') {
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", separated(whole)),
        None => format!("{sign}{}", separated(&text)),
    }
}

/// A ratio in percent with one decimal; a share too small to show is `<0.1`.
pub(crate) fn percent(ratio: f64) -> String {
    let percent = ratio * 100.0;
    if percent > 0.0 && percent < 0.05 { "<0.1".to_owned() } else { format!("{percent:.1}") }
}

/// With its sign, which nothing has not.
pub(crate) fn signed(value: f64, format: impl Fn(f64) -> String) -> String {
    let text = format(value.abs());
    // What rounds to nothing has no sign either.
    let sign = if !text.contains(|digit| matches!(digit, '1'..='9')) {
        ""
    } else if value > 0.0 {
        "+"
    } else {
        "-"
    };
    format!("{sign}{text}")
}

/// A relative error in percent, with its sign.
pub(crate) fn signed_percent(ratio: f64) -> String {
    signed(
        ratio * 100.0,
        |value| if value < 1_000.0 { format!("{value:.1}") } else { figure(value) },
    )
}

/// What `format` makes of a value, or [`UNKNOWN`].
pub(crate) fn known<T>(value: Option<T>, format: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), format)
}

/// `1 request`, `2 requests`, `1,000 requests`.
pub(crate) fn counted(value: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(value), if value == 1 { "" } else { "s" })
}

/// `text` in lines of at most `width` characters, broken at blanks; all but the first are indented.
/// A longer word has a line of its own.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    const INDENT: &str = "  ";
    let mut lines = String::with_capacity(text.len());
    let mut used = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if used == 0 {
            used = length;
        } else if used + 1 + length <= width {
            lines.push(' ');
            used += 1 + length;
        } else {
            lines.push('\n');
            lines.push_str(INDENT);
            used = INDENT.len() + length;
        }
        lines.push_str(word);
    }
    lines
}

/// Puts a comma before every third digit from the end.
fn separated(digits: &str) -> String {
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        let left = digits.len() - at;
        if at > 0 && left.is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrapped("one two", 7), "one two");
        assert_eq!(wrapped("one two three", 7), "one two\n  three");
        assert_eq!(wrapped("one three", 7), "one\n  three");
        assert_eq!(wrapped("extraordinary a b c", 5), "extraordinary\n  a b\n  c");
    }

    #[test]
    fn thousands_are_separated() {
        let texts = [0, 999, 1_000, 12_345, 1_234_567].map(count);
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!(counted(1, "request"), "1 request");
        assert_eq!(counted(2_000, "request"), "2,000 requests");
    }

    #[test]
    fn decimals_follow_the_magnitude() {
        let texts = [0.0, 0.012_34, 9.876_54, 16.501_42, 999.994, 1_234.56, 98_765.43].map(figure);
        assert_eq!(texts, ["0", "0.012", "9.877", "16.50", "999.99", "1,234.6", "98,765"]);
        assert_eq!([0.0, 255.96, 1_234.5].map(mean), ["0.0", "256.0", "1,234.5"]);
    }

    #[test]
    fn a_small_share_is_not_nothing() {
        let texts = [0.0, 0.000_4, 0.000_6, 0.412, 1.0].map(percent);
        assert_eq!(texts, ["0.0", "<0.1", "0.1", "41.2", "100.0"]);
    }
}
