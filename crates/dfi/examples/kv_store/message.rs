//! Messages of both stores, and the ends of flows that carry them.

use std::cell::Cell;
use std::collections::{HashMap, VecDeque};

use millstream_dfi::{
    Consumed, Flow, Latency, OnLoss, Registry, Result, Source, SourceSetup, Target, TargetSetup,
    Thread, Tuple,
};
use millstream_fabric::Fabric;

millstream_dfi::tuple! {
    /// A message of 64 bytes.
    pub(crate) struct Message {
        /// One of the kinds below.
        pub(crate) kind: u64,
        /// One of the commands below.
        pub(crate) command: u64,
        /// Sender among the replicas; of a `FILL`, the receiver.
        pub(crate) replica: u64,
        pub(crate) client: u64,
        /// Number of the request among those of its client.
        pub(crate) number: u64,
        pub(crate) key: u64,
        pub(crate) value: u64,
        /// Place in the log.
        pub(crate) slot: u64,
    }
}

/// Kinds of messages.
pub(crate) const REQUEST: u64 = 1;
pub(crate) const ANSWER: u64 = 2;
/// A follower has a slot.
pub(crate) const VOTE: u64 = 3;
/// A follower asks the leader for a slot.
pub(crate) const ASK: u64 = 4;
/// The leader's answer.
pub(crate) const FILL: u64 = 5;
/// The leader makes a slot a no-op.
pub(crate) const COMMIT: u64 = 6;
/// A follower has done so.
pub(crate) const DONE: u64 = 7;

/// Commands.
pub(crate) const NO_OP: u64 = 0;
pub(crate) const READ: u64 = 1;
pub(crate) const WRITE: u64 = 2;

/// Number of the leader among the replicas.
pub(crate) const LEADER: u64 = 0;

/// State of a replica that executes commands.
#[derive(Default)]
pub(crate) struct Store(HashMap<u64, u64>);

impl Store {
    /// Executes a command and returns the answer's value.
    pub(crate) fn execute(&mut self, message: &Message) -> u64 {
        match message.command {
            WRITE => {
                self.0.insert(message.key, message.value);
                message.value
            }
            READ => self.0.get(&message.key).copied().unwrap_or(0),
            _ => 0,
        }
    }
}

std::thread_local! {
    /// Whether ports keep messages until the sender's next turn.
    static HELD: Cell<bool> = const { Cell::new(false) };
    /// Posted and taken messages since [`moved`] was called.
    static MOVED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
}

/// Ports of this thread keep messages while this lives.
pub(crate) struct Held(());

/// Lets ports keep messages until their sender's next turn, when its work is over.
pub(crate) fn hold() -> Held {
    MOVED.set((0, 0));
    HELD.set(true);
    Held(())
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.set(false);
    }
}

/// Messages that were posted and taken since the last call. A message to a group counts once.
pub(crate) fn moved() -> (u64, u64) {
    MOVED.replace((0, 0))
}

fn count(posted: u64, taken: u64) {
    let (before, and) = MOVED.get();
    MOVED.set((before + posted, and + taken));
}

/// A source, and the messages that wait for credit. A node takes no new work while messages wait.
pub(crate) struct Port<F: Fabric> {
    source: Source<F>,

    waiting: VecDeque<(Option<usize>, Message)>,
}

impl<F: Fabric> Port<F> {
    /// Sends to all targets of a replicate flow, or to the only target.
    pub(crate) fn send(&mut self, message: Message) -> Result<()> {
        count(1, 0);
        self.queue(None, message)
    }

    /// Sends to one target.
    pub(crate) fn send_to(&mut self, target: u64, message: Message) -> Result<()> {
        count(1, 0);
        self.queue(Some(target as usize), message)
    }

    fn queue(&mut self, target: Option<usize>, message: Message) -> Result<()> {
        self.waiting.push_back((target, message));
        if HELD.get() { Ok(()) } else { self.progress() }
    }

    /// Sends what waits, as far as there is credit.
    pub(crate) fn progress(&mut self) -> Result<()> {
        while let Some((target, message)) = self.waiting.front() {
            let sent = match target {
                Some(target) => self.source.try_push_to(*target, message)?,
                None => self.source.try_push(message)?,
            };
            if !sent {
                break;
            }
            self.waiting.pop_front();
        }
        self.source.progress()
    }

    pub(crate) fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Result of a look at a target.
pub(crate) enum Brought {
    Message(Message),
    Gap(u64),
    Nothing,
}

/// Takes the next message. All flows here have a segment for each message.
pub(crate) fn take<F: Fabric>(target: &mut Target<F>) -> Result<Brought> {
    Ok(match target.try_consume()? {
        Consumed::Batch(batch) => match batch.rows::<Message>()?.first() {
            Some(message) => {
                count(0, 1);
                Brought::Message(*message)
            }
            None => Brought::Nothing,
        },
        Consumed::Gap(number) => Brought::Gap(number),
        Consumed::Empty | Consumed::End => Brought::Nothing,
    })
}

/// The ends of a flow, by index.
type Ends<F> = (Vec<Port<F>>, Vec<Target<F>>);

/// Publishes and connects a flow between the devices with these indices.
pub(crate) fn open<F: Fabric>(
    devices: &[F],
    registry: &impl Registry,
    (flow, name, segments): (Flow, &str, usize),
    (from, to): (&[usize], &[usize]),
) -> Result<Ends<F>> {
    let patience = std::time::Duration::from_secs(10);
    let thread = |node: &usize| Thread::new(*node as u32, 0);
    flow.sources(from.iter().map(thread))
        .targets(to.iter().map(thread))
        .schema(Message::schema())
        .optimise(Latency { segments })
        .on_loss(OnLoss::Drop)
        .publish(registry)?;
    let source =
        |node: &usize| SourceSetup::join(&devices[*node], registry, name, thread(node), patience);
    let target =
        |node: &usize| TargetSetup::join(&devices[*node], registry, name, thread(node), patience);
    let sources: Vec<_> = from.iter().map(source).collect::<Result<_>>()?;
    let targets: Vec<_> = to.iter().map(target).collect::<Result<_>>()?;
    let connect = |setup: SourceSetup<F>| {
        let source = setup.connect(registry, patience)?;
        Ok(Port { source, waiting: VecDeque::new() })
    };
    Ok((
        sources.into_iter().map(connect).collect::<Result<_>>()?,
        targets.into_iter().map(|one| one.connect(registry, patience)).collect::<Result<_>>()?,
    ))
}
