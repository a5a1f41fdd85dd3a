//! What the fuzzers of `fuzz/` call: any bytes are read as a file. Nothing may panic.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::scenario::Scenario;
use crate::workload::request::Content;
use crate::workload::sessions::Sessions;
use crate::workload::sessions::config::{ClosedConfig, OpenConfig, SessionsConfig, ThinkConfig};
use crate::workload::source::RequestSource;
use crate::workload::trace::TraceError;
use crate::workload::trace::TraceSource;
use crate::workload::trace::config::{Ties, TraceConfig, TraceFormat};
use crate::workload::trace::validate::validate;

/// The formats, by the low four bits of the first byte: `@` is `auto`, `A` the next, `O` the last.
const FORMATS: [TraceFormat; 16] = [
    TraceFormat::Auto,
    TraceFormat::Mooncake,
    TraceFormat::MooncakeDelta,
    TraceFormat::Azure,
    TraceFormat::BurstGpt,
    TraceFormat::QwenBailian,
    TraceFormat::Splitwise,
    TraceFormat::ServegenCsv,
    TraceFormat::Vidur,
    TraceFormat::VllmTimedTrace,
    TraceFormat::VllmBench,
    TraceFormat::Apex,
    TraceFormat::RagPulse,
    TraceFormat::Weka,
    TraceFormat::Csv,
    TraceFormat::Jsonl,
];

/// Lengths of the ids 1 to 4 of each part, which stand beside a `RAGPulse` trace.
const LENGTHS: [(&str, &str); 5] = [
    ("1_sys_prompt.jsonl", "sys_prompt_id"),
    ("2_passages.jsonl", "passage_id"),
    ("3_history.jsonl", "history_id"),
    ("4_user_input.jsonl", "user_input_id"),
    ("5_web_search.jsonl", "web_search_id"),
];

/// Requests that are replayed, and problems that are told.
const LIMIT: u64 = 10_000;

/// A trace in a folder that is there as long as this is.
struct Trace {
    _folder: TempDir,
    config: TraceConfig,
}

impl Trace {
    /// The first byte says the format. Of the second, the lowest two bits say how sessions are followed
    /// (0: not), bit 2 whether the column `kind` is the class, bit 3 that ties go by the file, bit 4 that
    /// nothing is sorted, bit 5 that ids are of 16 tokens. The rest is the file.
    ///
    /// # Errors
    /// It cannot be written.
    fn new(bytes: &[u8]) -> io::Result<Option<Self>> {
        let &[format, switches, ref file @ ..] = bytes else { return Ok(None) };
        let format = FORMATS[usize::from(format & 15)];
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("0_trace.jsonl");
        fs::write(&path, file)?;
        if format == TraceFormat::RagPulse {
            write_lengths(folder.path())?;
        }
        let has = |bit: u8| switches & bit != 0;
        let config = TraceConfig {
            path,
            format,
            sessions: match switches & 3 {
                0 => None,
                1 => Some(SessionsConfig::Think(ThinkConfig::default())),
                2 => Some(SessionsConfig::Closed(ClosedConfig {
                    users: 2,
                    ..ClosedConfig::default()
                })),
                _ => Some(SessionsConfig::Open(OpenConfig {})),
            },
            class_field: has(4).then(|| "kind".to_owned()),
            ties: if has(8) { Ties::File } else { Ties::Content },
            sort_window_s: if has(16) { 0.0 } else { 60.0 },
            hash_block_tokens: has(32).then_some(16),
            limit: Some(LIMIT),
            ..TraceConfig::default()
        };
        Ok(Some(Self { _folder: folder, config }))
    }
}

fn write_lengths(folder: &Path) -> io::Result<()> {
    for (file, id) in LENGTHS {
        let row = |n: u32| format!("{{\"{id}\": {n}, \"token_length\": {}}}\n", n * 10);
        fs::write(folder.join(file), (1..=4).map(row).collect::<String>())?;
    }
    Ok(())
}

/// Replays the trace in `bytes` to its end, on a deployment that answers at once. The first two bytes say
/// how it is read.
///
/// # Panics
/// A request is not what every source promises.
pub fn read_trace(bytes: &[u8]) {
    if let Ok(Some(trace)) = Trace::new(bytes)
        && let Err(error) = replay(&trace.config)
    {
        // An error has to have words.
        assert!(!error.to_string().is_empty());
    }
}

fn replay(config: &TraceConfig) -> Result<(), TraceError> {
    let open = || TraceSource::open(config);
    let mut source = match &config.sessions {
        Some(sessions) => Sessions::open(sessions, &config.path, open)?,
        None => Sessions::ignored(open()?),
    };
    let mut latest = None;
    for number in 0..LIMIT {
        let Some(arrival) = source.next_arrival()? else { break };
        let request = source.take();
        assert_eq!((request.id.index() as u64, request.arrival), (number, arrival));
        assert!(latest <= Some(arrival), "requests come by arrival");
        latest = Some(arrival);
        if let Content::Pieces(pieces) = &request.content {
            let tokens = pieces.iter().map(|piece| u64::from(piece.tokens)).sum::<u64>();
            assert_eq!(tokens, u64::from(request.prompt_tokens), "pieces add up to the prompt");
            assert!(pieces.iter().all(|piece| piece.tokens > 0), "no piece is empty");
        }
        let names = source.class_names();
        assert!(names.is_empty() || usize::from(request.class) < names.len());
        if source.follows_ends() {
            source.ended(request.id, arrival);
        }
    }
    Ok(())
}

/// Checks the trace in `bytes`, the first two of which say how it is read.
pub fn validate_trace(bytes: &[u8]) {
    if let Ok(Some(trace)) = Trace::new(bytes) {
        let found = validate::<TraceError>(&trace.config, LIMIT, |problem| {
            assert!(!problem.to_string().is_empty());
            Ok(())
        });
        drop(found);
    }
}

/// Reads and resolves the scenario in `bytes`; nothing is simulated.
pub fn read_scenario(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let path = PathBuf::from("scenario.yaml");
    match Scenario::from_text(text, &path) {
        Ok(scenario) => {
            if let Err(error) = scenario.resolve(Path::new("")) {
                assert!(!error.to_string().is_empty());
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
