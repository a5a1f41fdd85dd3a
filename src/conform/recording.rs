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
    let is_sglang = !vllm::is_expectation(path) && sglang::is_recording(path)?;
    Ok(is_sglang.then_some(Family::Sglang))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with these files.
    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn recordings_are_told_by_name_and_by_their_first_line() {
        let folder = folder(&[
            ("b.case.json", "not looked at"),
            ("b.expect.jsonl", "{\"input\": 1}"),
            ("a.jsonl", " { \"input\" : 1}"),
            ("index.json", "{\"input\": 1}"),
            ("trace.jsonl", "{\"timestamp\": 0}\n{\"input\": 1}"),
            ("empty.jsonl", ""),
        ]);
        let found = find_recordings(folder.path()).unwrap();
        let found: Vec<_> = found.iter().map(|r| (r.path.clone(), r.family)).collect();
        let path = |name| folder.path().join(name);
        let expected = [(path("a.jsonl"), Family::Sglang), (path("b.case.json"), Family::Vllm)];
        assert_eq!(found, expected);
        for name in ["index.json", "trace.jsonl", "empty.jsonl", "b.expect.jsonl"] {
            let refused = find_recordings(&path(name)).unwrap_err();
            assert!(matches!(refused, ConformError::NoCase { .. }), "{name}: {refused}");
        }
        let refused = find_recordings(&path("absent")).unwrap_err();
        assert!(matches!(refused, ConformError::Io { .. }), "{refused}");
    }

    #[test]
    fn a_case_is_shown_as_its_file_and_its_name_among_several() {
        let case = |name| {
            format!(
                "{{\"input\": {{\"name\": \"{name}\", \"config\": {{\"max_total_tokens\": 64}}, \
                 \"requests\": []}}}}\n"
            )
        };
        let folder = folder(&[("x.jsonl", &(case("one") + &case("two"))), ("y.case.json", "")]);
        let found = find_recordings(folder.path()).unwrap();
        let shown = found.iter().flat_map(|recording| recording.cases().unwrap());
        let shown: Vec<_> = shown.map(|case| (case.to_string(), case.name().is_some())).collect();
        let [x, y] = ["x.jsonl", "y.case.json"].map(|name| folder.path().join(name));
        let [x, y] = [x.display(), y.display()];
        assert_eq!(
            shown,
            [(format!("{x}, one"), true), (format!("{x}, two"), true), (format!("{y}"), false)]
        );
    }
}
