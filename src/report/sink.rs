//! What takes down the facts of a run one after the other, and makes a result of them at its end.

use crate::base::detail::PassDetail;
use crate::base::ids::EngineId;
use crate::base::output::{OutputError, ResultFile};
use crate::base::time::{SimDuration, SimTime};
use crate::metrics::pass_rows::PassRows;
use crate::metrics::record::{PassRecord, Rejection, RequestRecord, Unserved};
use crate::metrics::requests::RequestSink;

use super::Report;

/// Takes down the facts of a run. What it does not ask for costs nothing.
///
/// Passes and ends come in the order in which each engine tells them; engines take turns.
pub(crate) trait Sink {
    /// What has to be told.
    fn wants(&self) -> Wants {
        Wants::default()
    }

    /// Before anything else: the KV blocks of each engine, by id.
    fn engines(&mut self, _usable_blocks: &[u32]) {}

    /// From now on classes have these names, by number.
    fn classes(&mut self, _names: &[String]) {}

    /// A pass, or several alike.
    fn pass(&mut self, _pass: &PassRecord) {}

    /// Each pass by itself, if wanted.
    ///
    /// # Errors
    /// It cannot be written.
    fn detail(&mut self, _pass: &PassDetail) -> Result<(), OutputError> {
        Ok(())
    }

    /// From `since` to its next pass, `engine` runs no request; so many wait.
    fn idle(&mut self, _engine: EngineId, _since: SimTime, _waiting: u32) {}

    /// `count` emissions of counted requests came `gap` after the one before of the same request.
    fn emission_gap(&mut self, _gap: SimDuration, _count: u64) {}

    /// So many tokens of counted requests came together with the one before.
    fn burst_tokens(&mut self, _count: u64) {}

    /// A request finished; `counted` says whether the statistics take it in.
    ///
    /// # Errors
    /// It cannot be written.
    fn finished(&mut self, _record: &RequestRecord, _counted: bool) -> Result<(), OutputError> {
        Ok(())
    }

    /// A request was turned away.
    ///
    /// # Errors
    /// It cannot be written.
    fn rejected(
        &mut self,
        _request: &Unserved,
        _why: Rejection,
        _counted: bool,
    ) -> Result<(), OutputError> {
        Ok(())
    }

    /// A request was still waiting or running when the run ended.
    ///
    /// # Errors
    /// It cannot be written.
    fn unfinished(&mut self, _request: &Unserved, _counted: bool) -> Result<(), OutputError> {
        Ok(())
    }

    /// All that one engine had to tell this time was told; what it tells next is no earlier.
    ///
    /// # Errors
    /// It cannot be written.
    fn told(&mut self) -> Result<(), OutputError> {
        Ok(())
    }

    /// The run has ended, and this is its report. The files are complete but not in their place yet.
    ///
    /// # Errors
    /// They cannot be written.
    fn finish(self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError>;
}

/// What has to be told to a sink besides what every run tells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wants {
    /// Every pass in full.
    pub(crate) details: bool,
    /// Every request of every pass in full: requests cannot decode in step.
    pub(crate) every_share: bool,
}

impl Wants {
    /// What either asks for.
    #[must_use]
    pub(crate) const fn and(self, other: Self) -> Self {
        Self {
            details: self.details || other.details,
            every_share: self.every_share || other.every_share,
        }
    }
}

impl Sink for RequestSink {
    fn classes(&mut self, names: &[String]) {
        self.name_classes(names);
    }

    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        Self::finished(self, record, counted)
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        why: Rejection,
        counted: bool,
    ) -> Result<(), OutputError> {
        Self::rejected(self, request, why, counted)
    }

    fn unfinished(&mut self, request: &Unserved, counted: bool) -> Result<(), OutputError> {
        Self::unfinished(self, request, counted)
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(vec![self.into_file()?])
    }
}

impl Sink for PassRows {
    fn wants(&self) -> Wants {
        Wants { details: true, ..Wants::default() }
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        self.write(pass)
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(vec![self.into_file()?])
    }
}

/// A sink that stays with whoever asked for the run.
pub(crate) struct Lent<'a>(pub(crate) &'a mut dyn Sink);

impl Sink for Lent<'_> {
    fn wants(&self) -> Wants {
        self.0.wants()
    }

    fn engines(&mut self, usable_blocks: &[u32]) {
        self.0.engines(usable_blocks);
    }

    fn classes(&mut self, names: &[String]) {
        self.0.classes(names);
    }

    fn pass(&mut self, pass: &PassRecord) {
        self.0.pass(pass);
    }

    fn detail(&mut self, pass: &PassDetail) -> Result<(), OutputError> {
        self.0.detail(pass)
    }

    fn idle(&mut self, engine: EngineId, since: SimTime, waiting: u32) {
        self.0.idle(engine, since, waiting);
    }

    fn emission_gap(&mut self, gap: SimDuration, count: u64) {
        self.0.emission_gap(gap, count);
    }

    fn burst_tokens(&mut self, count: u64) {
        self.0.burst_tokens(count);
    }

    fn finished(&mut self, record: &RequestRecord, counted: bool) -> Result<(), OutputError> {
        self.0.finished(record, counted)
    }

    fn rejected(
        &mut self,
        request: &Unserved,
        why: Rejection,
        counted: bool,
    ) -> Result<(), OutputError> {
        self.0.rejected(request, why, counted)
    }

    fn unfinished(&mut self, request: &Unserved, counted: bool) -> Result<(), OutputError> {
        self.0.unfinished(request, counted)
    }

    fn told(&mut self) -> Result<(), OutputError> {
        self.0.told()
    }

    fn finish(self: Box<Self>, _report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        Ok(Vec::new())
    }
}

/// `report.json`.
pub(crate) struct JsonSink(pub(crate) ResultFile);

impl Sink for JsonSink {
    fn finish(mut self: Box<Self>, report: &Report) -> Result<Vec<ResultFile>, OutputError> {
        self.0.fill(|out| report.write_json(out))?;
        Ok(vec![self.0])
    }
}
