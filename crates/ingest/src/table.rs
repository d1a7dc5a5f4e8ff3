//! The table of the connector `channel`. Its splits are slots.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_connect::{Options, everybody, io_error};
use millstream_contract::settings::parse_bytes;
use millstream_contract::table::{
    OpenOptions, Position, ReadOnce, Senders, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::flight::Server;
use crate::ring::{Looked, Ring};
use crate::served::Served;
use crate::slots::{DRAINED, Layout, Next, OnLoss, Slots};
use crate::welcome::{Host, Listener};
use crate::wire::Transport;

/// The port that Arrow Flight's own examples use.
const PORT: u16 = 8815;
const PRODUCERS_MAX: u64 = 16;
/// More slots would be threads in disguise.
const SLOTS_MAX: u64 = 1024;
/// Bytes of received batches that wait: at most this, and at most this part of the job's memory.
const WAITING_BYTES_MAX: u64 = 64 << 20;
const WAITING_PART: u64 = 8;
/// Bytes of a segment of a ring.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=4 << 20;
/// Time after a segment while workers look into the ring without a pause. A short sleep takes
/// about as long.
const AWAKE_US: i64 = 100;
/// After so long without a segment the producer counts as slow.
const BUSY_US: i64 = 20_000;
/// How often to look into a ring that is not slow, and into a slow one.
const LOOK_SOON_US: i64 = 50;
const LOOK_US: i64 = 1_000;
/// Looks into the empty ring of a job that is being drained: what is on its way comes, and the end
/// of a flow takes some looks.
const QUIET_LOOKS: usize = 40;
/// Looks into a ring without a chunk, after which other splits have their turn.
const LOOKS_MAX: usize = 64;
/// Bytes of segments to take at once: a second-level cache holds them.
const GATHERED_BYTES: usize = 256 << 10;
/// Bytes that a message may have in any case.
const MESSAGE_BYTES_MIN: u64 = 1 << 20;

/// Batches that programs send to the job.
#[derive(Debug, Clone)]
pub struct ChannelSource {
    address: SocketAddr,
    name: Arc<str>,
    producers: u64,
    slots: u64,
    bounded: bool,
    on_loss: OnLoss,
    token: Option<Arc<str>>,
    /// `None`: Arrow Flight.
    transport: Option<Transport>,
    /// Bytes of a segment of a ring, and segments.
    ring: (usize, usize),
    schema: SchemaRef,
}

impl ChannelSource {
    /// A table from `WITH` options. Listens when it is opened.
    ///
    /// # Errors
    ///
    /// [`millstream_contract::Error::Option`] with the option at fault.
    pub fn from_options(table: &TableOptions) -> Result<ChannelSource> {
        let options = Options::new(table);
        let form = "a port, or an address such as '127.0.0.1:8815'";
        let address = options.address("listen", form)?;
        let producers = options.integer("producers", 1, SLOTS_MAX)?.unwrap_or(1);
        let slots = options.integer("producers.max", 1, SLOTS_MAX)?;
        if let Some(slots) = slots.filter(|slots| *slots < producers) {
            let message = format!("{slots} is less than 'producers' = '{producers}'");
            return Err(options.error("producers.max", message, "leave it out, or take more"));
        }
        let bounded = options.flag("bounded")?;
        let on_loss = options.parsed("on_loss", "'fail' or 'notice'", |text| match text {
            "fail" => Some(OnLoss::Fail),
            "notice" => Some(OnLoss::Notice),
            _ => None,
        })?;
        let name = options.text("name").unwrap_or(&table.name);
        let token = options.parsed("token", "a text of visible ASCII characters", |text| {
            let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
            is_plain.then(|| Arc::from(text))
        })?;
        let transport =
            options.parsed("transport", "'flight', 'tcp', 'shm' or 'rdma'", |text| match text {
                "flight" => Some(None),
                "tcp" => Some(Some(Transport::Tcp)),
                "shm" => Some(Some(Transport::Shm)),
                "rdma" => Some(Some(Transport::Rdma)),
                _ => None,
            })?;
        let transport = transport.flatten();
        let ring = ring(&options, transport.is_some())?;
        options.finish("a channel table")?;
        let default = if bounded { OnLoss::Fail } else { OnLoss::Notice };
        Ok(ChannelSource {
            address: address.unwrap_or(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)),
            name: name.into(),
            producers,
            slots: slots.unwrap_or(PRODUCERS_MAX.max(producers)),
            bounded,
            on_loss: on_loss.unwrap_or(default),
            token,
            transport,
            ring,
            schema: table.schema.clone(),
        })
    }

    fn place(&self) -> String {
        format!("channel {}", self.name)
    }

    fn slot_name(&self, slot: usize) -> String {
        format!("{}, slot {slot}", self.place())
    }

    /// The number of this process among those that have slots, and how many have. All clients of
    /// Flight come to the coordinator.
    fn reader(&self, options: &OpenOptions) -> (usize, usize) {
        self.transport.map_or((options.process, 1), |_| options.reader)
    }

    /// Listens for producers of so many slots; `None` if there are none.
    fn serve(
        &self,
        slots: usize,
        projection: &[usize],
        options: &OpenOptions,
    ) -> Result<Option<Arc<Serving>>> {
        if slots == 0 {
            return Ok(None);
        }
        let waiting_max = (options.memory_bytes / WAITING_PART).min(WAITING_BYTES_MAX);
        let slots = Slots::new(Layout {
            place: self.place().into(),
            slots,
            producers_max: self.slots,
            producers: self.producers,
            is_coordinator: options.process == 0,
            bounded: self.bounded,
            on_loss: self.on_loss,
            slot_bytes_max: waiting_max / slots as u64,
            schema: Arc::new(self.schema.project(projection)?),
        });
        let served = Served {
            slots: slots.clone(),
            schema: self.schema.clone(),
            projection: projection.into(),
            token: self.token.clone(),
            message_bytes_max: waiting_max.max(MESSAGE_BYTES_MIN),
        };
        let name = self.name.clone();
        let door = match self.transport {
            None => Server::of(self.address, &name, served).map(Door::Flight),
            Some(transport) => {
                let host = Host { name: name.clone(), served, transport, ring: self.ring };
                let any_port = SocketAddr::new(self.address.ip(), 0);
                let address = if options.process == 0 { self.address } else { any_port };
                Listener::start(address, host).map(Door::Rings)
            }
        };
        let door = door.map_err(|error| io_error(Path::new(&self.place()), &error))?;
        let serving = Serving { slots, door, name };
        serving.slots.listens(serving.address().port());
        Ok(Some(Arc::new(serving)))
    }
}

impl Table for ChannelSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn bounded(&self) -> bool {
        self.bounded
    }

    fn live(&self) -> bool {
        true
    }

    fn splits_are_apart(&self) -> bool {
        true
    }

    fn has_senders(&self) -> bool {
        true
    }

    fn read_once(&self) -> Option<ReadOnce> {
        let id = format!("channel {} {}", self.address, self.name);
        Some(ReadOnce { id, name: self.place() })
    }

    fn check_resumable(&self) -> Result<()> {
        Err(Error::Io {
            place: self.place(),
            message: "its records come only once, so a job with checkpoints cannot read it: \
                      resumed after a crash, the job would miss records"
                .into(),
            help: "let the producers write to Kafka or to files, and read those; or run the job \
                   without checkpoints"
                .into(),
        })
    }

    fn open(&self, projection: &[usize], options: &OpenOptions) -> Result<Vec<Box<dyn Split>>> {
        let (own, readers) = self.reader(options);
        let is_own = |slot: &usize| slot % readers == own;
        let all = 0..self.slots as usize;
        let serving = self.serve(all.clone().filter(is_own).count(), projection, options)?;
        let split = |number: usize| -> Box<dyn Split> {
            let serving = serving.as_ref().filter(|_| is_own(&number));
            let remark = serving.filter(|_| number == 0).map(|serving| {
                let (address, name) = (serving.address(), &self.name);
                let by = match self.transport {
                    None => "Arrow Flight on grpc://",
                    Some(_) => "producers on ",
                };
                format!("waits for {by}{address}, {name}{}", everybody(address))
            });
            let name = self.slot_name(number);
            Box::new(SlotSplit {
                name,
                remark,
                serving: serving.cloned(),
                sharing: match self.transport {
                    None => Sharing::Coordinator,
                    Some(_) => Sharing::Reader(number),
                },
                slot: number / readers,
                chunks: 0,
                ring: None,
                segment: self.ring.0,
                fed_us: 0,
                drained_looks: self.ring.1,
                quiet_looks: QUIET_LOOKS,
            })
        };
        Ok(all.map(split).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.schema.fields().len());
        let (slots, all) = (counted(self.slots, "slot"), counted(all as u64, "column"));
        let by = match self.transport {
            None => "Arrow Flight",
            Some(Transport::Tcp) => "rings over TCP",
            Some(Transport::Shm) => "rings in shared memory",
            Some(Transport::Rdma) => "rings over RDMA",
        };
        format!("{} at {} ({by}, {slots}, {read} of {all})", self.place(), self.address)
    }
}

/// The options of rings.
fn ring(options: &Options<'_>, has_rings: bool) -> Result<(usize, usize)> {
    let form = "a number of bytes from 4 KB to 4 MB, such as '64 KB'";
    let segment = options.parsed("segment", form, |text| {
        let bytes = parse_bytes(text).filter(|bytes| SEGMENT_BYTES.contains(bytes))?;
        Some((bytes as usize).next_multiple_of(16))
    })?;
    let segments = options.integer("segments", 2, 1024)?;
    for (option, is_given) in [("segment", segment.is_some()), ("segments", segments.is_some())] {
        if is_given && !has_rings {
            let message = "Arrow Flight has no segments".to_string();
            return Err(options.error(option, message, "leave it out, or say 'transport'"));
        }
    }
    Ok((segment.unwrap_or(64 << 10), segments.unwrap_or(8) as usize))
}

/// The listener of a table.
#[derive(Debug)]
enum Door {
    Flight(Arc<Server>),
    Rings(Listener),
}

/// The slots of an open table; dropped, it takes no more.
#[derive(Debug)]
struct Serving {
    slots: Arc<Slots>,
    door: Door,
    name: Arc<str>,
}

impl Serving {
    fn address(&self) -> SocketAddr {
        match &self.door {
            Door::Flight(server) => server.address(),
            Door::Rings(listener) => listener.address(),
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.slots.close();
        if let Door::Flight(server) = &self.door {
            server.remove(&self.name);
        }
    }
}

/// A slot as a split.
struct SlotSplit {
    name: String,
    remark: Option<String>,
    /// `None` if the slot is another process's.
    serving: Option<Arc<Serving>>,
    sharing: Sharing,
    /// Its number among the slots of this process.
    slot: usize,
    chunks: u64,
    /// The ring of the producer in the slot, bytes of a segment, and when one came last.
    ring: Option<Box<dyn Ring>>,
    segment: usize,
    fed_us: i64,
    /// Looks into the ring of a job that is being drained. What a producer has sent before is not
    /// longer than the ring.
    drained_looks: usize,
    quiet_looks: usize,
}

impl SlotSplit {
    /// Looks into the ring while segments come, for batches to merge; `None` if there is no ring.
    /// `looks`: how many are allowed.
    fn gather(&mut self, now_us: i64, looks: &mut usize) -> Option<Looked> {
        let first = self.look(now_us);
        let most = (GATHERED_BYTES / self.segment).min(*looks);
        for _ in 1..most {
            if first != Some(Looked::Some) {
                break;
            }
            *looks -= 1;
            if self.look(now_us) != Some(Looked::Some) {
                break;
            }
        }
        first
    }

    /// Looks into the ring; `None` if there is none.
    fn look(&mut self, now_us: i64) -> Option<Looked> {
        if self.ring.is_none() {
            self.ring = self.serving.as_ref()?.slots.ring(self.slot);
        }
        let looked = self.ring.as_mut()?.look();
        match looked {
            Looked::Some => self.fed_us = now_us,
            Looked::Gone => self.ring = None,
            Looked::Nothing | Looked::Ending => {}
        }
        Some(looked)
    }
}

impl Split for SlotSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn remark(&self) -> Option<&str> {
        self.remark.as_deref()
    }

    fn notice(&mut self) -> Option<String> {
        self.serving.as_ref()?.slots.notice()
    }

    fn position(&self) -> Position {
        Position(vec![self.chunks])
    }

    fn is_absent(&self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.slots.is_absent(self.slot))
    }

    fn senders(&self) -> Option<Arc<dyn Senders>> {
        let serving = self.serving.as_ref().filter(|_| self.sharing != Sharing::Coordinator)?;
        Some(serving.slots.clone())
    }

    fn drain(&mut self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.slots.drain(self.slot))
    }

    fn poll_next(&mut self, now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        let later = |pause_us| {
            let retry_at_us = Some(now_us.saturating_add(pause_us));
            Ok(SplitPoll::Pending { retry_at_us })
        };
        let mut looks_left = LOOKS_MAX;
        while looks_left > 0 {
            looks_left -= 1;
            let Some(serving) = &self.serving else { return Ok(SplitPoll::Ended) };
            let is_over = match serving.slots.next(self.slot, waker)? {
                Next::Chunk(chunk) => {
                    self.chunks += 1;
                    return Ok(SplitPoll::Chunk(chunk));
                }
                Next::Ended => true,
                Next::Nothing => false,
            };
            let looks = !is_over || self.drained_looks > 0;
            let looked = match (looks, is_over) {
                (false, _) => None,
                (_, true) => self.look(now_us),
                (_, false) => self.gather(now_us, &mut looks_left),
            };
            match looked {
                Some(Looked::Some) => self.drained_looks -= usize::from(is_over),
                Some(Looked::Gone) => {}
                Some(Looked::Ending) => return later(LOOK_SOON_US),
                Some(Looked::Nothing) if is_over && self.quiet_looks > 0 => {
                    self.quiet_looks -= 1;
                    return later(LOOK_SOON_US);
                }
                Some(Looked::Nothing) | None if is_over => {
                    self.ring.take().into_iter().for_each(|mut ring| ring.refuse(DRAINED));
                    return Ok(SplitPoll::Ended);
                }
                Some(Looked::Nothing) => {
                    return later(match now_us.saturating_sub(self.fed_us) {
                        ..AWAKE_US => 0,
                        AWAKE_US..BUSY_US => LOOK_SOON_US,
                        _ => LOOK_US,
                    });
                }
                None => return Ok(SplitPoll::Pending { retry_at_us: None }),
            }
        }
        later(0)
    }
}
