//! `servesim calibrate`.

use std::io::{self, Write};

use super::Outcome;
use super::args::CalibrateArgs;
use super::error::CliError;
use crate::base::output::ResultFile;
use crate::timing::corrections::{CorrectionOptions, Corrections, Observation};
use crate::timing::error::ProfileError;

/// Learns corrections from observed passes and writes them.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<Outcome, CliError> {
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
    let file = ResultFile::create(&args.out, false)?;
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
