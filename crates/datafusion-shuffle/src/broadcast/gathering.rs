//! Readers of the same task find together.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot, watch};

use crate::mover::lock;

/// The task that is read: query, stage, number.
pub(crate) type Key = (Vec<u8>, u64, u64);

/// The credit of a reader's streams, by partition.
pub(crate) type Credits = Vec<watch::Receiver<u64>>;

/// The place of a reader in a group.
#[derive(Clone)]
pub(crate) struct Ticket {
    /// Name of the flow.
    pub(crate) flow: String,
    /// Port of the registry.
    pub(crate) port: u16,
    /// Index among the flow's targets.
    pub(crate) target: u32,
    /// Where the reader's credit goes.
    pub(crate) credits: mpsc::UnboundedSender<Credits>,
}

/// The part of a reader that has asked.
pub(crate) enum Seat {
    /// The first of a group, which serves the others.
    First(Vec<oneshot::Sender<Ticket>>),
    /// A further reader. It gets a ticket, unless the first reader goes away before.
    Further(oneshot::Receiver<Ticket>),
}

struct Gathering {
    seats: Vec<oneshot::Sender<Ticket>>,
    full: Arc<Notify>,
}

/// Groups that still wait for readers.
#[derive(Default)]
pub(crate) struct Gatherings(Mutex<HashMap<Key, Gathering>>);

impl Gatherings {
    /// Finds the readers of a task that ask within `patience`. Waits no longer when all `readers`
    /// are there.
    pub(crate) async fn gather(&self, key: &Key, readers: usize, patience: Duration) -> Seat {
        let (seat, ticket) = oneshot::channel();
        let full = {
            let mut open = lock(&self.0);
            if let Some(gathering) = open.get_mut(key) {
                gathering.seats.push(seat);
                if gathering.seats.len() + 1 >= readers {
                    gathering.full.notify_one();
                }
                return Seat::Further(ticket);
            }
            let full = Arc::new(Notify::new());
            open.insert(key.clone(), Gathering { seats: Vec::new(), full: full.clone() });
            full
        };
        // Whoever asks for the first reader may go away meanwhile: the others then have no ticket.
        let mut closing = Closing { gatherings: self, key: Some(key) };
        // All are there, or the time is over.
        drop(tokio::time::timeout(patience, full.notified()).await);
        Seat::First(closing.close())
    }
}

/// Closes a gathering.
struct Closing<'a> {
    gatherings: &'a Gatherings,
    key: Option<&'a Key>,
}

impl Closing<'_> {
    fn close(&mut self) -> Vec<oneshot::Sender<Ticket>> {
        let Some(key) = self.key.take() else { return Vec::new() };
        lock(&self.gatherings.0).remove(key).map_or_else(Vec::new, |one| one.seats)
    }
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinHandle;

    use super::*;

    fn key(task: u64) -> Key {
        (vec![1, 2], 3, task)
    }

    fn ticket(target: u32) -> Ticket {
        Ticket { flow: "f".into(), port: 1, target, credits: mpsc::unbounded_channel().0 }
    }

    /// A first reader, which waits for two more.
    async fn first_of_three(gatherings: &Arc<Gatherings>) -> JoinHandle<Seat> {
        let gatherings = gatherings.clone();
        let first =
            tokio::spawn(
                async move { gatherings.gather(&key(1), 3, Duration::from_secs(60)).await },
            );
        tokio::task::yield_now().await;
        first
    }

    #[tokio::test]
    async fn readers_of_a_task_find_together() {
        let gatherings = Arc::new(Gatherings::default());
        let first = first_of_three(&gatherings).await;
        let mut tickets = Vec::new();
        for _ in 0..2 {
            match gatherings.gather(&key(1), 3, Duration::from_secs(60)).await {
                Seat::Further(ticket) => tickets.push(ticket),
                Seat::First(_) => panic!("there is a first"),
            }
        }
        // All are there, so nobody waits for a minute.
        let Seat::First(seats) = first.await.unwrap() else { panic!("the first") };
        for (number, seat) in (1..).zip(seats) {
            assert!(seat.send(ticket(number)).is_ok());
        }
        for (number, waiting) in (1..).zip(tickets) {
            assert_eq!(waiting.await.unwrap().target, number);
        }
        assert!(lock(&gatherings.0).is_empty());
    }

    #[tokio::test]
    async fn a_reader_alone_is_first_after_a_while() {
        let gatherings = Gatherings::default();
        for task in [1, 2] {
            let seat = gatherings.gather(&key(task), 3, Duration::from_millis(1)).await;
            assert!(matches!(seat, Seat::First(seats) if seats.is_empty()));
        }
    }

    #[tokio::test]
    async fn without_the_first_there_is_no_ticket() {
        let gatherings = Arc::new(Gatherings::default());
        let first = first_of_three(&gatherings).await;
        let Seat::Further(ticket) = gatherings.gather(&key(1), 3, Duration::from_secs(60)).await
        else {
            panic!("there is a first")
        };
        first.abort();
        assert!(ticket.await.is_err());
    }
}
