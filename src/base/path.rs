//! Paths as a scenario means them.

use std::path::{Path, PathBuf};

/// `path` seen from `directory`, absolute where the system knows the current folder. An empty path is the folder
/// itself.
pub(crate) fn absolute(directory: &Path, path: &Path) -> PathBuf {
    let joined = directory.join(path);
    std::path::absolute(&joined).unwrap_or(joined)
}
