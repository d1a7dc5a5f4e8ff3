//! Sends and receives messages over shared memory on one thread, for counting instructions and
//! system calls:
//!
//!     cargo run --release --example count -- MESSAGES [payload bytes [slot bytes]]
//!
//! Run it with two different numbers of messages; the difference of the counts is what the
//! additional messages cost.

use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_flow::channel::{Received, Settings, connect};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let number = |i: usize, otherwise: usize| {
        std::env::args().nth(i).map_or(Ok(otherwise), |text| text.parse::<usize>())
    };
    let (messages, bytes) = (number(1, 1000)?, number(2, 8)?);
    let settings = Settings { slot_bytes: number(3, 4096)?, ..Settings::default() };
    let device = ShmDevice::open(Token::random()?)?;
    let events = [device.events()?, device.events()?];
    let (mut sender, mut receiver) =
        connect([&device, &device], [&events[0], &events[1]], settings)?;
    let mut received = 0;
    while received < messages {
        // As many as there is credit for, so that both sides work in batches.
        for _ in 0..settings.slots.min(messages - received) {
            let slot = sender.try_acquire()?.ok_or("no credit")?;
            slot.send(bytes, 0)?;
        }
        while let Received::Message(message) = receiver.try_receive()? {
            if message.len() != bytes {
                return Err("a message of another length".into());
            }
            received += 1;
            drop(message);
        }
    }
    Ok(())
}
