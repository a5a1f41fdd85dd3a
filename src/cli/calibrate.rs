//! `servesim calibrate`.

use std::io::{BufWriter, Write};

use super::Outcome;
use super::args::CalibrateArgs;
use super::error::CliError;
use crate::base::output::{OutFile, OutputError};
use crate::timing::corrections::{CorrectionOptions, Corrections, Observation};

/// Learns corrections from observed passes and writes them.
pub(super) fn calibrate(args: &CalibrateArgs) -> Result<Outcome, CliError> {
    let options = CorrectionOptions {
        observations_min: args.observations_min,
        factor_min: args.factor_min,
        factor_max: args.factor_max,
    };
    let observations = Observation::read(&args.observations)?;
    let corrections = Corrections::learn(observations.into_iter(), options)
        .map_err(|cause| CliError::Config { path: args.observations.clone(), cause })?;
    let write = || {
        let mut out = BufWriter::new(OutFile::create(&args.out)?);
        out.write_all(corrections.save().as_bytes())?;
        out.into_inner().map_err(std::io::IntoInnerError::into_error)?.commit()
    };
    write().map_err(|error| OutputError::write(&args.out, error))?;
    Ok(Outcome::Done)
}
