//! Metering: spans of work, the parts of a step. A meter either measures the time of a span or
//! charges a known price for it.
//!
//! Both serve projections ([`crate::projection`]), which run whole jobs on one thread; so a meter
//! belongs to its thread. In an ordinary job no meter runs, and a span costs one look at a
//! thread-local variable per batch, segment or message. Spans may be nested; the time of an inner
//! span does not count for the outer ones.

use std::cell::{Cell, RefCell};
use std::sync::OnceLock;
use std::time::Instant;

/// What is done in a span, and what its units are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A worker's step, but for what it does of the others.
    Step,
    /// Decoding a chunk, finding its event times: records.
    Prepare,
    /// The first pipeline; in the exchanged baseline, as far as to the exchange: records.
    Batch,
    /// Partitioning rows into the slots of their receivers: rows.
    Partition,
    /// Taking in exchanged rows: rows.
    Update,
    /// Merging a segment or a message of one: rows.
    Merge,
    /// Sealing fragments and handing them over.
    Seal,
    /// Merging what several workers of a process have for a leader elsewhere: rows.
    Combine,
    /// Firing a chunk of a window, up to the sink: rows.
    Fire,
    /// The end of a job that has no other processes: it gives its memory back. (Otherwise it does
    /// so when all have ended.)
    End,
    /// Sending from where rows stand: bytes.
    Post,
    /// Sending a slot that was filled: bytes.
    Send,
    /// Receiving a message: bytes.
    Receive,
    /// Looking for a message where there is none.
    Look,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 14] = [
        Kind::Step,
        Kind::Prepare,
        Kind::Batch,
        Kind::Partition,
        Kind::Update,
        Kind::Merge,
        Kind::Seal,
        Kind::Combine,
        Kind::Fire,
        Kind::End,
        Kind::Post,
        Kind::Send,
        Kind::Receive,
        Kind::Look,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Step => "step",
            Kind::Prepare => "prepare",
            Kind::Batch => "batch",
            Kind::Partition => "partition",
            Kind::Update => "update",
            Kind::Merge => "merge",
            Kind::Seal => "seal",
            Kind::Combine => "combine",
            Kind::Fire => "fire",
            Kind::End => "end",
            Kind::Post => "post",
            Kind::Send => "send",
            Kind::Receive => "receive",
            Kind::Look => "look",
        }
    }

    /// Whether it is what a message costs a processor, which depends on the fabric.
    pub fn of_fabric(self) -> bool {
        matches!(self, Kind::Post | Kind::Send | Kind::Receive | Kind::Look)
    }
}

/// The price of a span.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Price {
    /// Nanoseconds for each span.
    pub span_ns: f64,
    /// Nanoseconds for each of its units.
    pub unit_ns: f64,
}

/// By [`Kind`].
pub(crate) type Prices = [Price; Kind::ALL.len()];

/// What the spans of a kind came to: their number, units and nanoseconds, and what a line through
/// them takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Tally {
    pub(crate) spans: f64,
    pub(crate) units: f64,
    pub(crate) ns: f64,
    units_squared: f64,
    units_ns: f64,
}

/// By [`Kind`].
pub(crate) type Tallies = [Tally; Kind::ALL.len()];

impl Tally {
    fn add(&mut self, units: f64, ns: f64) {
        self.spans += 1.0;
        self.units += units;
        self.ns += ns;
        self.units_squared += units * units;
        self.units_ns += units * ns;
    }

    pub(crate) fn merge(&mut self, other: &Tally) {
        self.spans += other.spans;
        self.units += other.units;
        self.ns += other.ns;
        self.units_squared += other.units_squared;
        self.units_ns += other.units_ns;
    }

    /// The line of least squares through time by units, neither part of it negative. The sum of all
    /// times is kept.
    pub(crate) fn price(&self) -> Price {
        let Tally { spans, units, ns, units_squared, units_ns } = *self;
        if spans == 0.0 {
            return Price::default();
        }
        let spread = spans * units_squared - units * units;
        let slope = (spans * units_ns - units * ns) / spread;
        let most = if units > 0.0 { ns.max(0.0) / units } else { 0.0 };
        let unit_ns = match spread > 1e-6 * spans * units_squared {
            true => slope.clamp(0.0, most),
            // All alike: it is the units that take time, if there are any.
            false => most,
        };
        Price { span_ns: ((ns - unit_ns * units) / spans).max(0.0), unit_ns }
    }
}

enum Mode {
    Measure { clock: fn() -> u64, tallies: Box<Tallies>, open: Vec<Open>, overhead: Overhead },
    Charge { prices: Prices, ns: f64 },
}

/// A span that is being measured.
struct Open {
    start_ns: u64,
    inner_ns: f64,
}

/// What measuring a span takes: what of it falls into the span, and all of it.
#[derive(Debug, Clone, Copy, Default)]
struct Overhead {
    within_ns: f64,
    all_ns: f64,
}

thread_local! {
    static RUNS: Cell<bool> = const { Cell::new(false) };
    static METER: RefCell<Option<Mode>> = const { RefCell::new(None) };
}

/// A span of work; it ends when it is dropped.
#[must_use]
pub(crate) struct Span {
    kind: Kind,
    units: u64,
    runs: bool,
}

/// Begins a span.
#[inline]
pub(crate) fn span(kind: Kind) -> Span {
    let runs = RUNS.get();
    if runs {
        begin();
    }
    Span { kind, units: 0, runs }
}

impl Span {
    /// Adds to what has been done in it.
    #[inline]
    pub(crate) fn add(&mut self, units: usize) {
        self.units += units as u64;
    }

    /// It turned out to be of another kind.
    #[inline]
    pub(crate) fn turn_into(&mut self, kind: Kind) {
        self.kind = kind;
    }
}

impl Drop for Span {
    #[inline]
    fn drop(&mut self) {
        if self.runs {
            end(self.kind, self.units);
        }
    }
}

fn begin() {
    METER.with_borrow_mut(|meter| {
        if let Some(Mode::Measure { clock, open, .. }) = meter {
            open.push(Open { start_ns: clock(), inner_ns: 0.0 });
        }
    });
}

fn end(kind: Kind, units: u64) {
    METER.with_borrow_mut(|meter| match meter {
        Some(Mode::Measure { clock, tallies, open, overhead }) => {
            let Some(Open { start_ns, inner_ns }) = open.pop() else { return };
            let ns = (clock() - start_ns) as f64;
            tallies[kind as usize].add(units as f64, ns - inner_ns - overhead.within_ns);
            if let Some(outer) = open.last_mut() {
                outer.inner_ns += ns - overhead.within_ns + overhead.all_ns;
            }
        }
        Some(Mode::Charge { prices, ns }) => {
            let Price { span_ns, unit_ns } = prices[kind as usize];
            *ns += span_ns + unit_ns * units as f64;
        }
        None => {}
    });
}

/// A meter that runs on this thread as long as it lives.
pub(crate) struct Meter(());

impl Meter {
    /// Measures spans.
    pub(crate) fn measuring() -> Meter {
        Meter::measuring_by(real_ns)
    }

    /// By a clock that counts nanoseconds.
    fn measuring_by(clock: fn() -> u64) -> Meter {
        let mode = |overhead| {
            let (tallies, open) = Default::default();
            Mode::Measure { clock, tallies, open, overhead }
        };
        let meter = Meter::run(mode(Overhead::default()));
        let found = overhead(&meter);
        METER.set(Some(mode(found)));
        meter
    }

    /// Charges spans at these prices.
    pub(crate) fn charging(prices: Prices) -> Meter {
        Meter::run(Mode::Charge { prices, ns: 0.0 })
    }

    fn run(mode: Mode) -> Meter {
        METER.set(Some(mode));
        RUNS.set(true);
        Meter(())
    }

    /// What has been measured since it was asked for last.
    pub(crate) fn tallies(&self) -> Tallies {
        METER.with_borrow_mut(|meter| match meter {
            Some(Mode::Measure { tallies, .. }) => std::mem::take(&mut **tallies),
            _ => Tallies::default(),
        })
    }

    /// Nanoseconds that have been charged since it was asked for last.
    pub(crate) fn charged_ns(&self) -> f64 {
        METER.with_borrow_mut(|meter| match meter {
            Some(Mode::Charge { ns, .. }) => std::mem::take(ns),
            _ => 0.0,
        })
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        RUNS.set(false);
        METER.set(None);
    }
}

/// Nanoseconds since it was asked for first.
fn real_ns() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

/// The least time that empty spans take, of several tries.
fn overhead(meter: &Meter) -> Overhead {
    const SPANS: usize = 1000;
    let mut least = Overhead { within_ns: f64::MAX, all_ns: f64::MAX };
    for _ in 0..20 {
        let outer = span(Kind::Step);
        (0..SPANS).for_each(|_| drop(span(Kind::Look)));
        drop(outer);
        let tallies = meter.tallies();
        let within = tallies[Kind::Look as usize].ns / SPANS as f64;
        // What the spans themselves do not account for fell to the outer one, which is a span
        // itself.
        let all = within + (tallies[Kind::Step as usize].ns - within) / SPANS as f64;
        least.within_ns = least.within_ns.min(within);
        least.all_ns = least.all_ns.min(all);
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(points: &[(f64, f64)]) -> Tally {
        let mut tally = Tally::default();
        points.iter().for_each(|(units, ns)| tally.add(*units, *ns));
        tally
    }

    #[test]
    fn prices_are_a_line_through_the_spans() {
        let price = tally(&[(1.0, 130.0), (2.0, 160.0), (10.0, 400.0)]).price();
        assert!((price.span_ns - 100.0).abs() < 1e-6 && (price.unit_ns - 30.0).abs() < 1e-6);
        // Whatever the line would be, nothing takes less than no time, and all of it together as
        // long as it took.
        for points in [
            &[(1.0, 100.0), (10.0, 10.0)][..],
            &[(1.0, 1.0), (10.0, 1000.0)],
            &[(5.0, 7.0), (5.0, 9.0)],
            &[(0.0, 4.0), (0.0, 6.0)],
            &[(3.0, 30.0)],
        ] {
            let price = tally(points).price();
            assert!(price.span_ns >= 0.0 && price.unit_ns >= 0.0, "{points:?}: {price:?}");
            let found: f64 = points.iter().map(|(u, _)| price.span_ns + price.unit_ns * u).sum();
            let real: f64 = points.iter().map(|(_, ns)| ns).sum();
            assert!((found - real).abs() < 1e-6, "{points:?}: {price:?}");
        }
        assert_eq!(tally(&[(5.0, 7.0), (5.0, 9.0)]).price(), Price { span_ns: 0.0, unit_ns: 1.6 });
        assert_eq!(tally(&[]).price(), Price::default());
    }

    #[test]
    fn spans_are_charged_by_their_units_and_only_while_a_meter_runs() {
        let mut prices = Prices::default();
        prices[Kind::Merge as usize] = Price { span_ns: 100.0, unit_ns: 2.0 };
        prices[Kind::Look as usize] = Price { span_ns: 7.0, unit_ns: 0.0 };
        prices[Kind::Step as usize] = Price { span_ns: 1000.0, unit_ns: 0.0 };
        drop(span(Kind::Step));
        let meter = Meter::charging(prices);
        assert_eq!(meter.charged_ns(), 0.0);
        {
            let _step = span(Kind::Step);
            let mut merge = span(Kind::Merge);
            merge.add(3);
            merge.add(4);
            let mut turned = span(Kind::Receive);
            turned.turn_into(Kind::Look);
        }
        assert_eq!(meter.charged_ns(), 1000.0 + 114.0 + 7.0);
        assert_eq!(meter.charged_ns(), 0.0);
        drop(meter);
        drop(span(Kind::Step));
        assert_eq!(Meter::charging(prices).charged_ns(), 0.0);
    }

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    fn work(ns: u64) {
        NOW.set(NOW.get() + ns);
    }

    /// Every look at this clock takes 10 ns.
    fn slow_clock() -> u64 {
        work(10);
        NOW.get()
    }

    #[test]
    fn time_counts_once_and_without_the_measuring() {
        let meter = Meter::measuring_by(slow_clock);
        {
            let _step = span(Kind::Step);
            work(5);
            for units in [2, 3] {
                let mut batch = span(Kind::Batch);
                batch.add(units);
                work(100);
                drop(span(Kind::Look));
                work(50);
            }
            work(7);
        }
        let tallies = meter.tallies();
        let of = |kind: Kind| {
            let Tally { spans, units, ns, .. } = tallies[kind as usize];
            (spans, units, ns)
        };
        assert_eq!(of(Kind::Step), (1.0, 0.0, 12.0));
        assert_eq!(of(Kind::Batch), (2.0, 5.0, 300.0));
        assert_eq!(of(Kind::Look), (2.0, 0.0, 0.0));
        assert_eq!(meter.tallies()[Kind::Batch as usize].spans, 0.0);
    }
}
