//! Checks of multicast groups.

use std::time::{Duration, Instant};

use super::datagram::Side;
use super::ends::SIZES;
use super::{Bed, Check, Failure, Outcome, ensure, pattern, same, text};
use millstream_fabric::{
    Access, Completion, CompletionQueue, DATAGRAM_HEADER_BYTES, Datagram, Destination, Error,
    Events, Fabric, Group, Kind, Outgoing, Receive, Source, Status,
};

pub(super) const REFUSAL: &str = "groups work, or are refused, as the limits say";

pub(super) fn checks<F: Fabric>() -> Vec<(&'static str, Check<F>)> {
    vec![
        (REFUSAL, refusal::<F>),
        ("a group's datagram arrives once at each member", once_each::<F>),
        ("joining a group twice changes nothing", twice::<F>),
        ("a member without a receive is alone in losing a datagram", without_receive::<F>),
        ("outside of a group nothing is heard", outside::<F>),
        ("a member hears its groups and its own address", both::<F>),
        ("a member that is dropped leaves its groups", dropped::<F>),
        ("a group's datagram wakes a member", wakes::<F>),
        ("groups of other jobs are not heard", other_job::<F>),
    ]
}

/// The names of the checks that a provider without groups cannot pass.
pub fn names<F: Fabric>() -> Vec<&'static str> {
    checks::<F>().into_iter().map(|(name, _)| name).filter(|name| *name != REFUSAL).collect()
}

const GROUP: Group = Group::new(7);
const OTHER_GROUP: Group = Group::new(8);
/// Receives of each member: all that its receive queue takes.
const RECEIVES: usize = 16;
const SLOT_BYTES: usize = 2048;
/// Where the bytes to send are, behind the receives' buffers.
const SOURCE_AT: usize = 48 * 1024;

type Address<F> = <<F as Fabric>::Datagram as Datagram>::Address;

/// A datagram queue pair, and what came of it.
struct End<F: Fabric> {
    side: Side<F>,
    heard: Vec<Completion>,
    sent: usize,
    /// Number of the next datagram, its immediate value.
    next: u32,
}

impl<F: Fabric> End<F> {
    fn without_receives(device: &F) -> Result<End<F>, Failure> {
        Ok(End { side: Side::new(device)?, heard: Vec::new(), sent: 0, next: 0 })
    }

    fn new(device: &F) -> Result<End<F>, Failure> {
        let mut end = End::without_receives(device)?;
        for slot in 0..RECEIVES {
            end.receive(slot)?;
        }
        Ok(end)
    }

    fn member(device: &F, group: Group) -> Result<End<F>, Failure> {
        let mut end = End::new(device)?;
        end.side.datagrams.join(group).map_err(text)?;
        Ok(end)
    }

    fn receive(&mut self, slot: usize) -> Outcome {
        self.side.receive(slot as u64, slot * SLOT_BYTES, SLOT_BYTES)
    }

    fn group(&mut self, group: Group) -> Result<Address<F>, Failure> {
        self.side.datagrams.resolve_group(group).map_err(text)
    }

    fn resolve(&mut self, to: &End<F>) -> Result<Address<F>, Failure> {
        self.side.datagrams.resolve(&to.side.datagrams.endpoint()).map_err(text)
    }

    /// Takes completions; everything but success is a failure.
    fn poll(&mut self) -> Outcome {
        let mut some = [Completion::default(); 4];
        let count = self.side.queue.poll(&mut some).map_err(text)?;
        for done in &some[..count] {
            same("status", done.status, Status::Success)?;
            match done.kind {
                Kind::Send => self.sent += 1,
                Kind::Receive => self.heard.push(*done),
                other => return Err(format!("a completion of {other:?}")),
            }
        }
        Ok(())
    }

    /// Sends the next datagram, of so many bytes, and waits until its completion has come.
    fn send(&mut self, bed: &Bed<'_, F>, to: &Address<F>, bytes: usize) -> Outcome {
        let number = self.next;
        self.next += 1;
        let data = pattern(number.into(), bytes);
        self.side.memory.write(SOURCE_AT, &data).map_err(text)?;
        let source = Source::Region { region: &self.side.memory, offset: SOURCE_AT, bytes };
        let immediate = Some(number);
        let request = Outgoing { id: 8, to, source, immediate, signalled: true };
        self.side.datagrams.post(&[request]).map_err(text)?;
        let expected = self.sent + 1;
        let sent = bed.until(|| {
            self.poll()?;
            Ok(self.sent >= expected)
        })?;
        ensure(sent, || format!("datagram {number} was not sent"))
    }

    /// Numbers of the datagrams that arrived, in order.
    fn numbers(&self) -> Vec<Option<u32>> {
        let mut numbers: Vec<_> = self.heard.iter().map(|done| done.immediate).collect();
        numbers.sort_unstable();
        numbers
    }
}

/// Polls for a while, and checks that the end has still heard exactly these numbers.
fn stays_at<F: Fabric>(bed: &Bed<'_, F>, end: &mut End<F>, numbers: &[u32]) -> Outcome {
    for _ in 0..200 {
        end.poll()?;
        (bed.idle)();
    }
    let expected: Vec<_> = numbers.iter().copied().map(Some).collect();
    same("the numbers of the datagrams that arrived", end.numbers(), expected)
}

/// Sends to `to` until `at` hears of it: the medium may lose some. Returns the first number that
/// was heard.
fn reaches<F: Fabric>(
    bed: &Bed<'_, F>,
    from: &mut End<F>,
    to: &Address<F>,
    at: &mut End<F>,
) -> Result<u32, Failure> {
    let (begin, sent) = (from.next, from.sent);
    let known = at.heard.len();
    for tries in 1..=100 {
        from.send(bed, to, 10)?;
        same("completions of sends", from.sent - sent, tries)?;
        for _ in 0..1000 {
            at.poll()?;
            let new = |done: &&Completion| done.immediate.is_some_and(|number| number >= begin);
            if let Some(done) = at.heard[known..].iter().find(new) {
                return Ok(done.immediate.unwrap_or(0));
            }
            (bed.idle)();
        }
    }
    Err("none of 100 datagrams arrived".into())
}

fn refusal<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    for device in [bed.a, bed.b] {
        let mut end = End::<F>::without_receives(device)?;
        let joined = end.side.datagrams.join(GROUP);
        let resolved = end.side.datagrams.resolve_group(GROUP).map(drop);
        for result in [joined, resolved] {
            match (device.limits().multicast, result) {
                (true, Ok(())) => {}
                (false, Err(error @ Error::Unsupported { .. })) => {
                    let words = error.to_string();
                    ensure(words.contains("multicast groups"), || words.clone())?;
                }
                (limit, result) => return Err(format!("limit {limit}, but {result:?}")),
            }
        }
    }
    Ok(())
}

/// Three members on both devices, of which the sender is one.
fn once_each<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    const LENGTHS: [usize; 8] = [0, 1, 8, 100, 500, 512, 1000, 1024];
    let mut sender = End::member(bed.a, GROUP)?;
    let mut members = [End::member(bed.b, GROUP)?, End::member(bed.b, GROUP)?];
    let to = sender.group(GROUP)?;
    let (count, number) = (LENGTHS.len(), sender.side.datagrams.number());
    for bytes in LENGTHS {
        sender.send(bed, &to, bytes)?;
    }
    let arrived = bed.until(|| {
        sender.poll()?;
        members.iter_mut().try_for_each(End::poll)?;
        Ok(members.iter().chain([&sender]).all(|end| end.heard.len() >= count))
    })?;
    let all: Vec<u32> = (0..count as u32).collect();
    for end in members.iter_mut().chain([&mut sender]) {
        ensure(arrived, || format!("of {count} these arrived: {:?}", end.numbers()))?;
        stays_at(bed, end, &all)?;
        for done in &end.heard {
            let (Some(sent), slot) = (done.immediate, done.id as usize) else { continue };
            let bytes = LENGTHS[sent as usize];
            same("bytes", done.bytes as usize, DATAGRAM_HEADER_BYTES + bytes)?;
            same("sender", done.source_queue_pair, number)?;
            same("receiver", done.queue_pair, end.side.datagrams.number())?;
            let mut copy = vec![0; bytes];
            let at = slot * SLOT_BYTES + DATAGRAM_HEADER_BYTES;
            end.side.memory.read(at, &mut copy).map_err(text)?;
            ensure(copy == pattern(sent.into(), bytes), || format!("{bytes} bytes are damaged"))?;
        }
    }
    same("completions of sends", sender.sent, count)
}

fn twice<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let (mut sender, mut member) = (End::new(bed.a)?, End::member(bed.b, GROUP)?);
    member.side.datagrams.join(GROUP).map_err(text)?;
    let to = sender.group(GROUP)?;
    sender.send(bed, &to, 10)?;
    let arrived = bed.until(|| member.poll().map(|()| !member.heard.is_empty()))?;
    ensure(arrived, || "nothing arrived".into())?;
    stays_at(bed, &mut member, &[0])
}

fn without_receive<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut sender = End::new(bed.a)?;
    let mut with = End::member(bed.b, GROUP)?;
    let mut without = End::without_receives(bed.b)?;
    without.side.datagrams.join(GROUP).map_err(text)?;
    let to = sender.group(GROUP)?;
    reaches(bed, &mut sender, &to, &mut with)?;
    stays_at(bed, &mut without, &[])?;
    // The lost datagrams stay lost, and later ones arrive.
    without.receive(0)?;
    let later = sender.next;
    let heard = reaches(bed, &mut sender, &to, &mut without)?;
    ensure(heard >= later, || format!("datagram {heard} was not lost"))?;
    same("datagrams that arrived", without.heard.len(), 1)
}

fn outside<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut sender = End::new(bed.a)?;
    let mut member = End::member(bed.b, GROUP)?;
    let mut others = [End::new(bed.b)?, End::member(bed.b, OTHER_GROUP)?, End::new(bed.a)?];
    let to = sender.group(GROUP)?;
    reaches(bed, &mut sender, &to, &mut member)?;
    // A group without members.
    let nobody = sender.group(Group::new(u16::MAX))?;
    sender.send(bed, &nobody, 10)?;
    for other in &mut others {
        stays_at(bed, other, &[])?;
        // It would have heard.
        let (to, first) = (sender.resolve(other)?, sender.next);
        let heard = reaches(bed, &mut sender, &to, other)?;
        ensure(heard >= first, || format!("datagram {heard} arrived"))?;
    }
    stays_at(bed, &mut sender, &[])
}

fn both<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut sender = End::new(bed.a)?;
    let mut member = End::member(bed.b, GROUP)?;
    member.side.datagrams.join(OTHER_GROUP).map_err(text)?;
    let addresses = [sender.group(GROUP)?, sender.resolve(&member)?, sender.group(OTHER_GROUP)?];
    for address in &addresses {
        reaches(bed, &mut sender, address, &mut member)?;
    }
    Ok(())
}

fn dropped<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut sender = End::new(bed.a)?;
    let (mut stays, mut leaves) = (End::member(bed.b, GROUP)?, End::member(bed.b, GROUP)?);
    let to = sender.group(GROUP)?;
    reaches(bed, &mut sender, &to, &mut leaves)?;
    let Side { mut queue, datagrams, memory: _memory } = leaves.side;
    drop(datagrams);
    // A new queue pair, perhaps at the place of the old one, is no member.
    let mut new = End::new(bed.b)?;
    for slot in 0..stays.heard.len() {
        stays.receive(slot)?;
    }
    reaches(bed, &mut sender, &to, &mut stays)?;
    bed.nothing(&mut queue)?;
    stays_at(bed, &mut new, &[])?;
    new.side.datagrams.join(GROUP).map_err(text)?;
    reaches(bed, &mut sender, &to, &mut new).map(drop)
}

fn other_job<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    // Of different jobs, the numbers of datagrams begin differently.
    const THEIRS: u32 = 1000;
    let mut ours = [End::member(bed.a, GROUP)?, End::member(bed.b, GROUP)?];
    let mut theirs = [End::member(bed.stranger, GROUP)?, End::member(bed.stranger, GROUP)?];
    theirs[0].next = THEIRS;
    for [from, at] in [&mut ours, &mut theirs] {
        let to = from.group(GROUP)?;
        reaches(bed, from, &to, at)?;
    }
    for _ in 0..200 {
        ours.iter_mut().chain(&mut theirs).try_for_each(End::poll)?;
        (bed.idle)();
    }
    for (job, range) in [(&ours, 0..THEIRS), (&theirs, THEIRS..u32::MAX)] {
        let heard = job.iter().flat_map(|end| end.numbers().into_iter().flatten());
        let foreign: Vec<u32> = heard.filter(|number| !range.contains(number)).collect();
        same("numbers of the other job's datagrams", foreign, Vec::new())?;
    }
    Ok(())
}

fn wakes<F: Fabric>(bed: &Bed<'_, F>) -> Outcome {
    let mut sender = End::new(bed.a)?;
    let mut events = bed.b.events().map_err(text)?;
    let mut queue = bed.b.completion_queue(64, Some(&events)).map_err(text)?;
    let mut datagrams = bed.b.datagram(&queue, &queue, SIZES).map_err(text)?;
    datagrams.join(GROUP).map_err(text)?;
    let memory = bed.b.allocate(SLOT_BYTES, Access::LOCAL).map_err(text)?;
    let buffer = Some(Destination { region: &memory, offset: 0, bytes: SLOT_BYTES });
    datagrams.post_receive(&[Receive { id: 1, buffer }]).map_err(text)?;
    let (to, mut one) = (sender.group(GROUP)?, [Completion::default()]);
    for _ in 0..100 {
        queue.arm().map_err(text)?;
        sender.send(bed, &to, 10)?;
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(1) {
            let woken = events.wait(Duration::from_secs(1)).map_err(text)?;
            if queue.poll(&mut one).map_err(text)? == 1 {
                return ensure(woken, || "the datagram came, and the wait did not end".into());
            }
            if !woken {
                break;
            }
        }
    }
    Err("none of 100 datagrams arrived".into())
}
