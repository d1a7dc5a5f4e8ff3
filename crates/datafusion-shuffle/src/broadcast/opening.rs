//! How a worker opens the streams of a broadcast: alone, or for a group of readers.

use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use millstream_fabric::Fabric;
use tokio::sync::{mpsc, oneshot};

use super::gathering::{Credits, Key, Seat, Ticket};
use super::trunk::{Published, Trunk};
use crate::control::{Head, Joined, Open, Opened};
use crate::exchange::Exchange;
use crate::executing::{Reader, execute, open_alone};
use crate::outbound::Outgoing;
use crate::streams::send;

/// A broadcast that was asked for.
pub(crate) struct Broadcast {
    key: Key,
    /// All readers, also those of this process, which read without asking.
    readers: usize,
}

/// The reader gets an error's text.
type Answer<T> = std::result::Result<T, String>;

impl Broadcast {
    /// The broadcast that a request is for, if it is one to several readers.
    pub(crate) fn of(open: &Open) -> Option<Broadcast> {
        let Some(Head::Broadcast(partitions)) = open.head else { return None };
        let readers = partitions.checked_div(open.end.saturating_sub(open.start))? as usize;
        let key = (open.query.clone(), open.stage, open.task);
        (readers > 1).then_some(Broadcast { key, readers })
    }

    /// Opens the streams: through a flow if there are other readers, else through the lanes.
    pub(crate) async fn open<F: Fabric>(
        &self,
        reader: &Reader<'_, F>,
        open: Open,
    ) -> Answer<Opened> {
        let exchange = reader.exchange;
        let gathered = exchange.gatherings().gather(&self.key, self.readers, exchange.gather());
        match gathered.await {
            Seat::First(seats) if seats.is_empty() => open_alone(reader, open).await,
            Seat::First(seats) => lead(reader, open, seats).await,
            Seat::Further(ticket) => match ticket.await {
                Ok(ticket) => follow(reader, open, ticket).await,
                Err(_) => open_alone(reader, open).await,
            },
        }
    }
}

/// The place of a reader in a flow, and its streams.
fn opened((first, schema): (u32, Vec<u8>), ticket: Ticket) -> Opened {
    let Ticket { flow, port, target, .. } = ticket;
    Opened { first, schema, joined: Some(Joined { flow, port: port.into(), target }) }
}

/// A further reader: the first one's streams are its own, and its credit counts.
async fn follow<F: Fabric>(reader: &Reader<'_, F>, open: Open, ticket: Ticket) -> Answer<Opened> {
    let first = open.first;
    // Each partition of the plan is executed once, and all readers' partitions are the same.
    let (schema, batches) = execute(reader.worker, open).await?;
    let credits = reader.streams.follow(first, batches.len());
    // The first reader's task may be gone: then the flow does not come about.
    drop(ticket.credits.send(credits));
    Ok(opened((first, schema), ticket))
}

/// The first reader: makes the flow, and sends its own streams to all.
async fn lead<F: Fabric>(
    reader: &Reader<'_, F>,
    open: Open,
    seats: Vec<oneshot::Sender<Ticket>>,
) -> Answer<Opened> {
    let (exchange, first) = (reader.exchange, open.first);
    let registry = exchange.registry().map_err(|error| error.to_string())?;
    let (credits, told) = mpsc::unbounded_channel();
    let flow = format!("broadcast {}", uuid::Uuid::new_v4());
    let ticket = |target| Ticket {
        flow: flow.clone(),
        port: registry.address().port(),
        target,
        credits: credits.clone(),
    };
    let mut readers = 1;
    for seat in seats {
        readers += u32::from(seat.send(ticket(readers)).is_ok());
    }
    if readers == 1 {
        return open_alone(reader, open).await;
    }
    let exchanged = (exchange.fabric(), &**exchange.common());
    let published = Published::new(exchanged, registry.clone(), (flow.clone(), readers));
    let published = published.map_err(|error| error.to_string())?;
    // Should this fail, further readers find no flow of this name.
    let (schema, batches) = execute(reader.worker, open).await?;
    let own = reader.streams.follow(first, batches.len());
    let answer = opened((first, schema), ticket(0));
    tokio::spawn(serve(exchange.clone(), (published, readers), (batches, own, told)));
    Ok(answer)
}

/// Sends the streams of a broadcast to all its readers.
async fn serve<F: Fabric>(
    exchange: Exchange<F>,
    (published, readers): (Published, u32),
    (batches, own, mut told): (
        Vec<SendableRecordBatchStream>,
        Credits,
        mpsc::UnboundedReceiver<Credits>,
    ),
) {
    let (fabric, common, streams) =
        (exchange.fabric().clone(), exchange.common().clone(), batches.len());
    let patience = common.config.patience;
    // It waits for the readers.
    let connecting =
        tokio::task::spawn_blocking(move || Trunk::connect(&fabric, common, published, streams));
    // If not all readers have come, those that have know it as well.
    let Ok(Ok(trunk)) = connecting.await else { return };
    let trunk = Arc::new(trunk);
    exchange.look_after(trunk.clone());
    let mut credits = vec![own];
    while credits.len() < readers as usize {
        match tokio::time::timeout(patience, told.recv()).await {
            Ok(Some(one)) => credits.push(one),
            _ => break,
        }
    }
    for (number, batches) in batches.into_iter().enumerate() {
        let credits = credits.iter().filter_map(|one| one.get(number).cloned()).collect();
        let outgoing = Outgoing::new(trunk.clone(), number as u32);
        tokio::spawn(send(outgoing, batches, credits));
    }
}
