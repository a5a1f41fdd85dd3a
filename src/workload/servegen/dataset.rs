//! `chunk-K-dataset.json`: how long the requests of a client are, part of the day by part.
//!
//! An object keyed by where the part begins (s). Each value is an object of distributions as text (see
//! [`super::dictionary`]), all of them `{}` where the client was silent.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::config::ns_of_s;
use super::dictionary;
use crate::base::rng::{Stream, normal_cdf};
use crate::workload::lengths::Weighted;
use crate::workload::trace::TraceError;

/// Images, sounds or films of one prompt that there may be: each takes a draw.
const ITEMS_MAX: u32 = 65_536;

/// What a prompt may hold beside text.
const ITEMS: [(&str, &str); 3] = [
    ("image_tokens", "image_count"),
    ("audio_tokens", "audio_count"),
    ("video_tokens", "video_count"),
];

/// How long the requests of a client are in a part of the day.
#[derive(Clone, Debug)]
pub(super) struct Lengths {
    /// Tokens of the prompt's text, or of all of it where the pool does not tell them apart.
    text: Weighted<u32>,
    items: Vec<Items>,
    output: Weighted<u32>,
}

/// Images, sounds or films of a prompt.
#[derive(Clone, Debug)]
struct Items {
    /// How many; absent: one.
    count: Option<Weighted<u32>>,
    /// Tokens of one.
    tokens: Weighted<u32>,
}

/// The parts of the day of a client.
#[derive(Clone, Debug, Default)]
pub(super) struct Dataset {
    /// Where each part begins, in nanoseconds of the day, and its lengths; in order, without those in
    /// which the client was silent.
    pub(super) parts: Vec<(u64, Lengths)>,
    /// Fields that were not used.
    pub(super) ignored: BTreeSet<String>,
}

impl Dataset {
    /// The part that holds at an instant of the day: the latest that begins by then.
    pub(super) fn part_at(&self, ns: u64) -> Option<usize> {
        self.parts.partition_point(|&(start, _)| start <= ns).checked_sub(1)
    }
}

/// The draws of one window of one client.
#[derive(Clone, Debug)]
pub(super) struct LengthDraws {
    /// The same number a request, whatever there is in it.
    lengths: Stream,
    /// One for each image, sound and film.
    items: Stream,
}

impl LengthDraws {
    /// The draws of streams called `prefix`.lengths and .items.
    pub(super) fn new(seed: u64, prefix: &str) -> Self {
        let stream = |name| Stream::new(seed, &format!("{prefix}.{name}"));
        Self { lengths: stream("lengths"), items: stream("items") }
    }
}

impl Lengths {
    /// Prompt and output tokens of a request. The draws of output and counts correlate so much with
    /// that of the text (a Gaussian copula); items have draws of their own.
    pub(super) fn draw(&self, correlation: f64, draws: &mut LengthDraws) -> (u32, u32) {
        let first = draws.lengths.normal();
        let rest = (1.0 - correlation * correlation).sqrt();
        let mut share = || normal_cdf(correlation * first + rest * draws.lengths.normal());
        let output = *self.output.at(share());
        let mut prompt = u64::from(*self.text.at(normal_cdf(first)));
        for items in &self.items {
            let count = items.count.as_ref().map_or(1, |count| *count.at(share()));
            for _ in 0..count {
                prompt += u64::from(*items.tokens.at(draws.items.uniform()));
            }
        }
        (u32::try_from(prompt).unwrap_or(u32::MAX), output)
    }
}

/// Reads the file `path`, which holds `bytes`.
///
/// # Errors
/// It is no JSON, or not of this form; a distribution is missing or cannot be used; the parts are not
/// in order.
pub(super) fn read(path: &Path, bytes: &[u8]) -> Result<Dataset, TraceError> {
    let mut dataset = Dataset::default();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let result = reader.deserialize_map(Day(&mut dataset)).and_then(|()| reader.end());
    match result {
        Ok(()) => Ok(dataset),
        Err(error) => {
            let (path, line, column) = (path.to_owned(), error.line() as u64, error.column());
            let what = error.to_string();
            // The position stands before it.
            let what = what.rsplit_once(" at line ").map_or(what.as_str(), |(what, _)| what);
            let what = what.to_owned();
            Err(if error.is_data() {
                TraceError::Table { path, line, what }
            } else {
                TraceError::Json { path, line, column, reason: what }
            })
        }
    }
}

/// Takes the parts of the day into a dataset.
struct Day<'a>(&'a mut Dataset);

impl<'de> Visitor<'de> for Day<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of the parts of a day")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut latest = None;
        while let Some(key) = map.next_key::<String>()? {
            let start = key.parse().ok().and_then(ns_of_s);
            let Some(start) = start else {
                let accepted = "a number of seconds from 0 to 3153600000";
                return Err(Error::custom(format!("key {key:?}, expected {accepted}")));
            };
            if latest.is_some_and(|latest| start <= latest) {
                let what = format!("key {key:?}, expected a part behind the one before");
                return Err(Error::custom(what));
            }
            latest = Some(start);
            let ignored = &mut self.0.ignored;
            let lengths = map.next_value_seed(Part { key: &key, ignored })?;
            self.0.parts.extend(lengths.map(|lengths| (start, lengths)));
        }
        Ok(())
    }
}

/// Reads one part of the day: its lengths, if the client sent anything.
struct Part<'a> {
    key: &'a str,
    ignored: &'a mut BTreeSet<String>,
}

/// The distributions that are used, in the order of [`FIELDS`].
type Found = [Option<Option<Weighted<u32>>>; FIELDS.len()];

const FIELDS: [&str; 9] = [
    "input_tokens",
    "text_tokens",
    "output_tokens",
    ITEMS[0].0,
    ITEMS[0].1,
    ITEMS[1].0,
    ITEMS[1].1,
    ITEMS[2].0,
    ITEMS[2].1,
];

impl<'de> DeserializeSeed<'de> for Part<'_> {
    type Value = Option<Lengths>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part<'_> {
    type Value = Option<Lengths>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of distributions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let wrong = |field: &str, what: &str| {
            Error::custom(format!("`{field}` of the part {:?}: {what}", self.key))
        };
        let mut found = Found::default();
        while let Some(name) = map.next_key::<String>()? {
            let Some(place) = FIELDS.iter().position(|field| *field == name) else {
                map.next_value::<IgnoredAny>()?;
                self.ignored.insert(name);
                continue;
            };
            let text = map.next_value::<String>()?;
            let max = if name.ends_with("_count") { ITEMS_MAX } else { u32::MAX };
            let distribution = dictionary::read(&text, max).map_err(|what| wrong(&name, &what))?;
            if found[place].replace(distribution).is_some() {
                return Err(wrong(&name, "it is there twice, expected once"));
            }
        }
        let missing = |field| wrong(field, "it is missing, expected a distribution");
        let is_there = |place: usize| found[place].is_some();
        if is_there(0) && is_there(1) {
            return Err(wrong(
                "text_tokens",
                "it stands beside `input_tokens`, expected one of them",
            ));
        }
        if !(is_there(0) || is_there(1)) {
            return Err(missing("input_tokens"));
        }
        if !is_there(2) {
            return Err(missing("output_tokens"));
        }
        for (kind, (tokens, _)) in ITEMS.iter().enumerate() {
            if is_there(4 + 2 * kind) && !is_there(3 + 2 * kind) {
                return Err(missing(tokens));
            }
        }
        // As ServeGen has it: a part with an empty distribution is none.
        if found.iter().any(|distribution| matches!(distribution, Some(None))) {
            return Ok(None);
        }
        let [input, text, output, image, images, audio, audios, video, videos] =
            found.map(Option::flatten);
        let items = [(image, images), (audio, audios), (video, videos)];
        let items = items
            .into_iter()
            .filter_map(|(tokens, count)| tokens.map(|tokens| Items { count, tokens }));
        let items = items.collect();
        let lengths = input.or(text).zip(output);
        Ok(lengths.map(|(text, output)| Lengths { text, items, output }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dataset(text: &str) -> Result<Dataset, TraceError> {
        read(Path::new("chunk-0-dataset.json"), text.as_bytes())
    }

    const PART: &str =
        r#"{"input_tokens": "{4: 1}", "output_tokens": "{2: 1}", "reason_ratio": "{0.5: 1}"}"#;

    #[test]
    fn the_latest_part_holds() {
        let empty = r#"{"input_tokens": "{}", "output_tokens": "{}"}"#;
        let text = format!("{{\"60\": {PART}, \"90\": {empty}, \"120\": {PART}}}");
        let dataset = dataset(&text).unwrap();
        let at = |s: u64| dataset.part_at(s * 1_000_000_000);
        assert_eq!(
            [at(59), at(60), at(100), at(120), at(9999)],
            [None, Some(0), Some(0), Some(1), Some(1)]
        );
        assert_eq!(dataset.ignored.iter().collect::<Vec<_>>(), ["reason_ratio"]);
        let mut draws = LengthDraws::new(0, "t");
        assert_eq!(dataset.parts[0].1.draw(0.0, &mut draws), (4, 2));
    }

    #[test]
    fn images_are_drawn_one_by_one() {
        let text = r#"{"0": {"text_tokens": "{100: 1}", "image_tokens": "{10: 0.5, 20: 0.5}",
            "image_count": "{2: 1}", "audio_tokens": "{7: 1}", "video_tokens": "{5: 1}",
            "video_count": "{0: 1}", "output_tokens": "{1: 1}"}}"#;
        let dataset = dataset(text).unwrap();
        let mut draws = LengthDraws::new(0, "t");
        let mut counts = [0; 3];
        for _ in 0..4000 {
            // The text, one sound, no film, two images of 10 or 20 tokens.
            let prompt = dataset.parts[0].1.draw(0.3, &mut draws).0;
            counts[((prompt - 127) / 10) as usize] += 1;
            assert!((127..=147).contains(&prompt) && (prompt - 127).is_multiple_of(10), "{prompt}");
        }
        // Both alike in half of the cases, so one of each in the others: binomial, four deviations
        // of sqrt(4000) / 2.
        assert!((counts[1] - 2000_i32).abs() < 127, "{counts:?}");
    }

    #[test]
    fn correlated_lengths_keep_their_distributions() {
        let text =
            r#"{"0": {"input_tokens": "{1: 0.5, 2: 0.5}", "output_tokens": "{1: 0.5, 2: 0.5}"}}"#;
        let lengths = &dataset(text).unwrap().parts[0].1;
        let alike = |correlation: f64| {
            let mut draws = LengthDraws::new(1, "t");
            let pairs: Vec<_> =
                (0..10_000).map(|_| lengths.draw(correlation, &mut draws)).collect();
            let long = |of: fn(&(u32, u32)) -> u32| pairs.iter().filter(|p| of(p) == 2).count();
            // Half of each: four deviations of sqrt(10,000) / 2.
            assert!(long(|p| p.0).abs_diff(5000) < 200 && long(|p| p.1).abs_diff(5000) < 200);
            pairs.iter().filter(|pair| pair.0 == pair.1).count()
        };
        assert_eq!((alike(1.0), alike(-1.0)), (10_000, 0));
        // Two normals with correlation r have the same sign with probability 1/2 + asin(r) / pi.
        assert!(alike(0.0).abs_diff(5000) < 200);
        assert!(alike(0.5).abs_diff(6667) < 4 * 47);
    }

    #[test]
    fn each_unusable_file_says_what_is_wrong() {
        let part = |fields: &str| format!("{{\"0\":\n{{{fields}}}}}");
        for (text, expected) in [
            (String::new(), "1:0: malformed JSON: EOF while parsing"),
            ("{".to_owned(), "malformed JSON: EOF"),
            ("{} {}".to_owned(), "malformed JSON: trailing characters"),
            ("[]".to_owned(), "invalid type: sequence, expected an object of the parts of a day"),
            ("{\"0\": 5}".to_owned(), "invalid type: integer `5`, expected an object of dist"),
            (format!("{{\"noon\": {PART}}}"), ":1: key \"noon\", expected a number of seconds"),
            (format!("{{\"-1\": {PART}}}"), ":1: key \"-1\""),
            (
                format!("{{\"600\": {PART},\n\"0\": {PART}}}"),
                ":2: key \"0\", expected a part behind",
            ),
            (format!("{{\"0\": {PART},\n\"0\": {PART}}}"), ":2: key \"0\""),
            (
                part(r#""input_tokens": "{4: 1}""#),
                "`output_tokens` of the part \"0\": it is missing",
            ),
            (
                part(r#""output_tokens": "{4: 1}""#),
                "`input_tokens` of the part \"0\": it is missing",
            ),
            (
                part(r#""input_tokens": "{4: x}", "output_tokens": "{}""#),
                "json:2: `input_tokens` of the part \"0\": \"x\" at character 5, expected a prob",
            ),
            (part(r#""input_tokens": {"4": 1}"#), ":2: invalid type: map, expected a string"),
            (
                part(r#""input_tokens": "{}", "text_tokens": "{}", "output_tokens": "{}""#),
                "`text_tokens` of the part \"0\": it stands beside `input_tokens`",
            ),
            (part(r#""input_tokens": "{}", "input_tokens": "{}""#), "it is there twice"),
            (
                part(r#""text_tokens": "{}", "output_tokens": "{}", "image_count": "{}""#),
                "`image_tokens` of the part \"0\": it is missing",
            ),
            (
                part(r#""text_tokens": "{1: 1}", "image_count": "{70000: 1}""#),
                "`image_count` of the part \"0\": \"70000\" at character 2, expected an integer from 0 to 65536",
            ),
        ] {
            let error = dataset(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
