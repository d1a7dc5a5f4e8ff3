//! A test of how many file descriptors channels take. It is alone in its file because it counts
//! those of the whole process.

use std::time::{Duration, Instant};

use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_flow::channel::{ReceiverSetup, SenderSetup, Settings};

const CHANNELS: usize = 10;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A connection is taken up by the device's thread, which has its time.
fn wait_for(descriptors: usize) {
    let begin = Instant::now();
    while open_descriptors() < descriptors && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(50));
}

/// That channels with both sides in this process take so many each, not counting what the first
/// takes for all, and their events.
fn takes<F: Fabric>(device: &F, each: usize) {
    let (there, here) = (device.events().unwrap(), device.events().unwrap());
    let channel = || {
        let sender = SenderSetup::new(device, &there, Settings::default()).unwrap();
        let receiver = ReceiverSetup::new(device, &here, Settings::default()).unwrap();
        let (to_receiver, to_sender) = (sender.hello(), receiver.hello());
        (sender.connect(&to_sender).unwrap(), receiver.connect(&to_receiver).unwrap())
    };
    let before = open_descriptors();
    let first = channel();
    wait_for(before + each);
    let before = open_descriptors();
    let channels: Vec<_> = (0..CHANNELS).map(|_| channel()).collect();
    wait_for(before + CHANNELS * each);
    let taken = open_descriptors() - before;
    assert_eq!(taken, CHANNELS * each, "{}", device.provider().name());
    drop((first, channels));
}

#[test]
fn channels_take_few_descriptors() {
    let token = Token::new([1; 32]);
    takes(&TcpDevice::open(token, "127.0.0.1:0".parse().unwrap()).unwrap(), 4);
    takes(&ShmDevice::open(token).unwrap(), 5);
}
