use super::config::*;
use super::*;
use crate::base::rng::tests::{distance, distance_max, moments};

const N: usize = 40_000;

/// Arrivals in seconds, up to `requests`.
fn arrivals_of(config: &ArrivalsConfig, requests: usize, seed: u64) -> Vec<f64> {
    config.validate(requests as u64).unwrap();
    let mut arrivals = Arrivals::new(config, requests as u64, seed, "test");
    let mut times = Vec::new();
    while let Some(time) = arrivals.next().unwrap() {
        times.push(time.as_s());
        arrivals.take();
    }
    times
}

/// The times between arrivals, the first from 0.
fn gaps_of(times: &[f64]) -> Vec<f64> {
    let before = std::iter::once(&0.0).chain(times);
    times.iter().zip(before).map(|(time, before)| time - before).collect()
}

/// A renewal process: the mean of its gaps, their standard deviation over the mean, and their
/// kurtosis. Tolerances are four standard errors: `cv / sqrt(N)` of the mean, `sqrt((kurtosis - 1) /
/// 4 / N)` of the deviation, and `1 / sqrt(N)` of the correlation of neighbours, which is 0.
fn assert_renewal(gaps: &[f64], mean: f64, cv: f64, kurtosis: f64) {
    let n = gaps.len() as f64;
    let (found_mean, found_sd) = moments(gaps);
    assert!((found_mean / mean - 1.0).abs() < 4.0 * cv / n.sqrt(), "mean {found_mean}");
    let found_cv = found_sd / found_mean;
    let tolerance = 4.0 * ((kurtosis - 1.0) / 4.0 / n).sqrt();
    assert!((found_cv / cv - 1.0).abs() < tolerance, "cv {found_cv}");
    let pairs = gaps.windows(2).map(|pair| (pair[0] - found_mean) * (pair[1] - found_mean));
    let correlation = pairs.sum::<f64>() / n / (found_sd * found_sd);
    assert!(correlation.abs() < 4.0 / n.sqrt(), "correlation {correlation}");
}

#[test]
fn a_constant_rate_spaces_arrivals_evenly() {
    let config = ArrivalsConfig::Constant(ConstantConfig { requests_per_s: 4.0 });
    assert_eq!(arrivals_of(&config, 3, 0), [0.0, 0.25, 0.5]);
    assert_eq!(arrivals_of(&config, 3, 1), [0.0, 0.25, 0.5]);
}

#[test]
fn poisson_gaps_are_exponential() {
    let config = ArrivalsConfig::Poisson(PoissonConfig { requests_per_s: 8.0 });
    let gaps = gaps_of(&arrivals_of(&config, N, 1));
    // Exponential: deviation equal to the mean, kurtosis 9.
    assert_renewal(&gaps, 0.125, 1.0, 9.0);
    assert!(distance(&gaps, |gap| 1.0 - (-8.0 * gap).exp()) < distance_max(N));
}

#[test]
fn gamma_gaps_vary_by_the_root_of_the_burstiness() {
    // Gamma of shape k: cv = 1 / sqrt(k), kurtosis 3 + 6 / k.
    for (burstiness, cv, kurtosis) in [(0.25, 2.0, 27.0), (1.0, 1.0, 9.0), (4.0, 0.5, 4.5)] {
        let config = GammaConfig { requests_per_s: 2.0, burstiness };
        let times = arrivals_of(&ArrivalsConfig::Gamma(config), N, 2);
        assert_renewal(&gaps_of(&times), 0.5, cv, kurtosis);
    }
}

#[test]
fn gamma_of_shape_one_and_poisson_are_one_distribution() {
    let poisson = ArrivalsConfig::Poisson(PoissonConfig { requests_per_s: 3.0 });
    let gamma = ArrivalsConfig::Gamma(GammaConfig { requests_per_s: 3.0, burstiness: 1.0 });
    let mut poisson = gaps_of(&arrivals_of(&poisson, N, 3));
    poisson.sort_by(f64::total_cmp);
    // The distance of two samples of n is that of one sample of n / 2 from the truth.
    let below = |gap: f64| poisson.partition_point(|&other| other <= gap) as f64 / N as f64;
    let gaps = gaps_of(&arrivals_of(&gamma, N, 4));
    assert!(distance(&gaps, below) < distance_max(N / 2));
    // The test can fail: shape 1.1 is told apart.
    let other = ArrivalsConfig::Gamma(GammaConfig { requests_per_s: 3.0, burstiness: 1.1 });
    assert!(distance(&gaps_of(&arrivals_of(&other, N, 4)), below) > distance_max(N / 2));
}

#[test]
fn weibull_gaps_have_their_mean_and_shape() {
    // E X^m = scale^m Gamma(1 + m / k). k = 2: cv^2 = 1 / Gamma(1.5)^2 - 1 = 4 / pi - 1, kurtosis
    // 3.245. k = 1/2: cv^2 = Gamma(5) / Gamma(3)^2 - 1 = 24 / 4 - 1, kurtosis 87.72.
    for (shape, square, kurtosis) in
        [(2.0, 4.0 / std::f64::consts::PI - 1.0, 3.245), (0.5, 5.0, 87.72)]
    {
        let config = WeibullConfig { requests_per_s: 5.0, shape };
        let times = arrivals_of(&ArrivalsConfig::Weibull(config), N, 5);
        assert_renewal(&gaps_of(&times), 0.2, f64::sqrt(square), kurtosis);
    }
}

#[test]
fn a_rate_scales_the_pattern() {
    let poisson = |requests_per_s| ArrivalsConfig::Poisson(PoissonConfig { requests_per_s });
    let (slow, fast) = (arrivals_of(&poisson(1.0), 100, 9), arrivals_of(&poisson(2.0), 100, 9));
    assert!(slow.iter().zip(&fast).all(|(slow, fast)| (slow - 2.0 * fast).abs() < 3e-9));
    assert_ne!(slow, arrivals_of(&poisson(1.0), 100, 10));
}

fn segment(duration_s: f64, from_per_s: f64, to_per_s: f64) -> SegmentConfig {
    SegmentConfig { duration_s, from_per_s, to_per_s: Some(to_per_s) }
}

#[test]
fn a_curve_is_followed() {
    let segments =
        vec![segment(60.0, 0.0, 100.0), segment(60.0, 100.0, 100.0), segment(60.0, 0.0, 0.0)];
    let once = PiecewiseConfig { segments: Some(segments.clone()), repeat: false };
    let times = arrivals_of(&ArrivalsConfig::Piecewise(once), 1_000_000, 6);
    let within = |from: f64, to: f64| {
        times.iter().filter(|&&time| (from..to).contains(&time)).count() as f64
    };
    // Poisson counts: mean 60 x 50 and 60 x 100, deviation the root of the mean. The ramp has a
    // quarter of its requests in its first half.
    for (from, to, mean) in [(0.0, 30.0, 750.0), (0.0, 60.0, 3000.0), (60.0, 120.0, 6000.0)] {
        assert!((within(from, to) - mean).abs() < 4.0 * f64::sqrt(mean), "{}", within(from, to));
    }
    assert!(times.iter().all(|&time| time <= 120.0), "there is silence behind");
    // The time change, backwards: R(t) = t^2 100 / 120, then 3000 + 100 (t - 60); its steps are
    // exponential of mean 1.
    let spent: Vec<f64> = times
        .iter()
        .map(|t| if *t < 60.0 { t * t / 1.2 } else { 3000.0 + 100.0 * (t - 60.0) })
        .collect();
    let steps = gaps_of(&spent);
    assert!(distance(&steps, |step| 1.0 - (-step).exp()) < distance_max(steps.len()));

    let again = PiecewiseConfig { segments: Some(segments), repeat: true };
    let times = arrivals_of(&ArrivalsConfig::Piecewise(again), 20_000, 6);
    assert_eq!(times.len(), 20_000);
    assert!(times.iter().all(|time| time % 180.0 <= 120.0));
}

#[test]
fn on_and_off_take_turns() {
    let fixed = OnOffConfig {
        on_requests_per_s: 10.0,
        off_requests_per_s: 0.0,
        on_s: 5.0,
        off_s: 15.0,
        periods: Spread::Fixed,
    };
    let times = arrivals_of(&ArrivalsConfig::OnOff(fixed), 5000, 7);
    assert!(times.iter().all(|time| time % 20.0 <= 5.0));
    // 50 requests a turn of 20 s; the 5000th comes after 100 turns, give or take 4 roots of 5000.
    assert!((times[4999] / 20.0 - 100.0).abs() < 4.0 * 5000.0_f64.sqrt() / 50.0);

    // Both periods 5 s in the mean, rates 10 and 2: 6 requests a second. The variance of the number
    // in T is T (6 + 2 s^2 (10 - 2)^2 / (2 s)^3) with s = 1 / 5, which is 86 T (Fischer and
    // Meier-Hellstern, The Markov-modulated Poisson process cookbook, 1993).
    let drawn =
        OnOffConfig { off_requests_per_s: 2.0, off_s: 5.0, periods: Spread::Exponential, ..fixed };
    let times = arrivals_of(&ArrivalsConfig::OnOff(drawn), 60_000, 7);
    let rate = 60_000.0 / times[59_999];
    assert!((rate - 6.0).abs() < 4.0 * (86.0 / times[59_999]).sqrt(), "{rate}");
}

#[test]
fn all_at_once_is_one_instant() {
    let config = ArrivalsConfig::AllAtOnce(AllAtOnceConfig { at_s: 2.5 });
    assert_eq!(arrivals_of(&config, 3, 0), [2.5; 3]);
}

#[test]
fn the_bench_ends_at_its_rate() {
    let bench =
        VllmBenchConfig { request_rate: Some(4.0), burstiness: 0.5, ..VllmBenchConfig::default() };
    for seed in 0..3 {
        let times = arrivals_of(&ArrivalsConfig::VllmBench(bench), 1000, seed);
        // N / rate, whatever was drawn.
        assert!((times[999] - 250.0).abs() < 1e-8);
        assert!(times[0] > 0.0, "a gap comes first");
    }
    let times = arrivals_of(&ArrivalsConfig::VllmBench(bench), N, 1);
    // Gamma of shape 1/2: cv = sqrt(2), kurtosis 15.
    assert_renewal(&gaps_of(&times), 0.25, 2.0_f64.sqrt(), 15.0);
    let at_once = ArrivalsConfig::VllmBench(VllmBenchConfig::default());
    assert_eq!(arrivals_of(&at_once, 2, 0), [0.0, 0.0]);
}

#[test]
fn the_bench_ramps_by_the_number_of_the_request() {
    let bench = VllmBenchConfig {
        ramp_up_strategy: Some(RampUp::Linear),
        ramp_up_start_rps: Some(1.0),
        ramp_up_end_rps: Some(9.0),
        ..VllmBenchConfig::default()
    };
    let rates = |config| [0, 1, 2].map(|number| bench_rate(config, number, 3).round() as u32);
    assert_eq!(rates(&bench), [1, 5, 9]);
    let by_factors = VllmBenchConfig { ramp_up_strategy: Some(RampUp::Exponential), ..bench };
    // 1 x 9^(1/2) in the middle.
    assert_eq!(rates(&by_factors), [1, 3, 9]);
    // Nothing is rescaled: the end is the sum of exponential gaps of mean 1 / rate.
    let n = 10_000;
    let times = arrivals_of(&ArrivalsConfig::VllmBench(bench), n, 1);
    let means = (0..n).map(|number| 1.0 / bench_rate(&bench, number as u64, n as u64));
    let (mean, square) =
        means.fold((0.0, 0.0), |(mean, square), gap| (mean + gap, square + gap * gap));
    assert!((times[n - 1] - mean).abs() < 4.0 * f64::sqrt(square));
}

#[test]
fn users_begin_think_and_send_again() {
    let users = ClosedLoopConfig {
        concurrency: 2,
        think_s: 3.0,
        think: Spread::Fixed,
        ramp_up_s: 10.0,
        ..ClosedLoopConfig::default()
    };
    let mut arrivals = Arrivals::new(&ArrivalsConfig::ClosedLoop(users), 5, 0, "test");
    let at = |s: u64| SimTime::from_ns(s * 1_000_000_000);
    let next = |arrivals: &mut Arrivals| {
        let next = arrivals.next().unwrap();
        next.inspect(|_| arrivals.take())
    };
    assert_eq!(next(&mut arrivals), Some(at(0)));
    // The second user begins half the ramp later, the first thinks for 3 s.
    arrivals.ended(at(1));
    assert_eq!(next(&mut arrivals), Some(at(4)));
    assert_eq!(next(&mut arrivals), Some(at(5)));
    assert_eq!(next(&mut arrivals), None);
    // Ends may be told out of their order.
    arrivals.ended(at(9));
    arrivals.ended(at(8));
    assert_eq!([next(&mut arrivals), next(&mut arrivals)], [Some(at(11)), Some(at(12))]);
    arrivals.ended(at(20));
    assert_eq!(next(&mut arrivals), None, "all were sent");
}

#[test]
fn think_times_are_exponential_if_asked() {
    let users = ClosedLoopConfig {
        concurrency: 1,
        think_s: 2.0,
        think: Spread::Exponential,
        ramp_up_s: 0.0,
        ..ClosedLoopConfig::default()
    };
    let mut arrivals = Arrivals::new(&ArrivalsConfig::ClosedLoop(users), N as u64 + 1, 0, "test");
    let mut gaps = Vec::new();
    while let Some(time) = arrivals.next().unwrap() {
        arrivals.take();
        // The request takes no time.
        arrivals.ended(time);
        if let Some(next) = arrivals.next().unwrap() {
            gaps.push(next.since(time).as_s());
        }
    }
    assert_renewal(&gaps, 2.0, 1.0, 9.0);
}

#[test]
fn ramp_rates_without_a_strategy_are_refused() {
    let bench = VllmBenchConfig { ramp_up_end_rps: Some(9.0), ..VllmBenchConfig::default() };
    let error = ArrivalsConfig::VllmBench(bench).validate(1).unwrap_err().to_string();
    assert_eq!(
        error,
        "`vllm_bench.ramp_up_strategy` is absent, expected linear or exponential, where \
         `ramp_up_end_rps` is set"
    );
}

#[test]
fn arrivals_beyond_the_clock_are_refused() {
    // 3,153,600 requests at 0.001 a second take 100 years in the mean.
    let config = ArrivalsConfig::Poisson(PoissonConfig { requests_per_s: 1e-3 });
    assert!(config.validate(3_153_600).is_ok());
    assert!(config.validate(3_153_601).is_err());
    let faint = SegmentConfig { duration_s: 3_153_600_000.0, from_per_s: 1e-9, to_per_s: None };
    let config = PiecewiseConfig { segments: Some(vec![faint]), repeat: true };
    let arrivals = Arrivals::new(&ArrivalsConfig::Piecewise(config), 1_000, 0, "test");
    let mut arrivals = arrivals;
    let error = loop {
        match arrivals.next() {
            Ok(next) => assert!(next.is_some()),
            Err(error) => break error.to_string(),
        }
        arrivals.take();
    };
    assert!(error.starts_with("`arrivals` is such that a request arrives at "), "{error}");
}

#[test]
fn each_unusable_value_names_its_field() {
    let refused = |yaml: &str| {
        let config: ArrivalsConfig = serde_saphyr::from_str(yaml).unwrap();
        config.validate(10).unwrap_err().to_string()
    };
    for (yaml, expected) in [
        ("{poisson: {requests_per_s: 0}}", "`poisson.requests_per_s` is 0, expected a number from"),
        ("{gamma: {burstiness: 0}}", "`gamma.burstiness` is 0"),
        ("{weibull: {shape: .nan}}", "`weibull.shape` is NaN"),
        ("{on_off: {on_s: 0}}", "`on_off.on_s` is 0"),
        (
            "{on_off: {on_requests_per_s: 0.001, on_s: 0.5}}",
            "`on_off.on_s` is 0.5, expected at least 0.001 requests",
        ),
        ("{piecewise: {}}", "`piecewise.segments` is a list of 0"),
        ("{piecewise: {segments: [{duration_s: -1}]}}", "`piecewise.segments[0].duration_s` is -1"),
        (
            "{piecewise: {segments: [{from_per_s: 0}], repeat: true}}",
            "`piecewise.segments` is 0 req",
        ),
        ("{closed_loop: {concurrency: 0}}", "`closed_loop.concurrency` is 0"),
        ("{closed_loop: {think_s: -1}}", "`closed_loop.think_s` is -1"),
        ("{vllm_bench: {request_rate: .inf}}", "`vllm_bench.request_rate` is inf"),
        ("{vllm_bench: {ramp_up_strategy: linear}}", "`vllm_bench.ramp_up_start_rps` is absent"),
        (
            "{vllm_bench: {ramp_up_strategy: linear, ramp_up_start_rps: 1, ramp_up_end_rps: 2, \
             request_rate: 1}}",
            "`vllm_bench.request_rate` is set, expected none beside a ramp-up",
        ),
    ] {
        let error = refused(yaml);
        assert!(error.starts_with(expected), "{error}");
    }
}
