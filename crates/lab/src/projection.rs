//! `millstream bench WORKLOAD --project 16x10` and `--predict 2x1`: computes how long a job would
//! take on other machines, or should take on this one, from the measured cost of the engine's own
//! code and from stated models of everything else (docs/measuring.md, *Projections*).

use std::fmt;
use std::process::Command;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use millstream::cluster::WORKERS_MAX;
use millstream::projection::{self, Costs, Kind, Machine, Price, Projected, Projection, Shared};
use millstream::{Exchange, Job, MemoryTable, Plan, Session, Settings, Sink, Stats, counters};
use millstream_fabric::sim::Model;
use millstream_flow::channel::Settings as Channels;
use millstream_workloads::{Answer, Spec, Verifier, Zipf, expected, generate, oracle, schema, sql};
use serde_json::{Map, Value, json};

use crate::channel::compare::{Medium, Shm};
use crate::channel::costs;
use crate::channel::waiting::{Waiting, waiting};
use crate::failure::{fail, note, print};
use crate::verify::VerifySink;
use crate::workload::exchange_name;
use crate::{Failure, peak_rss_bytes, provenance, round};

/// Processes, and workers of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Processes.
    pub processes: usize,
    /// Workers of each.
    pub workers: usize,
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Layout, String> {
        let count = |word: &str| word.parse().ok().filter(|n| (1..=WORKERS_MAX).contains(n));
        let both = text.split_once('x').and_then(|(p, w)| Some((count(p)?, count(w)?)));
        match both {
            Some((processes, workers)) if processes * workers <= WORKERS_MAX => {
                Ok(Layout { processes, workers })
            }
            _ => Err(format!(
                "expected PROCESSESxWORKERS, for example 16x10, of at most {WORKERS_MAX} workers in all"
            )),
        }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.processes, self.workers)
    }
}

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub enum Question {
    /// A node for each process, with a processor for each worker.
    Project(Layout),
    /// Real processes on this machine, over shared memory.
    Predict(Layout),
}

impl Question {
    /// The processes and workers that it is about.
    pub fn layout(&self) -> Layout {
        match self {
            Question::Project(layout) | Question::Predict(layout) => *layout,
        }
    }

    /// As it is written on the command line.
    pub fn option(&self) -> &'static str {
        match self {
            Question::Project(_) => "--project",
            Question::Predict(_) => "--predict",
        }
    }

    /// The median of so many is reported: machines have moods. Many nodes take minutes.
    fn passes(&self) -> usize {
        match self {
            Question::Project(_) => 1,
            Question::Predict(_) => 3,
        }
    }

    /// Workers that run at the same time on this machine while costs are measured beside others,
    /// this one included: as many as would in reality.
    fn at_once(&self) -> usize {
        let Layout { processes, workers } = self.layout();
        (processes * workers).min(processors())
    }
}

/// Processors of this machine.
fn processors() -> usize {
    available_parallelism().map_or(1, |n| n.get())
}

/// What messages cost here, and waking up.
struct Messages {
    costs: costs::Costs,
    waiting: Waiting,
}

impl Messages {
    fn measure() -> Result<Messages, Failure> {
        let medium = Shm::open().map_err(|e| fail(&e))?;
        let devices = medium.devices();
        let costs = costs::costs(devices, Channels::default()).map_err(|e| fail(&e))?;
        let waiting = waiting(devices, Channels::default(), 50, Duration::from_millis(2));
        Ok(Messages { costs, waiting: waiting.map_err(|e| fail(&e))? })
    }

    /// What sending takes longer that wakes somebody.
    fn waking(&self) -> Duration {
        let sending = Duration::from_nanos(self.costs.sending.message_ns as u64);
        self.waiting.waking.saturating_sub(sending)
    }

    /// Over shared memory a processor carries every byte. A card reads by itself what is sent; what
    /// has been received has to be brought near in any case.
    fn charge(&self, costs: Costs, question: &Question) -> Costs {
        let carried = matches!(question, Question::Predict(_));
        let price = |cost: costs::Cost, carried: bool| Price {
            span_ns: cost.message_ns,
            unit_ns: if carried { cost.byte_ns } else { 0.0 },
        };
        let costs::Costs { posting, sending, receiving, look_ns } = self.costs;
        // Its share stays to be seen; starting and ending are left out.
        let costs = if carried { costs } else { costs.with(Kind::End, Price::default()) };
        costs
            .with(Kind::Post, price(posting, carried))
            .with(Kind::Send, price(sending, carried))
            .with(Kind::Receive, price(receiving, true))
            .with(Kind::Look, Price { span_ns: look_ns, unit_ns: 0.0 })
    }
}

/// The machines of a question.
fn machine(question: &Question, messages: &Messages) -> Machine {
    let [wake, _] = messages.waiting.wake;
    match question {
        // Between nodes, the card wakes who sleeps.
        Question::Project(_) => {
            Machine { processors: None, network: Model::default(), wake, waking: Duration::ZERO }
        }
        // What a processor writes the other sees, as fast as caches are; its time is charged to the
        // processor.
        Question::Predict(_) => Machine {
            processors: Some(Shared { number: processors(), slice: time_slice() }),
            network: Model {
                bytes_per_s: u64::MAX / 4,
                messages_per_s: 1_000_000_000,
                latency: Duration::from_nanos(100),
                ..Model::default()
            },
            wake,
            waking: messages.waking(),
        },
    }
}

/// How long a thread keeps its processor while another wants it: the median of what two threads to
/// each processor get. Whatever takes it away for less than `GAP_MIN` is something else.
fn time_slice() -> Duration {
    const TIME: Duration = Duration::from_millis(200);
    const GAP_MIN: Duration = Duration::from_micros(300);
    let start = Instant::now();
    let spin = || {
        let (mut slices, mut from, mut last) = (Vec::new(), None, start.elapsed());
        while last < TIME {
            let now = start.elapsed();
            if now - last > GAP_MIN {
                // The first one began before this thread looked.
                slices.extend(from.map(|from| last - from));
                from = Some(now);
            }
            last = now;
        }
        slices
    };
    let mut slices: Vec<Duration> = thread::scope(|scope| {
        let threads: Vec<_> = (0..2 * processors()).map(|_| scope.spawn(spin)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    });
    slices.sort_unstable();
    slices.get(slices.len() / 2).copied().unwrap_or(TIME)
}

/// A workload, planned.
struct Prepared<'a> {
    spec: &'a Spec,
    settings: &'a Settings,
    plan: Plan,
}

impl<'a> Prepared<'a> {
    /// Generates `records` records in so many splits.
    fn new(spec: &'a Spec, splits: usize, settings: &'a Settings) -> Result<Prepared<'a>, Failure> {
        let data = generate(spec, splits, settings.batch_rows);
        let table = MemoryTable::new(schema(spec.workload), data).map_err(|e| fail(&e))?;
        let mut session = Session::new(".");
        *session.settings_mut() = settings.clone();
        let event_time = Some(("ts", spec.watermark_delay_ms() as i64 * 1000));
        session
            .register_table(spec.workload.name(), Arc::new(table), event_time)
            .map_err(|e| fail(&e))?;
        let plan = session.plan(&sql(spec)).map_err(|e| fail(&e))?;
        Ok(Prepared { spec, settings, plan })
    }

    fn sinks(&self, processes: usize) -> Vec<Arc<VerifySink>> {
        (0..processes).map(|_| VerifySink::new(self.spec, self.settings.workers)).collect()
    }

    fn job(&self) -> Projected<'_> {
        let channels = Channels::default();
        Projected { plan: &self.plan, settings: self.settings, channels }
    }
}

/// Runs the same jobs of one worker, over and over, until it is told to stop: what the neighbours
/// do.
fn neighbour(work: &Prepared<'_>, stop: &AtomicBool) -> Result<(), Failure> {
    while !stop.load(Ordering::Relaxed) {
        let [sink] = &work.sinks(1)[..] else { return Ok(()) };
        let job = Job::new(&work.plan, work.settings, vec![sink.clone()]);
        let (_, result) = job.map_err(|e| fail(&e))?.run();
        result.map_err(|e| fail(&e))?;
    }
    Ok(())
}

fn dynamic(sinks: &[Arc<VerifySink>]) -> Vec<Arc<dyn Sink>> {
    sinks.iter().map(|sink| sink.clone() as Arc<dyn Sink>).collect()
}

/// Measures the costs while so many other processors are as busy as can be.
fn measure(work: &Prepared<'_>, question: &Question, busy: usize) -> Result<Costs, Failure> {
    let Layout { processes, workers } = question.layout();
    let settings = Settings { workers: 1, exchange: Exchange::LateMerge, ..work.settings.clone() };
    let share = Spec {
        records: (work.spec.records / (processes * workers) as u64).clamp(1, 5_000_000),
        ..work.spec.clone()
    };
    let neighbours =
        (0..busy).map(|_| Prepared::new(&share, 1, &settings)).collect::<Result<Vec<_>, _>>()?;
    let sinks = dynamic(&work.sinks(processes));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> =
            neighbours.iter().map(|one| scope.spawn(|| neighbour(one, &stop))).collect();
        // On a thread of its own, as workers are: that is another part of the allocator's memory.
        let measured = scope.spawn(|| projection::measure(work.job(), &sinks));
        let costs = measured.join();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            thread.join().map_err(|_| fail(&"a neighbour panicked"))??;
        }
        costs.map_err(|_| fail(&"measuring panicked"))?.map_err(|e| fail(&e))
    })
}

/// How busy the other processors are beside one that is all the time, where so many workers are
/// busy for this part of it in the mean.
fn others_busy(busy: f64, workers: usize, processors: usize) -> f64 {
    (busy * workers as f64 - 1.0) / (processors as f64 - 1.0).max(1.0)
}

/// The job in virtual time, from what was measured for it.
struct Pass {
    costs: Costs,
    projection: Projection,
    sinks: Vec<Arc<VerifySink>>,
}

impl Pass {
    /// Measures beside busy neighbours and alone: how busy the neighbours of the worker are for
    /// which all others wait, the job in virtual time tells, and so far prices lie between both.
    fn run(
        work: &Prepared<'_>,
        question: &Question,
        machine: &Machine,
        messages: &Messages,
    ) -> Result<Pass, Failure> {
        let others = question.at_once() - 1;
        let project = |costs: Costs| {
            let costs = messages.charge(costs, question);
            let sinks = work.sinks(question.layout().processes);
            let found = projection::project(work.job(), &dynamic(&sinks), machine, &costs);
            Ok(Pass { costs, projection: found.map_err(|e| fail(&e))?, sinks })
        };
        let costs = measure(work, question, others)?;
        if others == 0 {
            return project(costs);
        }
        let alone = measure(work, question, 0)?;
        let Layout { processes, workers } = question.layout();
        let all = processes * workers;
        let processors = machine.processors.map_or(all, |shared| shared.number.min(all));
        let busy = project(costs.clone())?.projection.busy;
        project(alone.towards(&costs, others_busy(busy, all, processors)))
    }
}

/// What it takes to start a job of real processes and to end it: the median of jobs with one
/// record.
fn start_and_end(spec: &Spec, layout: Layout, exchange: Exchange) -> Result<Duration, Failure> {
    const RUNS: usize = 5;
    let program = std::env::current_exe().map_err(|e| fail(&e))?;
    let run = || {
        let mut command = Command::new(&program);
        command.args(["bench", spec.workload.name(), "--json", "--records", "1"]);
        command.args(["--exchange", exchange_name(exchange)]);
        command.args(["--workers", &layout.workers.to_string()]);
        command.args(["--processes", &layout.processes.to_string()]);
        let output = command.output().map_err(|e| fail(&e))?;
        let line: Option<Value> = serde_json::from_slice(&output.stdout).ok();
        let seconds = line.and_then(|line| line["seconds"].as_f64());
        seconds.ok_or_else(|| fail(&format!("a job with one record failed: {}", output.status)))
    };
    let mut seconds = (0..RUNS).map(|_| run()).collect::<Result<Vec<_>, _>>()?;
    seconds.sort_unstable_by(f64::total_cmp);
    Ok(Duration::from_secs_f64(seconds[RUNS / 2].clamp(0.0, 60.0)))
}

/// What came out.
struct Found {
    seconds: f64,
    ok: bool,
    answer: Answer,
    stats: Stats,
    /// Fields of the JSON line that say what was computed, and from what.
    fields: Map<String, Value>,
}

/// Computes a rate in place of measuring one, and prints it.
pub fn run(
    spec: &Spec,
    settings: &Settings,
    question: &Question,
    as_json: bool,
) -> Result<(), Failure> {
    let found = find(spec, settings, question)?;
    let Layout { processes, workers } = question.layout();
    let rate = spec.records as f64 / found.seconds / 1e6;
    if !as_json {
        let right = if found.ok { "right" } else { "WRONG" };
        print(&format!(
            "{:<10} {processes} x {workers}  computed, not measured: {rate:.1} million records/s, {:.3} s, answer {right}",
            spec.workload.name(),
            found.seconds,
        ))?;
    } else {
        let mut object = found.fields;
        let line = json!({
            "engine": "millstream",
            "workload": spec.workload.name(),
            "processes": processes,
            "workers": workers,
            "zipf": spec.zipf.map(Zipf::exponent),
            "fabric": "sim",
            "exchange": exchange_name(settings.exchange),
            "records": spec.records,
            "seconds": round(found.seconds, 6),
            "mrec_per_s": round(rate, 3),
            "result_rows": found.answer.result_rows,
            "ok": found.ok,
            "peak_rss_bytes": peak_rss_bytes(),
        });
        for (name, value) in line.as_object().into_iter().flatten() {
            object.insert(name.clone(), value.clone());
        }
        object.extend(provenance::fields().map(|(name, value)| (name.to_string(), value)));
        for (name, value) in counters(&found.stats) {
            object.entry(name).or_insert(value);
        }
        print(&Value::Object(object).to_string())?;
    }
    if found.ok { Ok(()) } else { Err(fail(&"the answer is wrong")) }
}

/// Measures, and runs the job in virtual time.
fn find(spec: &Spec, settings: &Settings, question: &Question) -> Result<Found, Failure> {
    let layout = question.layout();
    let settings = &Settings { workers: layout.workers, simulate: None, ..settings.clone() };
    let fixed = match question {
        Question::Project(_) => Duration::ZERO,
        Question::Predict(_) => start_and_end(spec, layout, settings.exchange)?,
    };
    let messages = Messages::measure()?;
    let machine = machine(question, &messages);
    let work = Prepared::new(spec, layout.processes * layout.workers, settings)?;
    let number = question.passes();
    let mut passes = Vec::new();
    for pass in 1..=number {
        note(&format!("measuring {layout} and running it in virtual time, {pass} of {number}"));
        passes.push(Pass::run(&work, question, &machine, &messages)?);
    }
    passes.sort_by_key(|pass| pass.projection.time);
    let Pass { costs, projection, sinks } = passes.swap_remove(number / 2);
    let mut verifier = Verifier::new(spec);
    sinks.iter().for_each(|sink| sink.add_to(&mut verifier));
    let answer = verifier.answer();
    let ok = answer == expected(spec).unwrap_or_else(|| oracle(spec));
    let mut stats = Stats::default();
    projection.stats.iter().for_each(|one| stats.add_process(one));
    let seconds = (projection.time + fixed).as_secs_f64();
    stats.elapsed_us = (seconds * 1e6) as u64;
    let fields = fields(question, &machine, &costs, &projection, fixed);
    Ok(Found { seconds, ok, answer, stats, fields })
}

fn fields(
    question: &Question,
    machine: &Machine,
    costs: &Costs,
    projection: &Projection,
    fixed: Duration,
) -> Map<String, Value> {
    let micros = |time: Duration| round(time.as_secs_f64() * 1e6, 3);
    let price = |kind: Kind| {
        let Price { span_ns, unit_ns } = costs.price(kind);
        let price = json!({
            "span_ns": round(span_ns, 1),
            "unit_ns": round(unit_ns, 4),
            "share": round(costs.share(kind), 4),
        });
        (kind.name().to_string(), price)
    };
    let Model { bytes_per_s, messages_per_s, latency, .. } = machine.network;
    let network = match question {
        Question::Predict(_) => json!("shared memory: the processors' time, and nothing else"),
        Question::Project(_) => json!({
            "bytes_per_s": bytes_per_s,
            "messages_per_s": messages_per_s,
            "latency_us": micros(latency),
        }),
    };
    let model = json!({
        "network": network,
        "processors": machine.processors.map(|shared| shared.number),
        "slice_us": machine.processors.map(|shared| micros(shared.slice)),
        "wake_us": micros(machine.wake),
        "waking_us": micros(machine.waking),
        "start_and_end_us": micros(fixed),
        "at_once": question.at_once(),
        "busy": round(projection.busy, 4),
        "prices": Kind::ALL.into_iter().map(price).collect::<Map<_, _>>(),
    });
    let predicts = matches!(question, Question::Predict(_)).then_some("shm");
    let fields = [("projection", json!(true)), ("predicts", json!(predicts)), ("model", model)];
    fields.into_iter().map(|(name, value)| (name.to_string(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_are_as_busy_as_all_are_beside_one() {
        // Of a sender and a receiver one waits for half of the time; four share two processors.
        assert_eq!(others_busy(0.75, 2, 2), 0.5);
        assert_eq!(others_busy(0.5, 4, 2), 1.0);
        assert_eq!(others_busy(1.0, 160, 160), 1.0);
    }

    #[test]
    fn layouts_are_read() {
        assert_eq!("16x10".parse(), Ok(Layout { processes: 16, workers: 10 }));
        assert_eq!("256x1".parse(), Ok(Layout { processes: 256, workers: 1 }));
        for wrong in ["", "16", "x", "16x", "0x1", "1x0", "-1x2", "16x17", "1x2x3", "1 x2"] {
            assert!(wrong.parse::<Layout>().is_err(), "{wrong}");
        }
    }
}
