//! `millstream-lab bench channel`: measures channels over a fabric, by turns with the fabric's own
//! limit. Every word that arrives is summed and the sum is checked. Only over `verbs` nothing
//! touches the bytes, because the limit does not either.

pub(crate) mod compare;
mod limits;
mod transfer;
pub(crate) mod waiting;

use std::time::Duration;

use millstream::program::cluster::FabricName;
use millstream_fabric::Fabric;
use millstream_fabric::verbs::Options;
use millstream_flow::channel::{Notification, Settings};
use serde_json::{Value, json};

use self::compare::{
    Cell, ChannelFailure, Medium, Plan, Rdma, Shm, SmallMessage, Tcp, cell, small_message,
};
use self::waiting::{Waiting, waiting};
use crate::failure::{fail, print};
use crate::{Failure, round};

/// Which channels are measured. What is not said is measured in turn, or usual.
#[derive(Debug, Clone, Copy)]
pub struct Channel {
    /// Fabric of the channels.
    pub fabric: FabricName,
    /// Bytes of a slot [default: 4 KiB to 1 MiB, in turn].
    pub slot_bytes: Option<usize>,
    /// Slots of the ring [default: 4, 8, 16 and 64, in turn].
    pub credits: Option<usize>,
    /// Runs of channel and limit, by turns, of which the median counts [default: 5].
    pub pairs: Option<usize>,
    /// MiB that a run moves [default: 512; over verbs 32].
    pub mib: Option<usize>,
    /// How the consumer learns of slots [default: by the footer; over verbs by a completion].
    pub notification: Option<Notification>,
}

/// The sizes of the paper's figures 10a and 10b.
const SLOT_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
const CREDITS: [usize; 4] = [4, 8, 16, 64];

/// Messages there and back for the latency of a small one.
const ROUNDS: u32 = 20_000;
/// A consumer that waits is woken so often, after a pause of this length.
const WAKES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

impl Channel {
    /// Measures, and prints what came out.
    pub fn run(&self, as_json: bool) -> Result<(), Failure> {
        let failed = |error: ChannelFailure| fail(&error);
        match self.fabric {
            FabricName::Shm => self.measure(as_json, &Shm::open().map_err(failed)?),
            FabricName::Tcp => self.measure(as_json, &Tcp::open().map_err(failed)?),
            FabricName::Verbs => {
                // Who asks for footers says that the device places writes in order.
                let ordered =
                    matches!(self.notification, Some(Notification::Footer)).then_some(true);
                let options = Options { ordered_placement: ordered, ..Options::default() };
                self.measure(as_json, &Rdma::open(&options).map_err(failed)?)
            }
        }
    }

    /// The settings of every cell, in the order in which they are measured.
    fn cells(&self) -> Vec<Settings> {
        let slot_bytes = self.slot_bytes.map_or(SLOT_BYTES.to_vec(), |one| vec![one]);
        let credits = self.credits.map_or(CREDITS.to_vec(), |one| vec![one]);
        let cells = slot_bytes.iter().flat_map(|slot_bytes| {
            credits.iter().map(|slots| Settings {
                slots: *slots,
                slot_bytes: *slot_bytes,
                notification: self.notification(),
                ..Settings::default()
            })
        });
        cells.collect()
    }

    fn notification(&self) -> Notification {
        self.notification.unwrap_or(match self.fabric {
            FabricName::Verbs => Notification::Immediate,
            FabricName::Shm | FabricName::Tcp => Notification::Footer,
        })
    }

    fn pairs(&self) -> usize {
        self.pairs.unwrap_or(5)
    }

    fn plan(&self) -> Plan {
        let mib = self.mib.unwrap_or(if self.fabric == FabricName::Verbs { 32 } else { 512 });
        Plan { pairs: self.pairs(), bytes: mib << 20, rounds: ROUNDS }
    }

    fn measure<M: Medium>(&self, as_json: bool, medium: &M) -> Result<(), Failure> {
        let failed = |error: ChannelFailure| fail(&error);
        let settings = Settings { notification: self.notification(), ..Settings::default() };
        let mut cells = Vec::new();
        if !as_json {
            print(HEADING)?;
        }
        for settings in self.cells() {
            let cell = cell(medium, settings, self.plan()).map_err(failed)?;
            if !as_json {
                print(&row(&cell))?;
            }
            cells.push(cell_json(&cell));
        }
        // The costs of a cache line are measured over shared memory only.
        let small = match self.fabric {
            FabricName::Shm => Some(small_message(medium, settings, self.plan()).map_err(failed)?),
            FabricName::Tcp | FabricName::Verbs => None,
        };
        let waiting = waiting(medium.devices(), settings, WAKES, PAUSE);
        let waiting = waiting.map_err(|error| fail(&error))?;
        if !as_json {
            return print(&closing(small.as_ref(), &waiting));
        }
        let name = medium.devices()[0].provider().name();
        let small = small.as_ref().map(small_json);
        print(
            &json!({"bench": "channel", "fabric": name, "pairs": self.pairs(), "cells": cells,
                    "small_message": small, "waiting": waiting_json(&waiting), "ok": true})
            .to_string(),
        )
    }
}

const HEADING: &str =
    "slot bytes  credits      MB/s   limit MB/s  ratio (least to greatest)   one way";

fn row(cell: &Cell) -> String {
    let [least, median, greatest] = cell.ratios;
    format!(
        "{:>10} {:>8} {:>9.1} {:>12.1}  {median:.3} ({least:.3} to {greatest:.3}) {:>12.1} us",
        cell.settings.slot_bytes,
        cell.settings.slots,
        cell.bytes_per_s / 1e6,
        cell.limit_bytes_per_s / 1e6,
        micros(cell.one_way),
    )
}

fn closing(small: Option<&SmallMessage>, waiting: &Waiting) -> String {
    let small = small.map_or(String::new(), |small| {
        let [least, median, greatest] = small.ratios;
        format!(
            "small message, one way: {} ns, a bare cache line {} ns: {median:.2} times ({least:.2} to \
             {greatest:.2})\n",
            small.one_way.as_nanos(),
            small.line.as_nanos(),
        )
    });
    format!(
        "{small}waiting: {:.2}% of a core; woken after {:.0} us (median), {:.0} us (longest)",
        waiting.share * 100.0,
        micros(waiting.wake[0]),
        micros(waiting.wake[1]),
    )
}

fn cell_json(cell: &Cell) -> Value {
    let [out, into] = cell.stats;
    json!({
        "slot_bytes": cell.settings.slot_bytes,
        "credits": cell.settings.slots,
        "messages": cell.messages,
        "bytes_per_s": cell.bytes_per_s.round(),
        "limit_bytes_per_s": cell.limit_bytes_per_s.round(),
        "ratio": round(cell.ratios[1], 4),
        "ratio_min": round(cell.ratios[0], 4),
        "ratio_max": round(cell.ratios[2], 4),
        "one_way_us": round(micros(cell.one_way), 4),
        "credit_stalls": out.credit_stalls,
        "parks": [out.parks, into.parks],
        "polls": [out.polls, into.polls],
    })
}

fn small_json(small: &SmallMessage) -> Value {
    json!({
        "one_way_ns": small.one_way.as_nanos() as u64,
        "line_ns": small.line.as_nanos() as u64,
        "ratio": round(small.ratios[1], 4),
        "ratio_min": round(small.ratios[0], 4),
        "ratio_max": round(small.ratios[2], 4),
    })
}

fn waiting_json(waiting: &Waiting) -> Value {
    json!({
        "core_share": round(waiting.share, 4),
        "wake_us_p50": round(micros(waiting.wake[0]), 4),
        "wake_us_max": round(micros(waiting.wake[1]), 4),
    })
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
