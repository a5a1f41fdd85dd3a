//! What the requests of one class are: lengths, prefixes, priority.

use std::collections::VecDeque;

use super::config::{ClassConfig, OUTPUT_TOKENS, PROMPT_TOKENS, PrefixesConfig, SyntheticConfig};
use super::sessions::{Planned, Turns};
use crate::base::ids::RequestId;
use crate::base::rng::Stream;
use crate::workload::lengths::{Length, Lengths, Weighted};
use crate::workload::request::{Content, Piece, Segment};
use crate::workload::trace::TraceError;

/// Makes the requests of one class, in the order of their arrivals.
#[derive(Clone, Debug)]
pub(super) struct Class {
    lengths: Lengths,
    prefixes: Option<Prefixes>,
    turns: Option<Turns>,
    pub(super) priority: i32,
}

/// One request, but for when it comes.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    pub(super) content: Content,
}

impl Class {
    /// The class `config` of `load`, the `number`-th; without one, the load as a whole. Its streams
    /// are called `prefix`.lengths, .prefixes and .prefixes.lengths.
    ///
    /// # Errors
    /// A file of lengths cannot be used.
    pub(super) fn new(
        load: &SyntheticConfig,
        config: &ClassConfig,
        number: u16,
        seed: u64,
        prefix: &str,
    ) -> Result<Self, TraceError> {
        let draws = Stream::new(seed, &format!("{prefix}.lengths"));
        let has_lengths = config.prompt_tokens.is_some() || config.output_tokens.is_some();
        let common = load.length_pairs.as_ref().filter(|_| !has_lengths);
        let lengths = match config.length_pairs.as_ref().or(common) {
            Some(pairs) => Lengths::of_pairs(pairs, draws)?,
            None => Lengths::new(
                (config.prompt_tokens.as_ref())
                    .or(load.prompt_tokens.as_ref())
                    .unwrap_or(&PROMPT_TOKENS),
                (config.output_tokens.as_ref())
                    .or(load.output_tokens.as_ref())
                    .unwrap_or(&OUTPUT_TOKENS),
                config.length_correlation.or(load.length_correlation).unwrap_or(0.0),
                draws,
            )?,
        };
        let prefixes = config.prefixes.as_ref().or(load.prefixes.as_ref());
        let prefixes = prefixes.map(|p| Prefixes::new(p, number, seed, prefix)).transpose()?;
        let sessions = config.sessions.as_ref().or(load.sessions.as_ref());
        let turns = sessions.map(|sessions| Turns::new(sessions, seed, prefix)).transpose()?;
        Ok(Self { lengths, prefixes, turns, priority: config.priority })
    }

    /// The turns that follow the one that was made last, of at most so many in all; `None` where there are no
    /// sessions.
    pub(super) fn plan(&mut self, first: &Made, turns_max: u32) -> Option<VecDeque<Planned>> {
        let Self { lengths, turns, .. } = self;
        let plan = |turns: &mut Turns| turns.plan(first, turns_max, || lengths.next());
        turns.as_mut().map(plan)
    }

    /// Whether it has sessions.
    pub(super) const fn has_sessions(&self) -> bool {
        self.turns.is_some()
    }

    /// The next request of the class, which is to be called `id`.
    pub(super) fn make(&mut self, id: RequestId) -> Made {
        let (own_tokens, output_tokens) = self.lengths.next();
        let shared = self.prefixes.as_mut().and_then(Prefixes::next);
        let Some(shared) = shared.filter(|piece| piece.tokens > 0) else {
            return Made { prompt_tokens: own_tokens, output_tokens, content: Content::Private };
        };
        let prompt_tokens = shared.tokens.saturating_add(own_tokens);
        let rest = Piece { segment: Segment::Prompt(id), tokens: prompt_tokens - shared.tokens };
        let pieces = [shared, rest].into_iter().filter(|piece| piece.tokens > 0);
        Made { prompt_tokens, output_tokens, content: Content::Pieces(pieces.collect()) }
    }
}

/// Prefixes by popularity.
#[derive(Clone, Debug)]
struct Prefixes {
    groups: Weighted<Piece>,
    share: f64,
    draws: Stream,
}

impl Prefixes {
    fn new(
        config: &PrefixesConfig,
        class: u16,
        seed: u64,
        prefix: &str,
    ) -> Result<Self, TraceError> {
        let length = Length::new(&config.prefix_tokens)?;
        let mut lengths = Stream::new(seed, &format!("{prefix}.prefixes.lengths"));
        let groups = (0..config.groups).map(|group| {
            // Nothing else in made-up load has names.
            let segment = Segment::Named(u64::from(class) << 32 | u64::from(group));
            let piece = Piece { segment, tokens: length.at(lengths.normal()) };
            (piece, libm::pow(f64::from(group) + 1.0, -config.exponent))
        });
        let groups = Weighted::new(groups);
        let draws = Stream::new(seed, &format!("{prefix}.prefixes"));
        Ok(Self { groups, share: config.share, draws })
    }

    /// The prefix of the next request, if it has one; always two draws.
    fn next(&mut self) -> Option<Piece> {
        let (has, which) = (self.draws.uniform() < self.share, self.draws.uniform());
        has.then(|| *self.groups.at(which))
    }
}
