//! The KV capacity that an engine states when it starts.
//!
//! | engine | line |
//! |---|---|
//! | vLLM | `GPU KV cache size: 119,008 tokens` |
//! | vLLM | `# GPU blocks: 7438, # CPU blocks: 2048`, or `num_gpu_blocks is: 7438` |
//! | vLLM | `block_size=16`, or `'block_size': 16` |
//! | SGLang | `max_total_num_tokens=119008`, `page_size=1` |
//!
//! A log may hold several starts: the last one counts. Engines and ranks of one start should agree; where they do not,
//! the smallest is what vLLM itself gives all ranks of an engine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why a log gives no capacity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum EngineLogError {
    /// The file cannot be read.
    #[error("{}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// It states no capacity.
    #[error("{}: no line with a KV capacity, expected one with {}", path.display(), EXPECTED)]
    NoCapacity { path: PathBuf },
}

const EXPECTED: &str =
    "`GPU KV cache size:`, `# GPU blocks:`, `num_gpu_blocks is:` or `max_total_num_tokens=`";

/// What precedes the number of tokens.
const TOKENS: [&str; 2] = ["GPU KV cache size:", "max_total_num_tokens="];

/// What precedes the number of blocks.
const BLOCKS: [&str; 2] = ["# GPU blocks:", "num_gpu_blocks is:"];

/// What the tokens of a block are called.
const BLOCK_SIZES: [&str; 2] = ["block_size", "page_size"];

/// What only the start of an engine says.
const STARTS: [&str; 2] = ["vLLM API server version", "server_args=ServerArgs("];

/// KV capacity of one engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoggedCapacity {
    /// Tokens that fit.
    pub(crate) tokens: Option<u64>,
    /// Blocks, the one of vLLM that is never usable included.
    pub(crate) blocks: Option<u64>,
    /// Tokens of a block.
    pub(crate) block_size: Option<u32>,
}

/// Reads the capacity from a log.
///
/// # Errors
/// The file cannot be read, or states none.
pub(crate) fn read(path: &Path) -> Result<LoggedCapacity, EngineLogError> {
    // Whatever else a log holds need not be UTF-8.
    match fs::read(path) {
        Ok(bytes) => capacity(&String::from_utf8_lossy(&bytes))
            .ok_or_else(|| EngineLogError::NoCapacity { path: path.to_owned() }),
        Err(source) => Err(EngineLogError::Read { path: path.to_owned(), source }),
    }
}

fn capacity(log: &str) -> Option<LoggedCapacity> {
    let (mut last, mut current) = (None, LoggedCapacity::default());
    for line in log.lines() {
        if STARTS.iter().any(|start| line.contains(start)) {
            current = LoggedCapacity::default();
        }
        for (value, names) in [(&mut current.tokens, TOKENS), (&mut current.blocks, BLOCKS)] {
            let Some(found) = names.iter().find_map(|name| after(line, name)) else { continue };
            *value = Some(value.map_or(found, |known| known.min(found)));
        }
        if let Some(size) = BLOCK_SIZES.iter().find_map(|name| setting(line, name)) {
            current.block_size = Some(size);
        }
        // A start that failed before it knew its capacity says nothing.
        if current.tokens.is_some() || current.blocks.is_some() {
            last = Some(current);
        }
    }
    last
}

/// The number behind a text, with commas between its thousands.
fn after(line: &str, name: &str) -> Option<u64> {
    let (_, rest) = line.split_once(name)?;
    number(rest.trim_start())
}

/// The digits at the start of a text; a comma with three more behind it separates thousands.
fn number(text: &str) -> Option<u64> {
    let mut groups = text.split(',');
    let first = groups.next()?;
    let end = first.find(|c: char| !c.is_ascii_digit()).unwrap_or(first.len());
    let mut digits = first[..end].to_owned();
    if end == first.len() {
        for group in groups {
            let end = group.find(|c: char| !c.is_ascii_digit()).unwrap_or(group.len());
            if end != 3 {
                break;
            }
            digits.push_str(&group[..end]);
            if end < group.len() {
                break;
            }
        }
    }
    digits.parse().ok().filter(|&number| number > 0)
}

/// The value of a setting of this name, `name=16`, `'name': 16` or `name: 16`.
fn setting(line: &str, name: &str) -> Option<u32> {
    line.match_indices(name).find_map(|(at, _)| {
        let before = line[..at].chars().next_back();
        // Not the end of another name, such as `hash_block_size`.
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            return None;
        }
        let rest = line[at + name.len()..].trim_start_matches(['\'', '"']);
        let value = rest.strip_prefix('=').or_else(|| rest.strip_prefix(':'))?;
        number(value.trim_start()).and_then(|size| u32::try_from(size).ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of vLLM 0.11.0 with Llama 2 7B on an H100, cut short.
    const VLLM: &str = "\
2026-01-21 10:49:03,749 INFO vllm.entrypoints.openai.api_server: vLLM API server version 0.11.0
2026-01-21 10:49:48,905 INFO vllm.v1.worker.gpu_worker: Available KV cache memory: 58.12 GiB
2026-01-21 10:49:49,115 INFO vllm.v1.core.kv_cache_utils: GPU KV cache size: 119,008 tokens
2026-01-21 10:49:53,510 INFO vllm.v1.metrics.loggers: Engine 000: vllm cache_config_info with initialization after num_gpu_blocks is: 7438
2026-01-21 10:49:53,591 INFO vllm.entrypoints.launcher: Route: /version, Methods: GET
";

    fn blocks(blocks: u64) -> LoggedCapacity {
        LoggedCapacity { blocks: Some(blocks), ..LoggedCapacity::default() }
    }

    #[test]
    fn what_vllm_logs_is_found() {
        let expected =
            LoggedCapacity { tokens: Some(119_008), blocks: Some(7438), block_size: None };
        assert_eq!(capacity(VLLM), Some(expected));
        let with_size = VLLM.replace("version 0.11.0", "version 0.11.0\nargs: {'block_size': 16}");
        assert_eq!(capacity(&with_size).unwrap().block_size, Some(16));
        assert_eq!(capacity("INFO: # GPU blocks: 7438, # CPU blocks: 2048"), Some(blocks(7438)));
    }

    #[test]
    fn what_sglang_logs_is_found() {
        let log = "server_args=ServerArgs(model_path='m', page_size=1, tp_size=2)\n\
                   max_total_num_tokens=433227, chunked_prefill_size=8192, max_prefill_tokens=16384\n";
        let expected = LoggedCapacity {
            tokens: Some(433_227),
            block_size: Some(1),
            ..LoggedCapacity::default()
        };
        assert_eq!(capacity(log), Some(expected));
    }

    #[test]
    fn the_last_start_counts_and_in_it_the_smallest() {
        let log = "vLLM API server version 1\nnum_gpu_blocks is: 10\n\
                   vLLM API server version 1\nnum_gpu_blocks is: 300\nnum_gpu_blocks is: 290\n";
        let expected = blocks(290);
        assert_eq!(capacity(log), Some(expected));
        // A start that came to nothing leaves the one before.
        let log = "vLLM API server version 1\nnum_gpu_blocks is: 10\nvLLM API server version 1\n";
        assert_eq!(capacity(log), Some(blocks(10)));
    }

    #[test]
    fn other_names_and_numbers_are_left_alone() {
        let line = "hash_block_size=32 'mamba_block_size': 8 block_size=None block_size: 64";
        assert_eq!(setting(line, "block_size"), Some(64));
        assert_eq!(number("1,234,567 tokens"), Some(1_234_567));
        assert_eq!(number("7438, # CPU"), Some(7438));
        assert_eq!(number("12,34"), Some(12));
        assert_eq!(number("99999999999999999999999"), None);
        assert_eq!(number("None"), None);
        assert_eq!(capacity("GPU KV cache usage: 34.4%"), None);
    }

    #[test]
    fn a_log_without_a_capacity_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("engine.log");
        assert!(matches!(read(&path), Err(EngineLogError::Read { .. })));
        fs::write(&path, b"\xff nothing\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("engine.log: no line with a KV capacity"), "{error}");
        fs::write(&path, VLLM).unwrap();
        assert_eq!(read(&path).unwrap().blocks, Some(7438));
    }
}
