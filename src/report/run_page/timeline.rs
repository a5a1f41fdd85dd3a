//! The run over time, of all engines and of each.

use crate::metrics::series::{Reached, Row, Rows};
use crate::report::page::Block;
use crate::report::page::chart::{Axis, Chart, Form, Series};

use super::SERIES_MAX;

/// Rows that the charts of rare events have: of more, the charts would show single events.
const FEW_ROWS: usize = 96;

/// Charts that show the pointer of each other.
const SYNC: Option<&str> = Some("time");

/// The charts of all engines; if there are several, those of each too. What never happens has none.
pub(super) fn blocks(rows: &Rows) -> Vec<Block> {
    let total = &rows.total;
    let Some(step_s) = total.first().map(|row| row.width_s).filter(|&width| width > 0.0) else {
        return Vec::new();
    };
    let all = Timeline { rows: total, step_s };
    let several =
        if rows.engines.len() > 1 { "; max: sum of what each engine reached" } else { "" };
    let fullest = if rows.engines.len() > 1 { "; max: the fullest engine" } else { "" };
    let mut charts = vec![
        all.few(
            "Arrivals and completions",
            "requests per second",
            "/s",
            &[
                ("arrivals", 1, |row| row.arrivals as f64),
                ("completions", 2, |row| row.completions as f64),
            ],
        ),
        Chart {
            note: format!("requests in the running list and in the queue{several}"),
            ..all.levels(
                "Running and waiting",
                "requests",
                "",
                &[("running", 1, |row| row.running), ("waiting", 2, |row| row.waiting)],
            )
        },
        Chart {
            note: format!("blocks held by requests over those of the pool{fullest}"),
            ..all.levels("KV usage", "KV blocks held (%)", "%", &[("KV held", 3, kv_percent)])
        },
        Chart {
            note: "of requests that completed; after a first token evenly up to the last"
                .to_owned(),
            ..all.few(
                "Throughput",
                "output tokens per second",
                "tokens/s",
                &[("output tokens", 4, |row| row.output_tokens as f64)],
            )
        },
        Chart {
            note: "tokens that passes compute, recomputation and drafts included".to_owned(),
            stacked: true,
            ..all.rates(
                "What passes compute",
                "tokens per second",
                "tokens/s",
                &[
                    ("decode", 1, |row| row.decode_tokens as f64),
                    ("prefill", 2, |row| row.prefill_tokens as f64),
                ],
            )
        },
        all.busy(rows.engines.len()),
    ];
    if (2..=SERIES_MAX).contains(&rows.engines.len()) {
        let per_engine = PerEngine { engines: &rows.engines, step_s };
        charts.extend([
            per_engine.chart("Running, by engine", "requests", "", |row| row.running.mean),
            per_engine.chart("Waiting, by engine", "requests", "", |row| row.waiting.mean),
            per_engine.chart("KV usage, by engine", "KV blocks held (%)", "%", |row| {
                kv_percent(row).mean
            }),
            per_engine.chart(
                "Throughput, by engine",
                "output tokens per second",
                "tokens/s",
                |row| row.output_tokens as f64 / row.width_s.max(step_s / 2.0),
            ),
        ]);
    }
    charts.into_iter().filter(|chart| !chart.is_flat()).map(Block::chart).collect()
}

fn kv_percent(row: &Row) -> Reached {
    let ratio = row.kv_used_ratio.unwrap_or_default();
    Reached { mean: ratio.mean * 100.0, max: ratio.max * 100.0 }
}

/// Series by what they are of a row.
type Of<'a, T> = &'a [(&'a str, usize, fn(&Row) -> T)];

struct Timeline<'a> {
    rows: &'a [Row],
    /// The length of each but the last, which the run may end in.
    step_s: f64,
}

impl Timeline<'_> {
    fn chart(&self, title: &str, label: &str, unit: &'static str, series: Vec<Series>) -> Chart {
        Chart {
            title: title.to_owned(),
            x: Axis::of("time (s)", "s"),
            y: Axis::of(label, unit),
            xs: Some(starts(self.rows)),
            series,
            sync: SYNC,
            ..Chart::default()
        }
    }

    /// Amounts per second. What happens in the last moments of a run is no rate, so that its last interval is taken
    /// to be half as long as the others at least.
    fn rates(&self, title: &str, label: &str, unit: &'static str, of: Of<'_, f64>) -> Chart {
        let series = of.iter().map(|&(name, colour, amount)| {
            let rates =
                self.rows.iter().map(|row| amount(row) / row.width_s.max(self.step_s / 2.0));
            Series::of(name, Form::Step, colour, held(rates))
        });
        self.chart(title, label, unit, series.collect())
    }

    /// The same over fewer and longer intervals.
    fn few(&self, title: &str, label: &str, unit: &'static str, of: Of<'_, f64>) -> Chart {
        let every = self.rows.len().div_ceil(FEW_ROWS);
        let step_s = self.step_s * every as f64;
        let series = of.iter().map(|&(name, colour, amount)| {
            let rates = self.rows.chunks(every).map(|rows| {
                let width_s = rows.iter().map(|row| row.width_s).sum::<f64>();
                let amount = rows.iter().map(amount).sum::<f64>();
                amount / width_s.max(step_s / 2.0)
            });
            Series::of(name, Form::Step, colour, held(rates))
        });
        let series = series.collect();
        let firsts: Vec<Row> = self.rows.iter().step_by(every).copied().collect();
        let mut xs = starts(&firsts);
        // They end where the last interval does.
        if let (Some(end), Some(last)) = (xs.last_mut(), self.rows.last()) {
            *end = last.from_s + last.width_s;
        }
        Chart { xs: Some(xs), ..self.chart(title, label, unit, series) }
    }

    /// Levels: the mean and the highest of each interval.
    fn levels(&self, title: &str, label: &str, unit: &'static str, of: Of<'_, Reached>) -> Chart {
        let series = of.iter().flat_map(|&(name, colour, level)| {
            let means = held(self.rows.iter().map(|row| level(row).mean));
            let maxima = held(self.rows.iter().map(|row| level(row).max));
            let most = Series::of(&format!("{name} (max)"), Form::Step, colour, maxima);
            [Series::of(name, Form::Step, colour, means), Series { soft: true, ..most }]
        });
        self.chart(title, label, unit, series.collect())
    }

    /// What the devices do.
    fn busy(&self, engines: usize) -> Chart {
        let names = ["prefill only", "decode only", "mixed"];
        let series = [(1, 1), (2, 2), (0, 3)].map(|(kind, colour): (usize, usize)| {
            let shares = self.rows.iter().map(|row| {
                let all_s = row.width_s * engines as f64;
                if all_s > 0.0 { (100.0 * row.busy_s[kind] / all_s).min(100.0) } else { 0.0 }
            });
            Series::of(names[kind], Form::Step, colour, held(shares))
        });
        let chart = self.chart("Time by kind of pass", "share of time (%)", "%", series.into());
        Chart {
            note: "what is missing to 100 % is idle".to_owned(),
            stacked: true,
            y: Axis { max: Some(100.0), ..chart.y },
            ..chart
        }
    }
}

struct PerEngine<'a> {
    engines: &'a [Vec<Row>],
    step_s: f64,
}

impl PerEngine<'_> {
    fn chart(
        &self,
        title: &str,
        label: &str,
        unit: &'static str,
        value: impl Fn(&Row) -> f64,
    ) -> Chart {
        let series = self.engines.iter().enumerate().map(|(id, rows)| {
            let values = held(rows.iter().map(&value));
            Series::of(&format!("engine {id}"), Form::Step, id + 1, values)
        });
        let timeline = Timeline { rows: &self.engines[0], step_s: self.step_s };
        timeline.chart(title, label, unit, series.collect())
    }
}

/// When rows begin, and when the last ends.
fn starts(rows: &[Row]) -> Vec<f64> {
    let end = rows.last().map(|row| row.from_s + row.width_s);
    rows.iter().map(|row| row.from_s).chain(end).collect()
}

/// Values of intervals, the last of them also at its end.
fn held(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.extend(values.last().copied());
    values
}
