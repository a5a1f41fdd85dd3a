//! A trace, changed on its way in: sampled, repeated, at another rate, with other lengths.
//!
//! The order is spreading, sampling, repetition, rate or arrivals, lengths, factors, the output limit.
//! What a change draws comes from a stream of its own. Memory does not depend on the trace, but
//! for some bytes a request of one copy where some are left out. Sources that follow the end of requests by
//! themselves, as sessions do, cannot be reshaped.

pub(crate) mod config;
mod copies;
#[cfg(test)]
mod tests;

use serde::Serialize;

use super::arrivals::Arrivals;
use super::lengths::Length;
use super::lengths::config::LengthConfig;
use super::request::{Content, Piece, RequestSpec, Segment, Turn};
use super::sessions::config::SessionsConfig;
use super::source::{RequestSource, SourceDescription, TraceCounts};
use super::trace::TraceError;
use super::trace::config::TraceConfig;
use crate::base::config::ConfigError;
use crate::base::ids::RequestId;
use crate::base::rng::Stream;
use crate::base::time::{SimDuration, SimTime};
use copies::Copies;

/// Requests from a trace, changed as its configuration says.
pub(crate) struct ReshapedTrace {
    copies: Copies,
    is_changed: bool,
    /// Multiplies the time between arrivals.
    stretch: Option<f64>,
    arrivals: Option<Arrivals>,
    /// Whether these are for requests alone that wait for nobody.
    starts_only: bool,
    prompt: Option<(Length, Stream)>,
    output: Option<(Length, Stream)>,
    prompt_factor: f64,
    output_factor: f64,
    /// Whether outputs are replaced or scaled; then limits follow them.
    changes_outputs: bool,
    max_tokens: Option<u32>,
    /// The request that comes next, once it has been asked for; its arrival may not be known yet.
    next: Option<RequestSpec>,
    /// Whether the last request has been read, or an error was met.
    spent: bool,
}

/// What the changes came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ReshapeCounts {
    /// Requests handed out, of all copies.
    pub(crate) requests: u64,
    /// Requests that the sample left out, of all copies.
    pub(crate) left_out: u64,
}

/// Requests, and the arrivals of the first and the last.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    requests: u64,
    first: Option<SimTime>,
    last: SimTime,
}

impl ReshapedTrace {
    /// Opens the trace that a resolved configuration describes. To change its rate, and for the arrivals
    /// of `vllm_bench`, it is read to its end first.
    ///
    /// # Errors
    /// The trace, or a file of lengths, cannot be used; there is no rate to change.
    pub(crate) fn open(config: &TraceConfig, seed: u64) -> Result<Self, TraceError> {
        let reshape = config.reshape.as_deref().cloned().unwrap_or_default();
        let is_changed = config.reshape.is_some();
        let starts_only = !matches!(config.sessions, None | Some(SessionsConfig::Open(_)));
        let changes_outputs = reshape.changes_outputs();
        // The limit is for what requests are in the end.
        let max_tokens = config.max_tokens.filter(|_| !changes_outputs);
        let trace = TraceConfig { max_tokens, reshape: None, ..config.clone() };
        let span = if reshape.counts_first() {
            span_of(Copies::open(&trace, &reshape, seed)?, starts_only)?
        } else {
            Span { requests: u64::MAX, ..Span::default() }
        };
        let stretch = reshape.requests_per_s.map(|rate| stretch(span, rate)).transpose()?;
        let length = |config: &Option<LengthConfig>, name| match config {
            Some(config) => Ok(Some((Length::new(config)?, Stream::new(seed, name)))),
            None => Ok::<_, TraceError>(None),
        };
        let arrivals = reshape.arrivals.as_ref();
        Ok(Self {
            copies: Copies::open(&trace, &reshape, seed)?,
            is_changed,
            stretch,
            starts_only,
            arrivals: arrivals.map(|config| Arrivals::new(config, span.requests, seed, "trace")),
            prompt: length(&reshape.prompt_tokens, "trace.prompt_tokens")?,
            output: length(&reshape.output_tokens, "trace.output_tokens")?,
            prompt_factor: reshape.prompt_factor,
            output_factor: reshape.output_factor,
            changes_outputs,
            max_tokens: config.max_tokens,
            next: None,
            spent: false,
        })
    }

    /// What has been read and left out so far, of the copy that is being read; final once there is no
    /// next arrival.
    pub(crate) fn counts(&self) -> TraceCounts {
        self.copies.source().counts()
    }

    /// How the trace is being read, for the report; final at the same time as the counts.
    pub(crate) fn describe(&self) -> SourceDescription {
        self.copies.source().describe()
    }

    /// What the changes came to; `None` where there are none.
    pub(crate) fn changes(&self) -> Option<ReshapeCounts> {
        let (requests, left_out) = self.copies.counts();
        self.is_changed.then_some(ReshapeCounts { requests, left_out })
    }

    /// The next request, changed, by its recorded arrival.
    fn make(&mut self) -> Result<Option<RequestSpec>, TraceError> {
        let Some(mut request) = self.copies.next()? else { return Ok(None) };
        if let Some(stretch) = self.stretch {
            let ns = (request.arrival.as_ns() as f64 * stretch).round();
            // The conversion saturates, and is then too late.
            request.arrival = SimTime::from_ns(ns as u64);
            check_time(request.arrival)?;
        }
        let mut prompt_tokens = request.prompt_tokens;
        if let Some((length, draws)) = &mut self.prompt {
            prompt_tokens = length.at(draws.normal());
            request.content = resized(request.content, prompt_tokens, request.id);
        }
        request.prompt_tokens = scaled(prompt_tokens, self.prompt_factor);
        request.content = stretched(request.content, request.prompt_tokens, self.prompt_factor);
        if let Some((length, draws)) = &mut self.output {
            request.output_tokens = length.at(draws.normal());
        }
        if self.changes_outputs {
            let output_tokens = scaled(request.output_tokens, self.output_factor);
            request.max_tokens = self.max_tokens.unwrap_or(output_tokens);
            request.output_tokens = output_tokens.min(request.max_tokens);
        }
        Ok(Some(request))
    }
}

impl RequestSource for ReshapedTrace {
    fn next_arrival(&mut self) -> Result<Option<SimTime>, TraceError> {
        if self.next.is_none() && !self.spent {
            // An error leaves the source spent.
            self.spent = true;
            self.next = self.make()?;
            self.spent = self.next.is_none();
        }
        match (&self.next, &self.arrivals) {
            (Some(next), Some(arrivals)) if is_for(next, self.starts_only) => {
                Ok(arrivals.next().map_err(|e| e.within("workload.trace.reshape"))?)
            }
            (next, _) => Ok(next.as_ref().map(|request| request.arrival)),
        }
    }

    fn take(&mut self) -> RequestSpec {
        let arrival = self.next_arrival().ok().flatten().expect("the caller asks first");
        let request = self.next.take().expect("the caller asks for the next arrival first");
        let Some(arrivals) = &mut self.arrivals else { return request };
        if is_for(&request, self.starts_only) {
            arrivals.take();
        }
        let turn = request.turn.map(|turn| Box::new(Turn { lacks_arrival: false, ..*turn }));
        RequestSpec { arrival, turn, ..request }
    }

    fn class_names(&self) -> &[String] {
        self.copies.source().class_names()
    }

    fn follows_ends(&self) -> bool {
        self.arrivals.as_ref().is_some_and(Arrivals::follows_ends)
    }

    fn ended(&mut self, _id: RequestId, at: SimTime) {
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.ended(at);
        }
    }
}

/// Whether arrivals, perhaps for starts alone, are for `request`.
fn is_for(request: &RequestSpec, starts_only: bool) -> bool {
    !starts_only || request.turn.as_ref().is_none_or(|turn| turn.is_start)
}

/// Reads to the end.
fn span_of(mut copies: Copies, starts_only: bool) -> Result<Span, TraceError> {
    let mut span = Span::default();
    while let Some(request) = copies.next()? {
        span.requests += u64::from(is_for(&request, starts_only));
        span.first.get_or_insert(request.arrival);
        span.last = request.arrival;
    }
    Ok(span)
}

/// What the time between arrivals is multiplied by for `rate` requests per second in the mean: n - 1
/// gaps over the time from the first to the last.
fn stretch(span: Span, rate: f64) -> Result<f64, ConfigError> {
    let lasts = span.first.map_or(SimDuration::ZERO, |first| span.last.since(first));
    if lasts == SimDuration::ZERO {
        let accepted = "none for requests that all arrive at one instant: they have no rate";
        return Err(ConfigError::new("workload.trace.reshape.requests_per_s", rate, accepted));
    }
    Ok((span.requests - 1) as f64 / lasts.as_s() / rate)
}

fn check_time(arrival: SimTime) -> Result<(), ConfigError> {
    if arrival <= SimTime::LATEST_INPUT {
        return Ok(());
    }
    let found = format!("such that a request arrives at {} s", arrival.as_s());
    Err(ConfigError::new("workload.trace.reshape", found, "arrivals within 100 years"))
}

/// `tokens` times `factor`, rounded; at least 1 unless there were none.
fn scaled(tokens: u32, factor: f64) -> u32 {
    if tokens == 0 { 0 } else { end_at(tokens, factor).max(1) }
}

/// `tokens` times `factor`, rounded; the conversion saturates.
fn end_at(tokens: u32, factor: f64) -> u32 {
    (f64::from(tokens) * factor).round() as u32
}

/// A prompt of other length: cut, or continued by tokens of its own.
fn resized(content: Content, tokens: u32, id: RequestId) -> Content {
    let Content::Pieces(pieces) = content else { return Content::Private };
    let mut left = tokens;
    let mut kept: Vec<Piece> = Vec::with_capacity(pieces.len() + 1);
    for piece in pieces {
        kept.push(Piece { tokens: piece.tokens.min(left), ..piece });
        left -= piece.tokens.min(left);
    }
    kept.push(Piece { segment: Segment::Prompt(id), tokens: left });
    of_pieces(kept)
}

/// A prompt whose pieces end at `factor` times the place where they ended, the last at `tokens`: what
/// two prompts have in common is scaled alike.
fn stretched(content: Content, tokens: u32, factor: f64) -> Content {
    let Content::Pieces(mut pieces) = content else { return Content::Private };
    let (mut old_end, mut start) = (0_u32, 0);
    let last = pieces.len().saturating_sub(1);
    for (place, piece) in pieces.iter_mut().enumerate() {
        old_end = old_end.saturating_add(piece.tokens);
        let end = if place == last { tokens } else { end_at(old_end, factor).min(tokens) };
        piece.tokens = end - start;
        start = end;
    }
    of_pieces(pieces)
}

/// The pieces that have tokens.
fn of_pieces(mut pieces: Vec<Piece>) -> Content {
    pieces.retain(|piece| piece.tokens > 0);
    if pieces.is_empty() { Content::Private } else { Content::Pieces(pieces) }
}
