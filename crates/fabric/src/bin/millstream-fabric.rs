//! Says which fabrics this machine has, and what they can do.

use std::process::ExitCode;

use millstream_fabric::setup::Token;
use millstream_fabric::shm::ShmDevice;
use millstream_fabric::sim::{Model, Sim};
use millstream_fabric::tcp::TcpDevice;
use millstream_fabric::{Fabric, Limits, Result, verbs};

fn main() -> ExitCode {
    let token = Token::new([0; 32]);
    let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    let found = [
        describe("shm", "between processes of this host", ShmDevice::open(token)),
        describe("tcp", "anywhere", TcpDevice::open(token, local)),
        describe("sim", "for tests, in one process", Ok(Sim::new(0).node(Model::default()))),
    ];
    // Most machines have no RDMA, and nothing is wrong with them.
    describe_verbs();
    if found.contains(&false) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// All RDMA devices, or why there is none.
fn describe_verbs() {
    let names = match verbs::devices() {
        Ok(names) => names,
        Err(error) => return println!("verbs: {error}"),
    };
    for name in names {
        let options = verbs::Options { device: Some(name.clone()), ..verbs::Options::default() };
        match verbs::Verbs::open(&options) {
            Ok(device) => {
                println!("verbs: available ({device})");
                print_limits(device.limits());
            }
            Err(error) => println!("verbs: {name}: {error}"),
        }
    }
}

/// Prints what there is, and returns whether it can be used.
fn describe<F: Fabric>(name: &str, purpose: &str, device: Result<F>) -> bool {
    match device {
        Ok(device) => {
            println!("{name}: available ({purpose})");
            print_limits(device.limits());
            true
        }
        Err(error) => {
            println!("{name}: not available ({purpose}): {error}");
            false
        }
    }
}

fn print_limits(limits: &Limits) {
    println!("    longest message        {}", bytes(limits.message_bytes));
    println!("    longest datagram       {}", bytes(limits.datagram_bytes));
    println!("    inline                 {}", bytes(limits.inline_bytes));
    println!("    entries of a queue     {}", limits.queue_entries);
    println!("    completion entries     {}", limits.completion_entries);
    let order = if limits.ordered_placement { "in address order" } else { "in any order" };
    println!("    bytes become visible   {order}");
}

fn bytes(count: usize) -> String {
    match count {
        _ if count >= 1 << 30 => format!("{} GiB", count >> 30),
        _ if count >= 1 << 20 => format!("{} MiB", count >> 20),
        _ if count >= 1 << 10 => format!("{} KiB", count >> 10),
        _ => format!("{count} bytes"),
    }
}
