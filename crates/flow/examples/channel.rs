//! Throughput and latency of channels beside the medium's own limit, one line of JSON each.
//!
//!     cargo run --release --example channel -- shm|tcp [slot bytes [credits [bytes to move]]]
//!
//! Without slot bytes and credits, the grid of the paper's figures 10a and 10b.

use std::time::Duration;

use millstream_fabric::Fabric;
use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::tcp::TcpDevice;
use millstream_flow::Settings;
use millstream_flow::bench::{
    Measured, channel, expected_sum, latency, line_limit, memory_limit, socket_limit, waiting,
};

type Failure = Box<dyn std::error::Error>;

/// Runs of channel and limit, by turns; the median counts.
const PAIRS: usize = 5;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize| arguments.get(i).map(|text| text.parse::<usize>()).transpose();
    let (slot_bytes, credits, bytes) = (number(1)?, number(2)?, number(3)?.unwrap_or(1 << 30));
    let slot_bytes =
        slot_bytes.map_or(vec![4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20], |n| vec![n]);
    let credits = credits.map_or(vec![4, 8, 16, 64], |n| vec![n]);
    for slot_bytes in &slot_bytes {
        for slots in &credits {
            let settings =
                Settings { slots: *slots, slot_bytes: *slot_bytes, ..Settings::default() };
            match arguments.first().map(String::as_str) {
                Some("shm") => {
                    let device = ShmDevice::open(Token::random()?)?;
                    report("shm", [&device, &device], settings, bytes, |messages| {
                        Ok(memory_limit(settings.slots, settings.payload_bytes(), messages))
                    })?;
                }
                Some("tcp") => {
                    let (token, address) = (Token::random()?, "127.0.0.1:0".parse()?);
                    let (a, b) =
                        (TcpDevice::open(token, address)?, TcpDevice::open(token, address)?);
                    report("tcp", [&a, &b], settings, bytes, |messages| {
                        Ok(socket_limit(settings.payload_bytes(), messages)?)
                    })?;
                }
                _ => return Err("say which fabric: shm or tcp".into()),
            }
        }
    }
    Ok(())
}

fn report<F: Fabric>(
    name: &str,
    devices: [&F; 2],
    settings: Settings,
    bytes: usize,
    limit: impl Fn(u64) -> Result<Measured, Failure>,
) -> Result<(), Failure> {
    let payload = settings.payload_bytes();
    let messages = (bytes / payload).max(8) as u64;
    let expected = expected_sum(messages, payload);
    let mut runs = Vec::new();
    for _ in 0..PAIRS {
        let (limit, found) = (limit(messages)?, channel(devices, settings, messages)?);
        if limit.sum != expected || found.sum != expected {
            return Err("the sum is wrong".into());
        }
        runs.push((found.bytes_per_s() / limit.bytes_per_s(), found, limit));
    }
    runs.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (ratio, found, limit) = runs[PAIRS / 2];
    let one_way = latency(devices, settings, 20_000)?.as_nanos();
    let line = line_limit(20_000).as_nanos();
    let idle = waiting(devices, settings, 20, Duration::from_millis(100))?;
    let [out, into] = found.stats;
    println!(
        "{{\"fabric\":\"{name}\",\"slot_bytes\":{},\"credits\":{},\"messages\":{messages},\
         \"bytes_per_s\":{:.3e},\"limit_bytes_per_s\":{:.3e},\"ratio\":{ratio:.3},\
         \"one_way_ns\":{one_way},\"line_ns\":{line},\"waiting_share\":{:.4},\"wake_us\":[{},{}],\
         \"stalls\":{},\"parks\":[{},{}]}}",
        settings.slot_bytes,
        settings.slots,
        found.bytes_per_s(),
        limit.bytes_per_s(),
        idle.share,
        idle.wake[0].as_micros(),
        idle.wake[1].as_micros(),
        out.credit_stalls,
        out.parks,
        into.parks,
    );
    Ok(())
}
