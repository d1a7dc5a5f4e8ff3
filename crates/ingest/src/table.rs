//! The table of the connector `channel`. Its splits are slots.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::Waker;

use arrow::datatypes::SchemaRef;
use millstream_connect::{Options, everybody, io_error};
use millstream_contract::table::{
    OpenOptions, Position, ReadOnce, Sharing, Split, SplitPoll, Table, TableOptions,
};
use millstream_contract::wording::counted;
use millstream_contract::{Error, Result};

use crate::flight::{Served, Server};
use crate::slots::{Layout, Next, OnLoss, Slots};

/// The port that Arrow Flight's own examples use.
const PORT: u16 = 8815;
const PRODUCERS_MAX: u64 = 16;
/// More slots would be threads in disguise.
const SLOTS_MAX: u64 = 1024;
/// Bytes of received batches that wait: at most this, and at most this part of the job's memory.
const WAITING_BYTES_MAX: u64 = 64 << 20;
const WAITING_PART: u64 = 8;
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
            schema: table.schema.clone(),
        })
    }

    fn place(&self) -> String {
        format!("channel {}", self.name)
    }

    fn slot_name(&self, slot: u64) -> String {
        format!("{}, slot {slot}", self.place())
    }

    /// Listens for producers.
    fn serve(&self, projection: &[usize], options: &OpenOptions) -> Result<Arc<Serving>> {
        let waiting_max = (options.memory_bytes / WAITING_PART).min(WAITING_BYTES_MAX);
        let slots = Slots::new(Layout {
            place: self.place().into(),
            slots: self.slots as usize,
            producers: self.producers,
            bounded: self.bounded,
            on_loss: self.on_loss,
            slot_bytes_max: waiting_max / self.slots,
            schema: Arc::new(self.schema.project(projection)?),
        });
        let served = Served {
            slots: slots.clone(),
            schema: self.schema.clone(),
            projection: projection.into(),
            token: self.token.clone(),
            message_bytes_max: waiting_max.max(MESSAGE_BYTES_MIN),
        };
        let server = Server::of(self.address, &self.name, served)
            .map_err(|error| io_error(Path::new(&self.place()), &error))?;
        Ok(Arc::new(Serving { slots, server, name: self.name.clone() }))
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
        let serving = match options.process {
            0 => Some(self.serve(projection, options)?),
            // The coordinator listens.
            _ => None,
        };
        let split = |slot: u64| -> Box<dyn Split> {
            let remark = serving.as_ref().filter(|_| slot == 0).map(|serving| {
                let address = serving.server.address();
                let name = &self.name;
                format!("waits for Arrow Flight on grpc://{address}, {name}{}", everybody(address))
            });
            let name = self.slot_name(slot);
            Box::new(SlotSplit {
                name,
                remark,
                serving: serving.clone(),
                slot: slot as usize,
                chunks: 0,
            })
        };
        Ok((0..self.slots).map(split).collect())
    }

    fn describe(&self, projection: &[usize]) -> String {
        let (read, all) = (projection.len(), self.schema.fields().len());
        let (slots, all) = (counted(self.slots, "slot"), counted(all as u64, "column"));
        format!("{} at {} (Arrow Flight, {slots}, {read} of {all})", self.place(), self.address)
    }
}

/// The slots of an open table; dropped, it takes no more.
#[derive(Debug)]
struct Serving {
    slots: Arc<Slots>,
    server: Arc<Server>,
    name: Arc<str>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.slots.close();
        self.server.remove(&self.name);
    }
}

/// A slot as a split.
struct SlotSplit {
    name: String,
    remark: Option<String>,
    /// `None` in a process that does not listen.
    serving: Option<Arc<Serving>>,
    slot: usize,
    chunks: u64,
}

impl Split for SlotSplit {
    fn name(&self) -> &str {
        &self.name
    }

    fn sharing(&self) -> Sharing {
        Sharing::Coordinator
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

    fn drain(&mut self) -> bool {
        self.serving.as_ref().is_some_and(|serving| serving.slots.drain(self.slot))
    }

    fn poll_next(&mut self, _now_us: i64, waker: &Waker) -> Result<SplitPoll> {
        let Some(serving) = &self.serving else { return Ok(SplitPoll::Ended) };
        Ok(match serving.slots.next(self.slot, waker)? {
            Next::Chunk(chunk) => {
                self.chunks += 1;
                SplitPoll::Chunk(chunk)
            }
            Next::Nothing => SplitPoll::Pending { retry_at_us: None },
            Next::Ended => SplitPoll::Ended,
        })
    }
}
