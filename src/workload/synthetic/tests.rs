use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::path::Path;

use super::*;
use crate::base::time::SimDuration;
use crate::workload::request::{Content, Name, Piece};

fn config(yaml: &str) -> SyntheticConfig {
    let mut config: SyntheticConfig = serde_saphyr::from_str(yaml).unwrap();
    config.resolve(Path::new("/")).unwrap();
    config
}

fn source(yaml: &str, seed: u64) -> SyntheticSource {
    SyntheticSource::new(&config(yaml), seed).unwrap()
}

fn requests(yaml: &str, seed: u64) -> Vec<RequestSpec> {
    let mut source = source(yaml, seed);
    let mut requests = Vec::new();
    while let Some(arrival) = source.next_arrival().unwrap() {
        let request = source.take();
        assert_eq!((request.arrival, request.id.index()), (arrival, requests.len()));
        requests.push(request);
    }
    assert!(requests.is_sorted_by_key(|request| request.arrival));
    requests
}

/// What is left of a request without its place among all.
fn own(request: &RequestSpec) -> (SimTime, u32, u32) {
    (request.arrival, request.prompt_tokens, request.output_tokens)
}

#[test]
fn a_constant_rate_of_fixed_lengths_draws_nothing() {
    let load = "{requests: 3, arrivals: {constant: {requests_per_s: 4}}}";
    let requests = requests(load, 1);
    let arrivals: Vec<_> = requests.iter().map(|request| request.arrival.as_ms()).collect();
    assert_eq!(arrivals, [0.0, 250.0, 500.0]);
    assert!(requests.iter().all(|r| (r.prompt_tokens, r.output_tokens) == (1024, 256)));
    assert!(
        requests.iter().all(|r| (&r.content, r.class, r.priority) == (&Content::Private, 0, 0))
    );
    assert_eq!(requests, self::requests(load, 2));
}

#[test]
fn a_closed_loop_replaces_what_has_ended() {
    let mut source = source("{requests: 3, arrivals: {closed_loop: {concurrency: 2}}}", 0);
    source.take();
    source.take();
    assert_eq!(source.next_arrival().unwrap(), None);
    let end = SimTime::from_ns(70);
    source.ended(RequestId(1), end);
    assert_eq!(source.next_arrival().unwrap(), Some(end));
    assert_eq!(source.take().id, RequestId(2));
    source.ended(RequestId(0), end);
    assert_eq!(source.next_arrival().unwrap(), None, "all requests were made");
}

#[test]
fn each_end_has_its_own_arrival() {
    let mut source = source("{requests: 5, arrivals: {closed_loop: {concurrency: 3}}}", 0);
    for _ in 0..3 {
        source.take();
    }
    let at = SimTime::from_ns;
    for (id, end) in [(0, 70), (1, 90), (2, 80)] {
        source.ended(RequestId(id), at(end));
    }
    let arrivals = [source.take(), source.take()].map(|request| request.arrival);
    assert_eq!(arrivals, [at(70), at(80)]);
}

#[test]
fn the_seed_decides_the_draws() {
    let load = "{requests: 50, arrivals: {poisson: {}}, prompt_tokens: {uniform: {}}, \
                prefixes: {groups: 5, share: 0.5}}";
    assert_eq!(requests(load, 1), requests(load, 1));
    assert_ne!(requests(load, 1), requests(load, 2));
}

#[test]
fn a_shared_prefix_comes_before_the_prompt() {
    let load = "{requests: 20000, prompt_tokens: {fixed: 10}, \
                prefixes: {groups: 3, exponent: 1, share: 0.6, prefix_tokens: {uniform: {min: 20, max: 90}}}}";
    let mut groups = BTreeMap::new();
    for request in requests(load, 5) {
        let Content::Pieces(pieces) = &request.content else {
            assert_eq!(request.prompt_tokens, 10);
            continue;
        };
        let [prefix, rest] = pieces[..] else { panic!("{pieces:?}") };
        assert_eq!(rest, Piece { segment: Segment::Prompt(request.id), tokens: 10 });
        assert_eq!(request.prompt_tokens, prefix.tokens + 10);
        *groups.entry(prefix).or_insert(0) += 1;
    }
    // A group always has the same prefix; the k-th has a share of 0.6 / k / (1 + 1/2 + 1/3).
    assert_eq!(groups.len(), 3);
    for (rank, (prefix, count)) in (1_u32..).zip(groups) {
        assert_eq!(prefix.segment, Segment::Named(u64::from(rank) - 1));
        assert!((20..=90).contains(&prefix.tokens));
        let share = 0.6 / f64::from(rank) / (11.0 / 6.0);
        let sd = (20_000.0 * share * (1.0 - share)).sqrt();
        assert!((f64::from(count) - 20_000.0 * share).abs() < 4.0 * sd, "{rank}: {count}");
    }
}

#[test]
fn an_empty_prefix_is_none() {
    let load = "{requests: 1, prefixes: {prefix_tokens: {fixed: 0}}}";
    assert_eq!(requests(load, 0)[0].content, Content::Private);
    let load = "{requests: 1, prompt_tokens: {fixed: 0}, prefixes: {prefix_tokens: {fixed: 9}}}";
    let request = &requests(load, 0)[0];
    let Content::Pieces(pieces) = &request.content else { panic!() };
    assert_eq!((request.prompt_tokens, pieces.len()), (9, 1));
}

const CHAT: &str = "{name: chat, prompt_tokens: {lognormal: {}}, prefixes: {groups: 9}, \
                    arrivals: {gamma: {requests_per_s: 5, burstiness: 0.5}}}";
const BATCH: &str = "{name: batch, requests: 30, priority: 7, output_tokens: {uniform: {}}, \
                     arrivals: {poisson: {requests_per_s: 2}}}";

#[test]
fn another_class_shifts_no_draw() {
    let alone = requests(&format!("{{requests: 200, classes: [{CHAT}]}}"), 3);
    let both = requests(&format!("{{requests: 400, classes: [{BATCH}, {CHAT}]}}"), 3);
    let of = |class: u16| both.iter().filter(move |request| request.class == class);
    assert_eq!(of(0).count(), 30, "as many as the class may send");
    assert!(of(0).all(|request| request.priority == 7));
    let chat: Vec<_> = of(1).take(200).map(own).collect();
    assert_eq!(alone.iter().map(own).collect::<Vec<_>>(), chat);
    // Prefixes of two classes have no name in common.
    let named = |request: &RequestSpec| match &request.content {
        Content::Pieces(pieces) => pieces[0].segment,
        Content::Private => panic!("every one has a prefix"),
    };
    assert!(of(1).all(|request| matches!(named(request), Segment::Named(name) if name >> 32 == 1)));
}

#[test]
fn classes_share_arrivals_by_weight() {
    let load = "{requests: 20000, arrivals: {poisson: {requests_per_s: 9}}, classes: [\
                {name: a, weight: 3}, {name: b}, {name: c, weight: 0, prompt_tokens: {fixed: 1}}]}";
    let all = requests(load, 4);
    let count = |class| all.iter().filter(|request| request.class == class).count() as f64;
    // Binomial: 3 / 4 of 20,000, deviation sqrt(20,000 x 3 / 16).
    assert!((count(0) - 15_000.0).abs() < 4.0 * 3750.0_f64.sqrt(), "{}", count(0));
    assert_eq!(all.iter().filter(|request| request.class == 2).count(), 0);
    // The arrivals are those of the load without classes.
    let plain = requests("{requests: 20000, arrivals: {poisson: {requests_per_s: 9}}}", 4);
    assert!(all.iter().zip(plain).all(|(a, b)| a.arrival == b.arrival));
}

#[test]
fn ends_reach_the_class_they_belong_to() {
    let load = "{requests: 9, classes: [{name: a, arrivals: {closed_loop: {concurrency: 1}}}, \
                {name: b, arrivals: {closed_loop: {concurrency: 1, think_s: 1}}}]}";
    let mut source = source(load, 0);
    assert_eq!([source.take().class, source.take().class], [0, 1]);
    let end = SimTime::from_ns(5);
    source.ended(RequestId(1), end);
    // The user of b thinks for a second.
    assert_eq!(source.next_arrival().unwrap(), Some(SimTime::from_ns(1_000_000_005)));
    source.ended(RequestId(0), end);
    assert_eq!(source.next_arrival().unwrap(), Some(end));
    assert_eq!(source.take().class, 0);
}

#[test]
fn each_unusable_value_names_its_field() {
    for (yaml, expected) in [
        ("{requests: 0}", "`requests` is 0"),
        ("{length_correlation: 2}", "`length_correlation` is 2, expected a number from -1 to 1"),
        ("{max_concurrency: 0}", "`max_concurrency` is 0"),
        ("{prefixes: {groups: 0}}", "`prefixes.groups` is 0"),
        ("{prefixes: {share: 1.5}}", "`prefixes.share` is 1.5"),
        ("{prefixes: {exponent: -1}}", "`prefixes.exponent` is -1"),
        (
            "{prefixes: {prefix_tokens: {normal: {mean: -1}}}}",
            "`prefixes.prefix_tokens.normal.mean`",
        ),
        ("{length_pairs: {csv: {}}}", "`length_pairs.csv.path` is empty"),
        (
            "{length_pairs: {trace: {path: t}}, output_tokens: {fixed: 256}}",
            "`output_tokens` is set, expected none beside `length_pairs`",
        ),
        (
            "{length_pairs: {trace: {path: t}}, length_correlation: 0}",
            "`length_correlation` is set, expected none beside `length_pairs`",
        ),
        (
            "{classes: [{name: a, length_pairs: {trace: {path: t}}, prompt_tokens: {fixed: 1}}]}",
            "`classes[0].prompt_tokens` is set, expected none beside `length_pairs`",
        ),
        (
            "{length_pairs: {trace: {path: t}}, classes: [{name: a, prompt_tokens: {fixed: 1}}]}",
            "`classes[0].output_tokens` is absent, expected a length, as for the other",
        ),
        (
            "{length_pairs: {trace: {path: t}}, classes: [{name: a, length_correlation: 1}]}",
            "`classes[0].length_correlation` is 1, expected none, where lengths are the",
        ),
        ("{arrivals: {poisson: {requests_per_s: 0}}}", "`arrivals.poisson.requests_per_s` is 0"),
        ("{classes: []}", "`classes` is a list of 0"),
        ("{classes: [{}]}", "`classes[0].name` is \"\""),
        ("{sessions: {think_s: -1}}", "`sessions.think_s` is -1"),
        ("{sessions: {prompt_tokens_max: 0}}", "`sessions.prompt_tokens_max` is 0"),
        ("{sessions: {turns: {geometric: {mean: 0.5}}}}", "`sessions.turns.geometric.mean` is 0.5"),
        (
            "{classes: [{name: a}, {name: a}]}",
            "`classes[1].name` is a, expected a name that no other",
        ),
        ("{classes: [{name: a, weight: -1}]}", "`classes[0].weight` is -1"),
        ("{classes: [{name: a, weight: 0}]}", "`classes` is without weight"),
        (
            "{classes: [{name: a, requests: 5}]}",
            "`classes[0].requests` is 5, expected none without",
        ),
        (
            "{classes: [{name: a, weight: 2, arrivals: {poisson: {}}}]}",
            "`classes[0].weight` is 2, expected none beside",
        ),
    ] {
        let mut config: SyntheticConfig = serde_saphyr::from_str(yaml).unwrap();
        let error = config.resolve(Path::new("/")).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
}

/// Drives a source while every request takes `service_s`.
fn served(yaml: &str, seed: u64, service_s: u64) -> Vec<RequestSpec> {
    let mut source = source(yaml, seed);
    let (mut made, mut under_way) = (Vec::new(), BinaryHeap::new());
    loop {
        let arrival = source.next_arrival().unwrap();
        let end = under_way.peek().map(|Reverse((end, _))| *end);
        match (arrival, end) {
            (None, None) => return made,
            (arrival, Some(end)) if arrival.is_none_or(|arrival| end <= arrival) => {
                let Reverse((_, id)) = under_way.pop().unwrap();
                source.ended(RequestId(id), end);
            }
            _ => {
                let request = source.take();
                assert_eq!((request.id.index(), Some(request.arrival)), (made.len(), arrival));
                let end = request.arrival + SimDuration::from_ns(service_s * 1_000_000_000);
                under_way.push(Reverse((end, request.id.0)));
                made.push(request);
            }
        }
    }
}

#[test]
fn a_turn_has_all_that_was_said_before_it() {
    let load = "{requests: 3, arrivals: {constant: {requests_per_s: 0.001}}, prompt_tokens: {fixed: 100}, \
                output_tokens: {fixed: 10}, prefixes: {groups: 1, prefix_tokens: {fixed: 50}}, sessions: {turns: {fixed: 3}, \
                added_tokens: {fixed: 7}, think_s: 5, think: fixed}}";
    let made = served(load, 0, 2);
    // At 0; 2 of service and 5 of thinking later; once more. 150, 150 + 10 + 7, 167 + 10 + 7 tokens.
    let arrivals: Vec<_> = made.iter().map(|request| request.arrival.as_s()).collect();
    assert_eq!(arrivals, [0.0, 7.0, 14.0]);
    let own = |id, tokens| Piece { segment: Segment::Prompt(RequestId(id)), tokens };
    let output = |id| Piece { segment: Segment::Output(RequestId(id)), tokens: 10 };
    let prefix = Piece { segment: Segment::Named(0), tokens: 50 };
    let whole = [prefix, own(0, 100), output(0), own(1, 7), output(1), own(2, 7)];
    for (request, (pieces, tokens)) in made.iter().zip([(2, 150), (4, 167), (6, 184)]) {
        assert_eq!(request.content, Content::Pieces(whole[..pieces].to_vec()));
        assert_eq!(request.prompt_tokens, tokens);
        assert_eq!(request.turn.as_ref().unwrap().session, Some(Name(0)));
    }
}

#[test]
fn sessions_do_not_depend_on_how_fast_answers_come() {
    let load = "{requests: 400, arrivals: {poisson: {requests_per_s: 1}}, prompt_tokens: {lognormal: {}}, \
                sessions: {turns: {geometric: {mean: 3}}, added_tokens: {uniform: {}}}}";
    let lengths = |service_s| {
        let mut by_session: BTreeMap<Name, Vec<(u32, u32, SimDuration)>> = BTreeMap::new();
        for request in served(load, 3, service_s) {
            let turn = request.turn.unwrap();
            let turns = by_session.entry(turn.session.unwrap()).or_default();
            turns.push((request.prompt_tokens, request.output_tokens, turn.delay));
        }
        by_session
    };
    let (fast, slow) = (lengths(0), lengths(60));
    let mut whole = 0;
    for (session, turns) in &slow {
        // Which request is the last of all may differ, so that a session may end early.
        let Some(others) = fast.get(session) else { continue };
        let n = turns.len().min(others.len());
        assert_eq!(turns[..n], others[..n]);
        whole += n;
    }
    assert!(whole > 200, "{whole}");
}

#[test]
fn a_session_ends_before_a_prompt_that_is_too_long() {
    let load = "{requests: 10, prompt_tokens: {fixed: 100}, output_tokens: {fixed: 10}, \
                sessions: {turns: {fixed: 9}, think_s: 0, prompt_tokens_max: 320}}";
    // 100, 210, 320; then the next session.
    let tokens: Vec<_> = served(load, 0, 0).iter().map(|request| request.prompt_tokens).collect();
    assert_eq!(tokens[..4], [100, 210, 320, 100]);
}

#[test]
fn a_user_of_a_closed_loop_has_one_session_at_a_time() {
    let load = "{requests: 5, arrivals: {closed_loop: {concurrency: 1, think_s: 100}}, \
                sessions: {turns: {fixed: 2}, think_s: 3, think: fixed}}";
    // Within a session 1 + 3, between two of them 1 + 100.
    let arrivals: Vec<_> = served(load, 0, 1).iter().map(|r| r.arrival.as_s()).collect();
    assert_eq!(arrivals, [0.0, 4.0, 105.0, 109.0, 210.0]);
}

#[test]
fn a_user_of_requests_serves_sessions_by_turns() {
    let load = "{requests: 5, arrivals: {closed_loop: {concurrency: 1, counts: requests}}, \
                sessions: {turns: {fixed: 2}, think_s: 3, think: fixed}}";
    // 0: a1, done at 2; 2: b1, as a2 is due at 5 only; done at 4; 4: c1, done at 6; 6: a2, due for 1 s; 8: b2, due at 7.
    let made = served(load, 0, 2);
    let seen: Vec<_> = made
        .iter()
        .map(|r| (r.arrival.as_s(), r.turn.as_ref().unwrap().session.unwrap().0))
        .collect();
    assert_eq!(seen, [(0.0, 0), (2.0, 1), (4.0, 2), (6.0, 0), (8.0, 1)]);
}

#[test]
fn another_class_of_sessions_shifts_no_draw() {
    let chat = "{name: chat, arrivals: {poisson: {requests_per_s: 1}}, sessions: {turns: {uniform: {max: 5}}}}";
    let plain =
        "{name: plain, arrivals: {poisson: {requests_per_s: 2}}, output_tokens: {uniform: {}}}";
    let alone = served(&format!("{{requests: 300, classes: [{chat}]}}"), 8, 1);
    let both = served(&format!("{{requests: 1200, classes: [{plain}, {chat}]}}"), 8, 1);
    let of: Vec<_> = both.iter().filter(|request| request.class == 1).map(own).collect();
    let n = of.len().min(alone.len());
    assert!(n > 250);
    assert_eq!(alone.iter().map(own).take(n).collect::<Vec<_>>(), of[..n]);
}

#[test]
fn a_resolved_load_resolves_to_itself() {
    for yaml in [
        "{}",
        "{output_tokens: {fixed: 3}, classes: [{name: a, prompt_tokens: {fixed: 1}}]}",
        "{length_pairs: {trace: {path: t}}, classes: [{name: a}, {name: b, prompt_tokens: \
         {fixed: 1}, output_tokens: {fixed: 2}, length_correlation: 0.5}]}",
    ] {
        let once = config(yaml);
        let mut twice = once.clone();
        twice.resolve(Path::new("/elsewhere")).unwrap();
        assert_eq!(once, twice, "{yaml}");
        assert_eq!(once.prompt_tokens.is_some(), once.length_pairs.is_none());
    }
}
