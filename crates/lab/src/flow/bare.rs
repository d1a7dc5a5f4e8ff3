//! A bare ping-pong of the fabric: what a round trip takes without a flow.

use std::time::Instant;

use millstream_fabric::{
    Access, Completion, CompletionQueue, Fabric, QueuePair, QueueSizes, Region, RemoteRegion,
    Source, Timing, WorkRequest,
};
use std::sync::atomic::Ordering;

use super::failure::FlowResult;
use super::ping::IDLE;

/// Every so many writes one is signalled.
const SIGNALLED: u64 = 16;
/// Rounds of the warm-up.
const WARM: u64 = 200;

/// An end: its memory, into which the peer writes, and the peer's.
struct Side<F: Fabric> {
    pair: F::QueuePair,
    queue: F::CompletionQueue,
    own: Region,
    peer: RemoteRegion,
    message: Vec<u8>,
    inline: bool,
    /// The message as a region, if it does not fit into a request.
    out: Region,
}

impl<F: Fabric> Side<F> {
    /// Writes the message of this number. Its last word says the number.
    fn send(&mut self, number: u64) -> FlowResult<()> {
        let at = self.message.len() - 8;
        self.message[at..].copy_from_slice(&number.to_ne_bytes());
        let bytes = self.message.len();
        let source = if self.inline {
            Source::Inline(&self.message)
        } else {
            self.out.word(at).store(number, Ordering::Relaxed);
            Source::Region { region: &self.out, offset: 0, bytes }
        };
        let request = WorkRequest::write(source, self.peer.at(0, bytes as u64)?);
        if number.is_multiple_of(SIGNALLED) {
            self.pair.post(&[request.signalled(1)]).map_err(|rejected| rejected.reason)?;
            while self.queue.poll(&mut [Completion::default()])? == 0 {
                std::hint::spin_loop();
            }
        } else {
            self.pair.post(&[request]).map_err(|rejected| rejected.reason)?;
        }
        Ok(())
    }

    /// Waits for the message of this number.
    fn wait(&self, number: u64) {
        let word = self.own.word(self.message.len() - 8);
        let mut looks = 0_u32;
        while word.load(Ordering::Acquire) != number {
            looks += 1;
            match looks.is_multiple_of(IDLE) {
                true => std::thread::yield_now(),
                false => std::hint::spin_loop(),
            }
        }
    }
}

/// The nanoseconds of a round trip with messages of so many bytes and a word, between two threads.
pub(super) fn round_trip<F: Fabric>(device: &F, bytes: usize, rounds: u64) -> FlowResult<f64>
where
    F::QueuePair: Send,
    F::CompletionQueue: Send,
{
    let length = bytes.next_multiple_of(8) + 8;
    let sizes = QueueSizes { send: 4 * SIGNALLED as u32, receive: 1 };
    let queues = [device.completion_queue(128, None)?, device.completion_queue(128, None)?];
    let pair = |queue| device.queue_pair(queue, queue, sizes, Timing::default());
    let mut pairs = [pair(&queues[0])?, pair(&queues[1])?];
    let ends = [pairs[0].endpoint(), pairs[1].endpoint()];
    pairs[0].connect(&ends[1])?;
    pairs[1].connect(&ends[0])?;
    let own = |_| device.allocate(length, Access::REMOTE_WRITE);
    let memories = [own(())?, own(())?];
    let peers = [memories[1].remote(), memories[0].remote()];
    let inline = length <= device.limits().inline_bytes;
    let mut sides = Vec::new();
    for (((pair, queue), own), peer) in pairs.into_iter().zip(queues).zip(memories).zip(peers) {
        let (message, out) = (vec![0; length], device.allocate(length, Access::LOCAL)?);
        sides.push(Side::<F> { pair, queue, own, peer, message, inline, out });
    }
    let all = WARM + rounds;
    let (mut there, mut here) = match (sides.pop(), sides.pop()) {
        (Some(there), Some(here)) => (there, here),
        _ => return Ok(0.0),
    };
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || -> FlowResult<()> {
            for number in 1..=all {
                there.wait(number);
                there.send(number)?;
            }
            Ok(())
        });
        let mut begun = Instant::now();
        for number in 1..=all {
            if number == WARM + 1 {
                begun = Instant::now();
            }
            here.send(number)?;
            here.wait(number);
        }
        let time = begun.elapsed();
        answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        Ok(time.as_secs_f64() * 1e9 / rounds.max(1) as f64)
    })
}
