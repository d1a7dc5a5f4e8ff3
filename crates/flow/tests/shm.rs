//! Channels over shared memory, where both sides store into each other's memory.

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::{Access, Fabric, Region, RemoteRegion};
use millstream_flow::{Error, ReceiverSetup, SenderSetup, Settings};

fn device() -> ShmDevice {
    ShmDevice::open(Token::new([1; 32])).unwrap()
}

/// A part of a region that does not begin at a cache line.
fn shifted(region: &Region, bytes: u64, by: u64) -> RemoteRegion {
    let RemoteRegion { address, key, .. } = region.remote();
    RemoteRegion { address: address + by, bytes, key }
}

#[test]
fn regions_that_begin_anywhere_are_refused() {
    for by in [1, 4, 8] {
        let (a, b) = (device(), device());
        let events = [a.events().unwrap(), b.events().unwrap()];
        let memory = [&a, &b].map(|side| side.allocate(1 << 20, Access::REMOTE_ALL).unwrap());
        let setups = || {
            let sender = SenderSetup::new(&a, &events[0], Settings::default()).unwrap();
            let receiver = ReceiverSetup::new(&b, &events[1], Settings::default()).unwrap();
            (sender, receiver)
        };
        for which in 0..2 {
            let (sender, receiver) = setups();
            let mut hello = receiver.hello();
            hello.regions[which] = shifted(&memory[1], hello.regions[which].bytes, by);
            let refused = sender.connect(&hello).err();
            assert!(matches!(refused, Some(Error::Mismatch { .. })), "{refused:?}");
        }
        let (sender, receiver) = setups();
        let mut hello = sender.hello();
        hello.regions[0] = shifted(&memory[0], hello.regions[0].bytes, by);
        let refused = receiver.connect(&hello).err();
        assert!(matches!(refused, Some(Error::Mismatch { .. })), "{refused:?}");
    }
}
