use super::*;
use crate::base::time::SimDuration;
use crate::model::parallel::Parallel;
use crate::timing::evidence::Answers;
use crate::timing::pricer::{HostTime, PassPricer};

/// A provider whose program is a shell script.
fn script(text: &str, change: fn(&mut ExternalConfig)) -> Result<Arc<External>, ProfileError> {
    let command = ["sh", "-c", text].map(str::to_owned).to_vec();
    let mut config = ExternalConfig { command, ..ExternalConfig::default() };
    change(&mut config);
    config.check()?;
    let deployment = Deployment {
        model: None,
        accelerator: None,
        parallel: Parallel::default(),
        kv_capacity_tokens: 1600,
    };
    External::start(&config, &deployment)
}

fn pricer(text: &str, change: fn(&mut ExternalConfig)) -> PassPricer {
    PassPricer::new(script(text, change).unwrap(), HostTime::Added(0.0))
}

/// Answers the n-th line with n for each of its queries.
const COUNTS: &str = r#"
n=0
while read -r line; do
  n=$((n + 1))
  answers=$(printf '%s' "$line" | grep -o '"\(prefill\|decode\)":{' | wc -l)
  printf '{"id": %d, "answers": [%s]}\n' "$n" "$(yes $n | head -n "$answers" | paste -sd, -)"
done
"#;

fn prefill(new: u32) -> PrefillWork {
    let mut work = PrefillWork::default();
    work.add(new, 0);
    work
}

fn decode(kv: u32) -> DecodeWork {
    let mut work = DecodeWork::default();
    work.add(1, kv);
    work.add(1, kv);
    work
}

fn ms(pricer: &mut PassPricer, prefill: &PrefillWork, decode: &DecodeWork) -> SimDuration {
    pricer.price(prefill, decode).unwrap()
}

#[test]
fn a_question_is_asked_once_and_decodes_are_asked_ahead() {
    let mut pricer = pricer(COUNTS, |c| c.ahead_passes = 2);
    let (none, no_decode) = (PrefillWork::default(), DecodeWork::default());
    let line = |n: u64| SimDuration::from_ns(n * 1_000_000);
    assert_eq!(ms(&mut pricer, &prefill(8), &no_decode), line(1));
    // The second line asks for this pass and the two that follow it.
    for kv in [10, 11, 12] {
        assert_eq!(ms(&mut pricer, &none, &decode(kv)), line(2));
    }
    assert_eq!(ms(&mut pricer, &none, &decode(13)), line(3));
    assert_eq!(ms(&mut pricer, &prefill(8), &no_decode), line(1));
    // Evidence counts the passes that were priced, not those asked ahead: 1 + 1 and 2 * 3 + 3.
    assert_eq!(pricer.evidence().total(Origin::Analytic), Answers { count: 6, ms: 11.0 });
}

/// Answers every line with `answers`, whatever it asks; nothing is asked ahead.
fn always(answers: &str) -> PassPricer {
    let script = format!(
        "n=0; while read -r line; do n=$((n + 1)); echo \"{{\\\"id\\\": $n, {answers}}}\"; done"
    );
    pricer(&script, |c| c.ahead_passes = 0)
}

#[test]
fn a_mixed_pass_is_one_number_two_parts_or_the_sum() {
    let mixed = |answers: &str| always(answers).price(&prefill(8), &decode(10)).unwrap();
    assert_eq!(mixed(r#"\"answers\": [7.5]"#), SimDuration::from_ns(7_500_000));
    let parts = r#"\"answers\": [{\"prefill_ms\": 7, \"decode_ms\": 0.25}]"#;
    assert_eq!(mixed(parts), SimDuration::from_ns(7_250_000));
    // None for the mixed pass; and none for a part is no price.
    let error = always(r#"\"answers\": [null]"#).price(&prefill(8), &decode(10)).unwrap_err();
    assert!(error.to_string().contains("gave no number for {\"prefill\":{"), "{error}");
}

#[test]
fn the_program_may_say_what_its_answers_rest_on() {
    let mut pricer = always(r#"\"answers\": [{\"ms\": 3, \"origin\": \"interpolated\"}]"#);
    ms(&mut pricer, &prefill(8), &DecodeWork::default());
    assert_eq!(pricer.evidence().total(Origin::Interpolated), Answers { count: 1, ms: 3.0 });
}

#[test]
fn a_program_that_fails_is_quoted() {
    let failed = |text: &str, change: fn(&mut ExternalConfig)| {
        let mut pricer = pricer(text, change);
        pricer.price(&prefill(8), &DecodeWork::default()).unwrap_err().to_string()
    };
    let error = failed("echo no such model >&2; exit 3", |_| ());
    assert!(error.contains("ended before it answered (exit status: 3)"), "{error}");
    assert!(error.ends_with("it wrote: no such model"), "{error}");
    let error = failed("sleep 60", |c| c.timeout_ms = 20);
    assert!(error.contains("gave no answer within 20 ms"), "{error}");
    let error = failed("read -r line; echo hello", |_| ());
    assert!(error.contains("said \"hello\"") && error.contains("expected {\"id\": 1"), "{error}");
    let error = failed("read -r line; echo '{\"id\": 1, \"answers\": [1, 2]}'", |_| ());
    assert!(error.contains("expected id 1 and 1 answers"), "{error}");
    let error = failed("read -r line; echo '{\"id\": 1, \"error\": \"out of range\"}'", |_| ());
    assert!(error.contains("says: out of range"), "{error}");
}

#[test]
fn a_program_that_does_not_read_is_not_waited_for() {
    // It answers a hundred questions before they are asked, and reads none of them.
    let text =
        "for n in $(seq 100); do echo \"{\\\"id\\\": $n, \\\"answers\\\": [1]}\"; done; sleep 60";
    let mut pricer = pricer(text, |c| (c.ahead_passes, c.timeout_ms) = (0, 300));
    let error = (1..1_000_000_u32)
        .find_map(|new| pricer.price(&prefill(new), &DecodeWork::default()).err())
        .unwrap()
        .to_string();
    assert!(error.contains("gave no answer within 300 ms"), "{error}");
}

#[test]
fn a_program_that_is_not_there_is_a_field_to_change() {
    let start = |command: &[&str]| {
        let command = command.iter().map(ToString::to_string).collect();
        let config = ExternalConfig { command, ..ExternalConfig::default() };
        let deployment = Deployment {
            model: None,
            accelerator: None,
            parallel: Parallel::default(),
            kv_capacity_tokens: 1600,
        };
        config.check().map_err(ProfileError::from)?;
        External::start(&config, &deployment).map(|_| ())
    };
    let error = start(&["/no/such/program"]).unwrap_err().to_string();
    assert!(error.starts_with("`timing.external.command` is [\"/no/such/program\"]"), "{error}");
    assert!(start(&[]).unwrap_err().to_string().contains("`command` is empty"));
}
