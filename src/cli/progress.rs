//! A line on standard error that moves while a run is long; silent where nobody watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::simulate::Progress;

/// The line.
pub(super) struct ProgressLine(ProgressBar);

impl ProgressLine {
    /// A line for a run of about `requests` requests, if that is known. It draws only on a terminal.
    pub(super) fn new(requests: Option<u64>, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            ProgressDrawTarget::stderr_with_hz(10)
        };
        let bar = ProgressBar::with_draw_target(requests, target);
        let template = match requests {
            Some(_) => "{bar:30} {human_pos}/{human_len} requests, {msg}, {per_sec}, {eta} left",
            None => "{spinner} {human_pos} requests, {msg}, {per_sec}",
        };
        bar.set_style(ProgressStyle::with_template(template).expect("a fixed template is valid"));
        Self(bar)
    }

    /// Takes the line away.
    pub(super) fn clear(&self) {
        self.0.finish_and_clear();
    }
}

impl Progress for ProgressLine {
    fn update(&mut self, ended: u64, simulated_s: f64) {
        // Short runs show nothing.
        if self.0.elapsed() > Duration::from_millis(500) && !self.0.is_hidden() {
            let speed = simulated_s / self.0.elapsed().as_secs_f64();
            self.0.set_message(format!("{simulated_s:.0} s simulated ({speed:.0}x)"));
            // What was expected may have been an estimate.
            if self.0.length().is_some_and(|expected| ended > expected) {
                self.0.set_length(ended);
            }
            self.0.set_position(ended);
        }
    }
}
