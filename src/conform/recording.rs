//! Files of recorded cases, of every family.

use std::fmt;
use std::path::{Path, PathBuf};

use super::error::ConformError;
use super::files::files_below;
use super::verdict::Verdict;
use super::{sglang, vllm};

/// A file of recorded cases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recording {
    path: PathBuf,
    family: Family,
}

/// Whose recording it is, and with that its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Vllm,
    Sglang,
}

/// The recordings that `path` names: itself, or all below it, in order of name.
///
/// # Errors
/// A file or folder that cannot be read, or no recording.
pub fn find_recordings(path: &Path) -> Result<Vec<Recording>, ConformError> {
    let mut recordings = Vec::new();
    for file in files_below(path)? {
        if let Some(family) = family(&file)? {
            recordings.push(Recording { path: file, family });
        }
    }
    if recordings.is_empty() {
        return Err(ConformError::NoCase { path: path.to_owned() });
    }
    Ok(recordings)
}

fn family(path: &Path) -> Result<Option<Family>, ConformError> {
    if vllm::is_recording(path) {
        return Ok(Some(Family::Vllm));
    }
    Ok(sglang::is_recording(path)?.then_some(Family::Sglang))
}

impl Recording {
    /// The file; of vLLM's recordings that of the case.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cases in it, in their order.
    ///
    /// # Errors
    /// The file cannot be read, or is not as the format says.
    pub fn cases(&self) -> Result<Vec<RecordedCase>, ConformError> {
        let case = |form| RecordedCase { path: self.path.clone(), form };
        Ok(match self.family {
            Family::Vllm => vec![case(Form::Vllm)],
            Family::Sglang => {
                let blocks = sglang::blocks(&self.path)?;
                blocks.into_iter().map(|block| case(Form::Sglang(block))).collect()
            }
        })
    }
}

/// One recorded case. It is shown as its file, and its name where a file holds several.
#[derive(Clone, Debug)]
pub struct RecordedCase {
    path: PathBuf,
    form: Form,
}

#[derive(Clone, Debug)]
enum Form {
    Vllm,
    Sglang(sglang::Block),
}

impl RecordedCase {
    /// Its name, where its file holds several.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        match &self.form {
            Form::Vllm => None,
            Form::Sglang(block) => Some(block.name()),
        }
    }

    /// Replays the case, request by request, and compares every line with its recording; then in
    /// step, and compares what became of each request.
    ///
    /// # Errors
    /// The case or its recording cannot be used.
    pub fn check(&self) -> Result<Verdict, ConformError> {
        match &self.form {
            Form::Vllm => vllm::check(&self.path),
            Form::Sglang(block) => sglang::check(block, &self.path),
        }
    }
}

impl fmt::Display for RecordedCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.display().fmt(f)?;
        self.name().map_or(Ok(()), |name| write!(f, ", {name}"))
    }
}
