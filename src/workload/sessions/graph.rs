//! Who waits for whom, of all requests of a workload: what has to be known before the first is sent.
//!
//! Without it nobody could tell whether a request that has ended has a successor further down in the
//! file. It holds a few numbers a request; prompts are read again when they are needed.

use std::path::Path;

use crate::base::lookup::LookupMap;
use crate::workload::request::{Name, RequestSpec};
use crate::workload::source::RequestSource;
use crate::workload::trace::TraceError;

/// The requests of a workload by number, in the order in which they are read.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Those each one waits for, in the order given.
    before: Lists,
    /// Those that wait for it.
    after: Lists,
    /// The group each belongs to: all that are tied to each other, by waiting or by a session.
    groups: Vec<u32>,
    /// Requests of each group.
    sizes: Vec<u32>,
    /// Of them, those that wait for nobody.
    starts: Vec<u32>,
}

/// A list of numbers for each number.
#[derive(Debug, Default)]
struct Lists {
    /// Where each list begins, and where the last one ends.
    begins: Vec<u32>,
    items: Vec<u32>,
}

impl Lists {
    /// The lists of `n` numbers; `pairs` are (whose list, item), and keep their order.
    fn new(n: u32, pairs: &[(u32, u32)]) -> Self {
        let mut begins = vec![0_u32; n as usize + 1];
        pairs.iter().for_each(|&(whose, _)| begins[whose as usize + 1] += 1);
        for at in 1..begins.len() {
            begins[at] += begins[at - 1];
        }
        let mut next = begins.clone();
        let mut items = vec![0; pairs.len()];
        for &(whose, item) in pairs {
            let place = &mut next[whose as usize];
            items[*place as usize] = item;
            *place += 1;
        }
        Self { begins, items }
    }

    fn of(&self, whose: u32) -> &[u32] {
        let whose = whose as usize;
        &self.items[self.begins[whose] as usize..self.begins[whose + 1] as usize]
    }
}

impl Graph {
    /// Reads `source` to its end.
    ///
    /// # Errors
    /// The workload cannot be read, or requests wait for each other in a circle.
    pub(super) fn read(source: &mut dyn RequestSource, path: &Path) -> Result<Self, TraceError> {
        let mut reading = Reading::default();
        while source.next_arrival()?.is_some() {
            reading.add(&source.take());
        }
        reading.finish(path)
    }

    /// The requests that `request` waits for.
    pub(super) fn before(&self, request: u32) -> &[u32] {
        self.before.of(request)
    }

    /// The requests that wait for `request`.
    pub(super) fn after(&self, request: u32) -> &[u32] {
        self.after.of(request)
    }

    /// How many requests there are.
    pub(super) fn len(&self) -> u32 {
        self.groups.len() as u32
    }

    /// The group that `request` belongs to. Groups are numbered by their first requests.
    pub(super) fn group(&self, request: u32) -> u32 {
        self.groups[request as usize]
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> u32 {
        self.sizes.len() as u32
    }

    /// Requests of a group, and those of them that wait for nobody.
    pub(super) fn size(&self, group: u32) -> (u32, u32) {
        (self.sizes[group as usize], self.starts[group as usize])
    }
}

/// A graph while it is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    lines: Vec<u64>,
    /// The latest request of each session.
    sessions: LookupMap<Name, u32>,
    names: LookupMap<Name, u32>,
    /// (who waits, for whom), and (who waits, for what it is called).
    waits: Vec<(u32, u32)>,
    named_waits: Vec<(u32, Name)>,
    /// The request with the smallest number that each is tied to, perhaps through others.
    tied_to: Vec<u32>,
}

impl Reading {
    /// Takes the next request in.
    pub(crate) fn add(&mut self, request: &RequestSpec) {
        let number = self.lines.len() as u32;
        self.lines.push(request.line);
        self.tied_to.push(number);
        let Some(turn) = &request.turn else { return };
        if let Some(name) = turn.name {
            self.names.insert(name, number);
        }
        if let Some(all) = &turn.wait_for {
            self.named_waits.extend(all.iter().map(|&name| (number, name)));
        }
        let Some(session) = turn.session else { return };
        if let Some(before) = self.sessions.insert(session, number) {
            self.tie(before, number);
            if turn.wait_for.is_none() {
                self.waits.push((number, before));
            }
        }
    }

    /// Requests of each group of those that are tied to each other, in the order of the first ones.
    pub(crate) fn sizes(mut self) -> Vec<u32> {
        self.find_names();
        self.groups().1
    }

    /// Finds the requests that are waited for by their names, which may come later.
    fn find_names(&mut self) {
        for at in 0..self.named_waits.len() {
            let (number, name) = self.named_waits[at];
            // What lies outside of the part that is replayed has ended long ago.
            if let Some(&before) = self.names.get(&name) {
                self.waits.push((number, before));
                self.tie(before, number);
            }
        }
    }

    /// The group of each request, and the size of each group.
    fn groups(&mut self) -> (Vec<u32>, Vec<u32>) {
        let n = self.lines.len() as u32;
        let (mut groups, mut sizes) = (vec![0; n as usize], Vec::new());
        for number in 0..n {
            let first = self.first_of(number);
            if first == number {
                groups[number as usize] = sizes.len() as u32;
                sizes.push(0);
            }
            let group = groups[first as usize];
            groups[number as usize] = group;
            sizes[group as usize] += 1;
        }
        (groups, sizes)
    }

    fn finish(mut self, path: &Path) -> Result<Graph, TraceError> {
        self.find_names();
        let n = self.lines.len() as u32;
        // Waiting twice for the same is waiting once.
        let mut seen = LookupMap::new();
        self.waits.retain(|&wait| seen.insert(wait, ()).is_none());
        let before = Lists::new(n, &self.waits);
        let turned: Vec<_> = self.waits.iter().map(|&(who, whom)| (whom, who)).collect();
        let after = Lists::new(n, &turned);
        let (groups, sizes) = self.groups();
        let mut starts = vec![0; sizes.len()];
        for (number, &group) in (0..).zip(&groups) {
            starts[group as usize] += u32::from(before.of(number).is_empty());
        }
        let graph = Graph { before, after, groups, sizes, starts };
        match graph.in_a_circle() {
            Some(number) => {
                Err(TraceError::Circle { path: path.to_owned(), line: self.lines[number as usize] })
            }
            None => Ok(graph),
        }
    }

    /// The first request that `number` is tied to.
    fn first_of(&mut self, number: u32) -> u32 {
        let mut first = number;
        while self.tied_to[first as usize] != first {
            // Halves the way for the next time.
            let next = self.tied_to[first as usize];
            self.tied_to[first as usize] = self.tied_to[next as usize];
            first = next;
        }
        first
    }

    fn tie(&mut self, a: u32, b: u32) {
        let (a, b) = (self.first_of(a), self.first_of(b));
        self.tied_to[a.max(b) as usize] = a.min(b);
    }
}

impl Graph {
    /// The first request of a circle in which each waits for the next.
    fn in_a_circle(&self) -> Option<u32> {
        let n = self.len();
        let mut waits: Vec<usize> = (0..n).map(|number| self.before(number).len()).collect();
        let mut free: Vec<u32> = (0..n).filter(|&number| waits[number as usize] == 0).collect();
        while let Some(number) = free.pop() {
            for &after in self.after(number) {
                waits[after as usize] -= 1;
                if waits[after as usize] == 0 {
                    free.push(after);
                }
            }
        }
        let mut number = (0..n).find(|&number| waits[number as usize] > 0)?;
        // It may only follow a circle; so many steps back lead into it.
        for _ in 0..n {
            let before = self.before(number).iter().find(|&&b| waits[b as usize] > 0);
            number = *before.expect("who cannot begin waits for another such");
        }
        let (mut first, mut at) = (number, number);
        loop {
            let before = self.before(at).iter().find(|&&b| waits[b as usize] > 0);
            at = *before.expect("who cannot begin waits for another such");
            first = first.min(at);
            if at == number {
                return Some(first);
            }
        }
    }
}
