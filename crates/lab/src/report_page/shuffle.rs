//! Lines of `bench shuffle --json`, and their plots. A plot compares runs that differ in what it
//! shows and in nothing else.

use std::collections::{BTreeMap, BTreeSet};

use millstream::{grouped, plural};

use super::html::{element, table};
use super::line::{Fields, Machine};
use super::spread::{Spread, short};
use super::svg::{Bars, Curves, Key};

/// What `"bench"` is in such a line.
pub(super) const NAME: &str = "shuffle";

/// Designs in the paper's order, and their colours: reads, writes and sends have a hue each.
pub(super) const DESIGNS: [(&str, &str); 12] = [
    ("MEMQ/SR", "#12395b"),
    ("SEMQ/SR", "#1f6fb2"),
    ("MESQ/SR", "#1e4d2b"),
    ("SESQ/SR", "#3a8f4f"),
    ("MEMQ/RD", "#7a3b00"),
    ("SEMQ/RD", "#d9730d"),
    ("MEMQ/WR", "#5b1260"),
    ("SEMQ/WR", "#a63db0"),
    ("MEMQ/WR:messages", "#7d5a80"),
    ("SEMQ/WR:messages", "#c9a3cc"),
    ("MEMQ/WR:buffers", "#8a1c3a"),
    ("SEMQ/WR:buffers", "#d9607f"),
];
/// Of what else has to be told apart.
const COLOURS: [&str; 6] = ["#12395b", "#d9730d", "#3a8f4f", "#a63db0", "#7db8e8", "#a8743f"];
const UNIT: &str = "GB/s";
/// What `bench shuffle` takes by default.
const BUFFERS: &str = "fixed:2";
const CREDIT_EVERY: u64 = 2;

/// A run of the shuffle's benchmark.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shuffled {
    /// Its place among the designs.
    design: usize,
    pattern: &'static str,
    processes: u64,
    threads: u64,
    message_bytes: u64,
    buffers: String,
    credit_every: u64,
    compute_us: f64,
    straggler_us: Option<f64>,
    keep_own: bool,
    tuples: u64,
    gb_per_s: f64,
    setup_ms: f64,
    pub(super) ok: bool,
    pub(super) machine: Machine,
    command: String,
    date: String,
}

/// What a plot shows, so that runs may differ in it.
#[derive(Clone, Copy, PartialEq)]
enum Shown {
    MessageBytes,
    CreditEvery,
    Buffers,
    Straggler,
}

impl Shuffled {
    pub(super) fn parse(fields: &Fields) -> Result<Shuffled, String> {
        let patterns = [("repartition", "repartition"), ("broadcast", "broadcast")];
        let straggler_us = fields.given("straggler_us").map(|_| fields.number("straggler_us"));
        Ok(Shuffled {
            design: fields.one_of("design", &designs())?,
            pattern: fields.one_of("pattern", &patterns)?,
            processes: fields.count("processes")?,
            threads: fields.count("threads")?,
            message_bytes: fields.whole("message_bytes", 1 << 40)?,
            buffers: fields.text("buffers")?,
            credit_every: fields.whole("credit_every", u64::from(u32::MAX))?,
            compute_us: fields.number("compute_us")?,
            straggler_us: straggler_us.transpose()?,
            keep_own: fields.one_of("own", &[("send", false), ("keep", true)])?,
            tuples: fields.whole("tuples", u64::MAX)?,
            // So many bytes are more than a number may be.
            gb_per_s: fields.large_number("bytes_per_s")? / 1e9,
            setup_ms: fields.number("setup_seconds")? * 1e3,
            ok: fields.truth("ok")?,
            machine: fields.machine()?,
            command: fields.text("command")?,
            date: fields.date()?,
        })
    }

    pub(super) fn design(&self) -> &'static str {
        DESIGNS[self.design].0
    }

    /// All else that runs have to have in common.
    fn apart_from(&self, shown: Shown) -> String {
        let mut parts = vec![self.pattern.to_string(), self.layout()];
        // Datagrams are shorter: the plots of designs compare each with its usual length.
        if !matches!(shown, Shown::MessageBytes | Shown::Straggler) {
            parts.push(format!("{} B", grouped(self.message_bytes)));
        }
        if shown != Shown::Buffers {
            parts.push(self.buffers.clone());
            parts.push(format!("{} us", short(self.compute_us)));
        }
        if shown != Shown::CreditEvery {
            parts.push(format!("f = {}", self.credit_every));
        }
        if let Some(us) = self.straggler_us.filter(|_| shown != Shown::Straggler) {
            parts.push(format!("a straggler of {} us", short(us)));
        }
        if self.keep_own {
            parts.push("own tuples kept".to_string());
        }
        parts.push(format!("{} {}", grouped(self.tuples), plural(self.tuples, "tuple")));
        parts.join(", ")
    }

    fn layout(&self) -> String {
        format!("{} × {}", self.processes, self.threads)
    }

    /// Whether it was about nothing but the design and the length of messages.
    fn is_plain(&self) -> bool {
        self.buffers == BUFFERS
            && self.credit_every == CREDIT_EVERY
            && self.compute_us == 0.0
            && self.straggler_us.is_none()
            && !self.keep_own
    }
}

/// Names of designs, and their places.
pub(super) fn designs() -> Vec<(&'static str, usize)> {
    DESIGNS.iter().enumerate().map(|(i, (name, _))| (*name, i)).collect()
}

/// Runs that are compared, by what they have in common.
fn sets<'a>(lines: &[&'a Shuffled], shown: Shown) -> BTreeMap<String, Vec<&'a Shuffled>> {
    let mut sets = BTreeMap::<String, Vec<&Shuffled>>::new();
    for line in lines {
        sets.entry(line.apart_from(shown)).or_default().push(line);
    }
    sets
}

const NOTE: &str = "Of the shuffle operator: GB/s that a process received, on average. Names have the pattern, \
     processes × threads, and what else the runs have in common: buffers, microseconds that a \
     receiver computes for each 32 KiB, messages after which credit is written back (f), and \
     tuples that each process sent.";

/// All plots of the lines of one machine.
pub(super) fn all(lines: &[&Shuffled]) -> String {
    let sections = [
        ("by design and message length", by_message_bytes(lines)),
        ("credit frequency", by_credit(lines)),
        ("adaptive buffers against fixed depths", by_buffers(lines)),
        ("one straggler", by_straggler(lines)),
        ("set-up", setup(lines)),
        ("lines", sources(lines.iter().map(|line| (&*line.command, &*line.date)))),
    ];
    let mut out = String::new();
    if !lines.is_empty() {
        out = element("p", &NOTE);
    }
    for (name, body) in sections.iter().filter(|(_, body)| !body.is_empty()) {
        out.push_str(&element("h3", &format!("Shuffle: {name}")));
        out.push_str(body);
    }
    out
}

/// A curve for each design.
fn curves(name: String, across: &str, lines: &[&Shuffled], x: fn(&Shuffled) -> u64) -> String {
    let mut designs = BTreeMap::<usize, BTreeMap<u64, Vec<f64>>>::new();
    for line in lines {
        let of = designs.entry(line.design).or_default().entry(x(line)).or_default();
        of.push(line.gb_per_s);
    }
    let series = designs.into_iter().map(|(design, points)| {
        let (name, colour) = DESIGNS[design];
        let point = |(x, rates): (u64, Vec<f64>)| Some((x as f64, Spread::of(rates)?));
        (Key { name: name.to_string(), colour }, points.into_iter().filter_map(point).collect())
    });
    let series = series.collect();
    Curves { name, unit: UNIT.to_string(), across: across.to_string(), series }.svg()
}

/// Where the length was changed, and of runs that were about nothing else.
fn by_message_bytes(lines: &[&Shuffled]) -> String {
    let mut sets = sets(lines, Shown::MessageBytes);
    sets.retain(|_, lines| {
        let mut by_design = BTreeMap::<usize, BTreeSet<u64>>::new();
        for line in lines.iter() {
            by_design.entry(line.design).or_default().insert(line.message_bytes);
        }
        by_design.values().any(|lengths| lengths.len() > 1) || lines.iter().any(|l| l.is_plain())
    });
    let plot = |(name, lines): (String, Vec<&Shuffled>)| {
        curves(name, "bytes of a message", &lines, |line| line.message_bytes)
    };
    sets.into_iter().map(plot).collect()
}

/// Only where the frequency was changed.
fn by_credit(lines: &[&Shuffled]) -> String {
    let mut sets = sets(lines, Shown::CreditEvery);
    sets.retain(|_, lines| differ(lines, |line| line.credit_every));
    let plot = |(name, lines): (String, Vec<&Shuffled>)| {
        curves(name, "messages after which credit is written back", &lines, |line| {
            line.credit_every
        })
    };
    sets.into_iter().map(plot).collect()
}

fn differ<T: Ord>(lines: &[&Shuffled], what: impl Fn(&Shuffled) -> T) -> bool {
    lines.iter().map(|line| what(line)).collect::<BTreeSet<_>>().len() > 1
}

/// A group and a name for each run; bars of those that have both in common are one.
pub(super) type Sorted = (u64, String);

/// Bars in groups. Groups and names are in the order of their numbers.
pub(super) fn bars<L>(
    (name, unit, across): (String, &str, &str),
    lines: &[&L],
    value: fn(&L) -> f64,
    place: impl Fn(&L) -> (Sorted, Sorted),
    colour: impl Fn(usize, &Sorted) -> &'static str,
) -> String {
    let mut cells = BTreeMap::<(Sorted, Sorted), Vec<f64>>::new();
    for line in lines {
        cells.entry(place(line)).or_default().push(value(line));
    }
    let groups: BTreeSet<&Sorted> = cells.keys().map(|(group, _)| group).collect();
    let names: BTreeSet<&Sorted> = cells.keys().map(|(_, name)| name).collect();
    let series = names.iter().enumerate().map(|(i, name)| {
        let bar = |group: &&Sorted| {
            let found = cells.get(&((*group).clone(), (*name).clone()))?;
            Spread::of(found.iter().copied())
        };
        let key = Key { name: name.1.clone(), colour: colour(i, name) };
        (key, groups.iter().map(bar).collect())
    });
    Bars {
        name,
        unit: unit.to_string(),
        across: across.to_string(),
        series: series.collect(),
        groups: groups.iter().map(|group| group.1.clone()).collect(),
    }
    .svg()
}

fn in_turn(i: usize, _: &Sorted) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

/// A plot for each design: adaptive buffers first, then fixed depths, by compute cost.
fn by_buffers(lines: &[&Shuffled]) -> String {
    let mut out = String::new();
    for (set, lines) in sets(lines, Shown::Buffers) {
        let designs: BTreeSet<usize> = lines.iter().map(|line| line.design).collect();
        for design in designs {
            let lines: Vec<&Shuffled> =
                lines.iter().filter(|line| line.design == design).copied().collect();
            let adaptive = |line: &Shuffled| line.buffers.starts_with("adaptive");
            if !differ(&lines, adaptive) {
                continue;
            }
            let place = |line: &Shuffled| {
                let depth = line.buffers.split(':').nth(1).and_then(|depth| depth.parse().ok());
                let depth = if adaptive(line) { 0 } else { depth.unwrap_or(u64::MAX) };
                let compute = (line.compute_us * 1e3) as u64;
                ((compute, short(line.compute_us)), (depth, line.buffers.clone()))
            };
            let name = format!("{}: {set}", DESIGNS[design].0);
            let across = "microseconds that a receiver computes for each 32 KiB";
            out.push_str(&bars((name, UNIT, across), &lines, |line| line.gb_per_s, place, in_turn));
        }
    }
    out
}

/// Where there are runs with a straggler: beside those without.
fn by_straggler(lines: &[&Shuffled]) -> String {
    let mut sets = sets(lines, Shown::Straggler);
    sets.retain(|_, lines| lines.iter().any(|line| line.straggler_us.is_some()));
    let place = |line: &Shuffled| {
        let straggler = match line.straggler_us {
            None => (0, "all alike".to_string()),
            Some(us) => (1 + (us * 1e3) as u64, format!("one of {} us", short(us))),
        };
        ((line.design as u64, line.design().to_string()), straggler)
    };
    let plot = |(name, lines): (String, Vec<&Shuffled>)| {
        bars((name, UNIT, "design"), &lines, |line| line.gb_per_s, place, in_turn)
    };
    sets.into_iter().map(plot).collect()
}

/// Of all runs, whatever they were about.
fn setup(lines: &[&Shuffled]) -> String {
    if lines.is_empty() {
        return String::new();
    }
    let place = |line: &Shuffled| {
        let group = (line.processes << 32 | line.threads, line.layout());
        (group, (line.design as u64, line.design().to_string()))
    };
    let colour = |_, name: &Sorted| DESIGNS[name.0 as usize].1;
    let name = "From opening endpoints until they are connected".to_string();
    bars((name, "ms", "processes × threads"), lines, |line| line.setup_ms, place, colour)
}

/// Commands and dates of lines.
pub(super) fn sources<'a>(lines: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let mut dates = BTreeMap::<&str, Vec<&str>>::new();
    for (command, date) in lines {
        dates.entry(command).or_default().push(date);
    }
    if dates.is_empty() {
        return String::new();
    }
    let row = |(command, mut dates): (&str, Vec<&str>)| {
        dates.sort_unstable();
        let (count, first) = (dates.len(), dates.first().copied().unwrap_or_default());
        let last = dates.last().filter(|last| **last != first);
        let dates = last.map_or(first.to_string(), |last| format!("{first} to {last}"));
        vec![command.to_string(), count.to_string(), dates]
    };
    table(&["command", "lines", "date (UTC)"], &dates.into_iter().map(row).collect::<Vec<_>>())
}
