//! A child process that answers lines with lines.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// What of its standard error is kept: the end.
const TOLD_BYTES_MAX: usize = 4096;

/// The longest line that is an answer.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Answers that may come before their questions: a child that says more has to wait.
const LINES_AHEAD_MAX: usize = 16;

/// How long a child that failed is given to say why.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// A child process.
pub(super) struct Child {
    process: std::process::Child,
    /// Lines for its standard input; closed when the child is to end.
    questions: Option<SyncSender<String>>,
    lines: Receiver<io::Result<String>>,
    /// The end of what it wrote to its standard error.
    told: Arc<Mutex<Vec<u8>>>,
    /// Closes when the child's standard error does.
    told_all: Receiver<()>,
    timeout: Duration,
}

impl Child {
    /// Starts `command` in `directory`; `about` is the deployment, as JSON, in its environment.
    pub(super) fn start(
        command: &[String],
        directory: &Path,
        about: &str,
        timeout: Duration,
    ) -> io::Result<Self> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let mut process = Command::new(program)
            .args(arguments)
            .current_dir(directory)
            .env("SERVESIM_DEPLOYMENT", about)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = process.stdin.take().expect("it is piped");
        let stdout = process.stdout.take().expect("it is piped");
        let mut stderr = process.stderr.take().expect("it is piped");
        // Threads only move bytes: reads and writes with a deadline need them, and a full pipe would block.
        let (questions, lines_to_write) = sync_channel::<String>(1);
        thread::spawn(move || {
            while let Ok(line) = lines_to_write.recv() {
                // A child that does not read may answer why, or not at all: the reader will see.
                if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        });
        let (send_line, lines) = sync_channel(LINES_AHEAD_MAX);
        thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            loop {
                let mut line = String::new();
                let read = stdout.by_ref().take(LINE_BYTES_MAX).read_line(&mut line);
                let is_last = !matches!(read, Ok(1..));
                let line = read.map(|_| line);
                if send_line.send(line).is_err() || is_last {
                    return;
                }
            }
        });
        let told = Arc::new(Mutex::new(Vec::new()));
        let (open, told_all) = channel::<()>();
        let kept = Arc::clone(&told);
        thread::spawn(move || {
            let _open = open;
            let mut buffer = [0; 1024];
            while let Ok(bytes @ 1..) = stderr.read(&mut buffer) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.extend_from_slice(&buffer[..bytes]);
                let excess = kept.len().saturating_sub(TOLD_BYTES_MAX);
                kept.drain(..excess);
            }
        });
        Ok(Self { process, questions: Some(questions), lines, told, told_all, timeout })
    }

    /// Asks a line and gives the line that answers it; else, in words, what came instead.
    pub(super) fn ask(&mut self, line: &str) -> Result<String, String> {
        let questions = self.questions.as_ref().expect("it is open as long as the child lives");
        // Full or closed: the child does not read. What it says goes first.
        let taken = questions.try_send(format!("{line}\n")).is_ok();
        match self.lines.recv_timeout(self.timeout) {
            Ok(Ok(line)) if !line.is_empty() => Ok(line),
            Ok(Err(error)) => Err(format!("gave no line of text: {error}")),
            Err(RecvTimeoutError::Timeout) => {
                Err(format!("gave no answer within {} ms", self.timeout.as_millis()))
            }
            Ok(Ok(_)) | Err(RecvTimeoutError::Disconnected) => Err(match self.exit_status() {
                Some(status) => format!("ended before it answered ({status})"),
                None if taken => "closed its standard output".to_owned(),
                None => "does not read its standard input".to_owned(),
            }),
        }
    }

    /// How it ended, if it does within a moment.
    fn exit_status(&mut self) -> Option<std::process::ExitStatus> {
        for _ in 0..20 {
            if let Ok(Some(status)) = self.process.try_wait() {
                return Some(status);
            }
            thread::sleep(LAST_WORDS / 20);
        }
        None
    }

    /// The end of what it wrote to its standard error.
    pub(super) fn last_words(&self) -> String {
        // Waits until the pipe is closed, but not for long: the child may live on.
        let _ = self.told_all.recv_timeout(LAST_WORDS);
        let told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&told).trim().to_owned()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The end of its input tells it to go; one that stays is made to.
        drop(self.questions.take());
        if self.exit_status().is_none() {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}
