//! What the prices of a run rest on: how many answers were measured, interpolated, stretched or
//! computed, by kind of pass and by part of it, and how much time they priced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;
use serde_json::{Map, Value};

/// The kinds of pass, by the work they hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum PassKind {
    /// Prefill work only.
    #[default]
    Prefill,
    /// Decode work only.
    Decode,
    /// Both.
    Mixed,
}

impl PassKind {
    /// Every kind, in order.
    pub(crate) const ALL: [Self; 3] = [Self::Prefill, Self::Decode, Self::Mixed];

    /// Its name in reports and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill_only",
            Self::Decode => "decode_only",
            Self::Mixed => "mixed",
        }
    }
}

/// What part of a pass an answer prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// The prefill work, whole.
    Prefill,
    /// The decode work, whole.
    Decode,
    /// What of a decode pass is there anyway in a pass with prefill: subtracted.
    DecodeBaseline,
    /// What a mixed pass costs above its parts.
    MixedOverhead,
    /// Work over all tokens of the pass.
    Dense,
    /// Attention of the prefill work.
    PrefillAttention,
    /// Attention of the decode work.
    DecodeAttention,
    /// Attention of both, measured together.
    MixedAttention,
    /// Work per request: sampling, LM head.
    PerRequest,
    /// Experts of a mixture.
    Experts,
    /// Communication between devices.
    Collectives,
    /// Launching, per pass and per layer.
    Overhead,
    /// Drafting for speculation.
    Draft,
}

impl Part {
    /// Every part, in order.
    pub(crate) const ALL: [Self; 13] = [
        Self::Prefill,
        Self::Decode,
        Self::DecodeBaseline,
        Self::MixedOverhead,
        Self::Dense,
        Self::PrefillAttention,
        Self::DecodeAttention,
        Self::MixedAttention,
        Self::PerRequest,
        Self::Experts,
        Self::Collectives,
        Self::Overhead,
        Self::Draft,
    ];

    /// Its name in reports and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Prefill => "prefill",
            Self::Decode => "decode",
            Self::DecodeBaseline => "decode_baseline",
            Self::MixedOverhead => "mixed_overhead",
            Self::Dense => "dense",
            Self::PrefillAttention => "prefill_attention",
            Self::DecodeAttention => "decode_attention",
            Self::MixedAttention => "mixed_attention",
            Self::PerRequest => "per_request",
            Self::Experts => "experts",
            Self::Collectives => "collectives",
            Self::Overhead => "overhead",
            Self::Draft => "draft",
        }
    }
}

/// How an answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    /// Measured at just these coordinates.
    Exact,
    /// Between measurements.
    Interpolated,
    /// Outside of the measurements: the nearest of them.
    Clamped,
    /// Outside of the measurements: their trend.
    Extrapolated,
    /// Computed from a formula.
    Analytic,
}

impl Origin {
    /// Every origin, in order.
    pub(crate) const ALL: [Self; 5] =
        [Self::Exact, Self::Interpolated, Self::Clamped, Self::Extrapolated, Self::Analytic];

    /// Its name in reports and files.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Interpolated => "interpolated",
            Self::Clamped => "clamped",
            Self::Extrapolated => "extrapolated",
            Self::Analytic => "analytic",
        }
    }
}

/// Answers of one kind and the time they priced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Answers {
    /// How many; those of 0 ms count.
    pub(crate) count: u64,
    /// Their sum.
    pub(crate) ms: f64,
}

/// One answer from outside of what was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Outlier {
    /// Kind of the pass.
    pub(crate) kind: &'static str,
    /// Part of it.
    pub(crate) part: &'static str,
    /// How it was found.
    pub(crate) origin: &'static str,
    /// What was asked, as `name=value` pairs.
    pub(crate) at: String,
    /// How far outside, as a factor of the nearest edge; above 1.
    pub(crate) stretch: f64,
    /// The answer.
    pub(crate) ms: f64,
    /// How often something was asked that rounds to the same place.
    pub(crate) times: u64,
}

/// Outliers by what was asked of which part of which kind of pass.
#[derive(Clone, Debug, Default)]
struct Outliers(BTreeMap<(&'static str, &'static str, &'static str, String), Outlier>);

impl Outliers {
    /// Counts an outlier with those of the same place, of which the worst speaks for all.
    fn add(&mut self, outlier: Outlier) {
        let key = (outlier.kind, outlier.part, outlier.origin, outlier.at.clone());
        match self.0.entry(key) {
            Entry::Vacant(place) => _ = place.insert(outlier),
            Entry::Occupied(mut place) => {
                let known = place.get_mut();
                known.times += outlier.times;
                if outlier.stretch > known.stretch {
                    (known.stretch, known.ms) = (outlier.stretch, outlier.ms);
                }
            }
        }
        // Far more than are shown, so that counts of those that are shown are whole.
        if self.0.len() > 64 * OUTLIERS_MAX {
            for mild in self.by_stretch().drain(32 * OUTLIERS_MAX..) {
                self.0.remove(&(mild.kind, mild.part, mild.origin, mild.at));
            }
        }
    }

    /// All of them, worst first; of equally bad ones by place.
    fn by_stretch(&self) -> Vec<Outlier> {
        let mut all: Vec<Outlier> = self.0.values().cloned().collect();
        all.sort_by(|a, b| b.stretch.total_cmp(&a.stretch));
        all
    }
}

/// The evidence of one engine's prices.
#[derive(Clone, Debug, Default)]
pub(crate) struct Evidence {
    kind: PassKind,
    /// What answers are noted as, whatever part they are of.
    alias: Option<Part>,
    counts: [[[Answers; Origin::ALL.len()]; Part::ALL.len()]; PassKind::ALL.len()],
    /// Kept on request only.
    outliers: Option<Outliers>,
}

/// Outliers that are kept: the ones that stretch the measurements most.
const OUTLIERS_MAX: usize = 100;

impl Evidence {
    /// Evidence that keeps the worst outliers.
    pub(crate) fn with_outliers() -> Self {
        Self { outliers: Some(Outliers::default()), ..Self::default() }
    }

    /// What follows is about a pass of this kind.
    pub(crate) fn begin(&mut self, kind: PassKind) {
        self.kind = kind;
    }

    /// What `answer` notes is noted as `part`.
    pub(crate) fn noting_as<T>(&mut self, part: Part, answer: impl FnOnce(&mut Self) -> T) -> T {
        let before = self.alias.replace(part);
        let answered = answer(self);
        self.alias = before;
        answered
    }

    /// An answer of `ms` for `part`.
    #[inline]
    pub(crate) fn note(&mut self, part: Part, origin: Origin, ms: f64) {
        let part = self.alias.unwrap_or(part);
        let answers = &mut self.counts[self.kind as usize][part as usize][origin as usize];
        answers.count += 1;
        answers.ms += ms;
    }

    /// An answer of `ms` for `part` from outside of the measurements by the factor `stretch`; `at`
    /// says in words what was asked.
    pub(crate) fn note_outside(
        &mut self,
        part: Part,
        origin: Origin,
        ms: f64,
        stretch: f64,
        at: impl FnOnce() -> String,
    ) {
        self.note(part, origin, ms);
        let part = self.alias.unwrap_or(part);
        let Some(outliers) = &mut self.outliers else { return };
        outliers.add(Outlier {
            kind: self.kind.name(),
            part: part.name(),
            origin: origin.name(),
            at: at(),
            stretch,
            ms,
            times: 1,
        });
    }

    /// Takes in the evidence of another engine.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (ours, theirs) in self.counts.iter_mut().flatten().flatten().zip(other.all()) {
            ours.count += theirs.count;
            ours.ms += theirs.ms;
        }
        if let (Some(ours), Some(theirs)) = (&mut self.outliers, &other.outliers) {
            theirs.0.values().for_each(|outlier| ours.add(outlier.clone()));
        }
    }

    fn all(&self) -> impl Iterator<Item = &Answers> {
        self.counts.iter().flatten().flatten()
    }

    /// The worst outliers, if they were kept, worst first.
    pub(crate) fn outliers(&self) -> Vec<Outlier> {
        let mut worst = self.outliers.as_ref().map_or_else(Vec::new, Outliers::by_stretch);
        worst.truncate(OUTLIERS_MAX);
        worst
    }

    /// Answers of an origin, over all passes and parts.
    #[cfg(test)]
    pub(crate) fn total(&self, origin: Origin) -> Answers {
        let mut total = Answers::default();
        for answers in self.counts.iter().flatten().map(|parts| parts[origin as usize]) {
            total.count += answers.count;
            total.ms += answers.ms;
        }
        total
    }

    /// Shares of the priced time by origin; `None` if nothing cost anything.
    pub(crate) fn shares(&self) -> Option<[(&'static str, f64); Origin::ALL.len()]> {
        // A baseline is subtracted, but what it rests on matters as much.
        let priced_ms: f64 = self.all().map(|answers| answers.ms.abs()).sum();
        (priced_ms > 0.0).then(|| {
            Origin::ALL.map(|origin| {
                let answers = self.counts.iter().flatten().map(|parts| parts[origin as usize]);
                (origin.name(), answers.map(|a| a.ms.abs()).sum::<f64>() / priced_ms)
            })
        })
    }

    /// `{kind: {part: {origin: {count, ms}}}}`, as far as there was anything, and
    /// `{shares: {origin: share of the priced time}}`.
    pub(crate) fn to_json(&self) -> Value {
        let mut kinds = Map::new();
        for (kind, parts) in PassKind::ALL.into_iter().zip(&self.counts) {
            let mut of_kind = Map::new();
            for (part, origins) in Part::ALL.into_iter().zip(parts) {
                let mut of_part = Map::new();
                for (origin, answers) in Origin::ALL.into_iter().zip(origins) {
                    if answers.count > 0 {
                        let answers = serde_json::to_value(answers).expect("plain numbers");
                        of_part.insert(origin.name().to_owned(), answers);
                    }
                }
                if !of_part.is_empty() {
                    of_kind.insert(part.name().to_owned(), Value::Object(of_part));
                }
            }
            kinds.insert(kind.name().to_owned(), Value::Object(of_kind));
        }
        let shares = self.shares().map_or(Value::Null, |shares| {
            let named = |(name, share): (&'static str, f64)| (name.to_owned(), share.into());
            Value::Object(shares.into_iter().map(named).collect())
        });
        kinds.insert("shares".to_owned(), shares);
        Value::Object(kinds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_zero_are_kept_and_shares_are_of_time() {
        let mut evidence = Evidence::default();
        evidence.begin(PassKind::Mixed);
        evidence.note(Part::Prefill, Origin::Exact, 9.0);
        evidence.note(Part::Decode, Origin::Interpolated, 3.0);
        evidence.note(Part::MixedOverhead, Origin::Analytic, 0.0);
        let json = evidence.to_json();
        assert_eq!(json["mixed"]["mixed_overhead"]["analytic"]["count"], 1);
        assert_eq!(json["shares"]["exact"], 0.75);
        assert_eq!(json["shares"]["analytic"], 0.0);
        assert_eq!(json["decode_only"], serde_json::json!({}));
    }

    #[test]
    fn the_worst_outliers_are_kept_once_each() {
        let mut evidence = Evidence::with_outliers();
        for stretch in [1.5, 4.0, 1.5, 2.0] {
            let at = || format!("tokens={stretch}");
            evidence.note_outside(Part::Decode, Origin::Extrapolated, 1.0, stretch, at);
        }
        let seen: Vec<_> = evidence.outliers().iter().map(|o| (o.stretch, o.times)).collect();
        assert_eq!(seen, [(4.0, 1), (2.0, 1), (1.5, 2)]);
        assert_eq!(evidence.total(Origin::Extrapolated).count, 4);
    }
}
