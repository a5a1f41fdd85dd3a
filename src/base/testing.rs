//! What tests of several modules need.

use std::path::{Path, PathBuf};

/// The file or folder at `name` below the shared folder, which `$SERVESIM_SHARED` names and which else lies beside the
/// crate, if it is at hand.
pub(crate) fn shared(name: &str) -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let folder = std::env::var_os("SERVESIM_SHARED").map_or_else(beside, PathBuf::from);
    let path = folder.join(name);
    let is_there = path.exists();
    if !is_there {
        #[expect(clippy::print_stderr, reason = "a skipped test must say so")]
        {
            eprintln!("skipped: {} is not there", path.display());
        }
    }
    is_there.then_some(path)
}
