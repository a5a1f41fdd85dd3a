//! `servesim calibrate`.

use std::io::{self, Write};
use std::path::Path;

use super::Outcome;
use super::accuracy;
use super::args::CalibrateArgs;
use super::error::CliError;
use crate::base::output::ResultFile;
use crate::timing::corrections::{CorrectionOptions, Corrections, Observation};
use crate::timing::error::ProfileError;

/// Learns corrections from observed passes and writes them.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    if accuracy::is_case(&args.observations) {
        return accuracy::calibrate(args);
    }
    let options = CorrectionOptions {
        observations_min: args.observations_min,
        factor_min: args.factor_min,
        factor_max: args.factor_max,
    };
    let observations = Observation::read(&args.observations)?;
    if observations.is_empty() {
        return Err(
            ProfileError::file(&args.observations, "no rows, expected observed passes").into()
        );
    }
    let corrections = Corrections::learn(observations.into_iter(), options)
        .map_err(|cause| CliError::Config { path: args.observations.clone(), cause })?;
    let out = args.out.as_deref().unwrap_or(Path::new("-"));
    let file = ResultFile::create(out, false)?;
    file.put(|out| out.write_all(corrections.save().as_bytes()))?;
    if !corrections.has_factors() {
        writeln!(
            io::stderr(),
            "servesim: no factor was learnt: every kind of pass has fewer than {} observations",
            args.observations_min
        )?;
    }
    Ok(Outcome::Done)
}
