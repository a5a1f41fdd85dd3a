//! Made-up sessions: turns that follow each other, each with all that was said before it.
//!
//! What the turns of a session are is drawn when it begins, so that no draw depends on how fast answers
//! come.

use std::collections::VecDeque;

use super::class::Made;
use super::config::MadeSessionsConfig;
use crate::base::rng::Stream;
use crate::base::time::SimDuration;
use crate::workload::arrivals::config::Spread;
use crate::workload::lengths::Length;
use crate::workload::request::{Name, Piece, Turn};
use crate::workload::trace::TraceError;

/// A turn that is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// From the end of the turn before to its arrival.
    pub(super) think: SimDuration,
    /// Tokens that its prompt adds to what was said.
    pub(super) added_tokens: u32,
    pub(super) output_tokens: u32,
}

/// How the sessions of a class go on.
#[derive(Clone, Debug)]
pub(super) struct Turns {
    turns: Length,
    /// Tokens that later turns add; `None`: as many as a first prompt has of its own.
    pub(super) added: Option<(Length, Stream)>,
    think_s: f64,
    think: Spread,
    prompt_tokens_max: u64,
    draws: Stream,
}

impl Turns {
    /// Streams are called `prefix`.sessions and `prefix`.sessions.lengths.
    ///
    /// # Errors
    /// A file of lengths cannot be used.
    pub(super) fn new(
        config: &MadeSessionsConfig,
        seed: u64,
        prefix: &str,
    ) -> Result<Self, TraceError> {
        let added = config.added_tokens.as_ref().map(|added| {
            let draws = Stream::new(seed, &format!("{prefix}.sessions.lengths"));
            Ok::<_, TraceError>((Length::new(added)?, draws))
        });
        Ok(Self {
            turns: Length::new(&config.turns)?,
            added: added.transpose()?,
            think_s: config.think_s,
            think: config.think,
            prompt_tokens_max: config.prompt_tokens_max.map_or(u64::MAX, u64::from),
            draws: Stream::new(seed, &format!("{prefix}.sessions")),
        })
    }

    /// The turns behind `first`, with it at most `turns_max`; `lengths` draws what a first prompt and an output
    /// have.
    pub(super) fn plan(
        &mut self,
        first: &Made,
        turns_max: u32,
        mut lengths: impl FnMut() -> (u32, u32),
    ) -> VecDeque<Planned> {
        let mut told = u64::from(first.prompt_tokens) + u64::from(first.output_tokens);
        // No session outlasts the load.
        let turns = self.turns.at(self.draws.normal()).min(turns_max);
        let mut planned = VecDeque::new();
        let mut is_over = false;
        for _ in 1..turns {
            let (own, output_tokens) = lengths();
            let added_tokens = match &mut self.added {
                Some((length, draws)) => length.at(draws.normal()),
                None => own,
            };
            let think_s = match self.think {
                Spread::Fixed => self.think_s,
                Spread::Exponential => self.think_s * self.draws.exponential(),
            };
            told += u64::from(added_tokens);
            // What is drawn does not depend on where a session has to end.
            is_over |= told > self.prompt_tokens_max.min(u64::from(u32::MAX));
            if !is_over {
                let think = SimDuration::from_ms(think_s * 1e3).unwrap_or_default();
                planned.push_back(Planned { think, added_tokens, output_tokens });
            }
            told += u64::from(output_tokens);
        }
        planned
    }
}

/// A session under way.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) name: Name,
    /// The process whose arrival began it.
    pub(super) process: usize,
    pub(super) class: u16,
    /// All that was said.
    pub(super) told: Vec<Piece>,
    /// Tokens of it.
    pub(super) tokens: u32,
    /// The turns to come; the first of them is due or waits for an answer.
    pub(super) planned: VecDeque<Planned>,
}

impl Session {
    /// What the coming turn follows.
    pub(super) fn turn(&self, delay: SimDuration, is_start: bool) -> Turn {
        Turn { session: Some(self.name), delay, is_start, ..Turn::default() }
    }

    /// Something was said.
    pub(super) fn tell(&mut self, piece: Piece) {
        if piece.tokens > 0 {
            self.told.push(piece);
            self.tokens = self.tokens.saturating_add(piece.tokens);
        }
    }
}
